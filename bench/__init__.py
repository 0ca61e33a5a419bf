"""Measurements: each module is a program of its own, run by hand on a quiet machine."""
