"""The build graph: artefacts and their keys, and how doit carries them out."""
