"""What every engine and every store must do, as tests for you to subclass."""
