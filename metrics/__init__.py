"""What a running gang shows: the catalogue of metrics, and the server that hands out the last published snapshot."""
