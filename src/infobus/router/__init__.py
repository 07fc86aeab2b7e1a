"""The information router: joins the bus of a site with those of other sites."""
