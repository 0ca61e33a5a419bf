"""A node's hardware as it runs: GPU, ports, disk and stalls, read the same way on every node."""
