"""What is between the ends: links of every kind, with and without hops."""
