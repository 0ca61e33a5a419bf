"""The demo target's model: a byte-level n-gram model trained from the text in this folder."""
