"""btree."""
