"""Store paths on other nodes: planned, copied, proven there."""
