"""One sans-IO state machine per guarantee: time comes in, work goes out as values."""
