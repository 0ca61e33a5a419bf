"""The nodes that a gang runs on: which rank where, what each node is asked, and how it is made ready for a launch."""
