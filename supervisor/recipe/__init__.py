"""A shell recipe's settings, read without running them."""
