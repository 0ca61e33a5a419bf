"""How ranks run: the protocol, processes, containers."""
