"""The job `traffic`: rates, sizes, latency, and the watermarks that follow from them."""
