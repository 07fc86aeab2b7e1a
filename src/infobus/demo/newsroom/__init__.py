"""The newsroom: feeds, journal, Spark and repository, and keywords back onto the bus."""
