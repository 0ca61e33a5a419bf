"""From a bundle to a served gang: one launch of every rank, watched, and replaced as a whole when it fails."""
