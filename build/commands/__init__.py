"""twinfold's own doit commands: thin classes over the modules of ``build``."""
