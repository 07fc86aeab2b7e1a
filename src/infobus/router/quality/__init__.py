"""Quality of service at a router: reservations of its site, and the policy of a group."""
