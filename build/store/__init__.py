"""The content-addressed store: paths, records, roots, generations, and every verb over them."""
