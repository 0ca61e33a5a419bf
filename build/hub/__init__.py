"""The Hugging Face hub: its cache, its listings, and a ranged, parallel, resumable download into that cache."""
