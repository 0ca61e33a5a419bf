"""One gang of ranks: launched, watched, ended as a whole."""
