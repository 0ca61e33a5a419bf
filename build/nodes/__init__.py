"""Nodes: this host and others over ssh, behind one protocol."""
