"""A run for others, as a file or as text, without what tells whose it is."""
