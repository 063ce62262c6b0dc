"""What commands have in common at a terminal: options, what is printed, and a run as it goes."""
