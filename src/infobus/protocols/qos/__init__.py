"""Quality of service: classes, queues by class, admission, and policy."""
