"""Pins in, artefacts out: the build half of twinfold."""
