"""What a run writes, what can be read as results, and what its raw outputs add to the records."""
