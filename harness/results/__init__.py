"""What a run writes, what can be read as results, and what its raw outputs have beside the records."""
