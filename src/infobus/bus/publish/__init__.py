"""From the application to a frame: deciding who wants an event, and sending it."""
