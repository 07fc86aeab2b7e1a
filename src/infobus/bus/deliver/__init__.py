"""From a frame to the application: who gets an event, its queue, and the subscription."""
