"""The wide-area information service of paper 002, section 10, under overload."""
