"""Discovery and remote method invocation: directory, caller, and server."""
