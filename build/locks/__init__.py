"""The lock: what a target is pinned to, read, written, recorded and checked; and what its file says of it beside."""
