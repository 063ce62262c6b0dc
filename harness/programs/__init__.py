"""Of modules that are in no room yet."""
