"""What is between the ends: links of every kind, and paths with hops."""
