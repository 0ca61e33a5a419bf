"""What the running supervisor shows: metrics, status, the lines for people."""
