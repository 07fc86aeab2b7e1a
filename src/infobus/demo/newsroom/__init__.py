"""The newsroom: feeds, journal, Spark, repository, and back onto the bus."""
