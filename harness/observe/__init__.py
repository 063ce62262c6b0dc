"""What is observed during a measurement, and the facts about the hosts."""
