"""An engine over an engine, for secured buses: what it puts, only its receivers can read."""
