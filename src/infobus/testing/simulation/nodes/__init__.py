"""What each simulated node does beside the shipped code: it decides, and tells a witness."""
