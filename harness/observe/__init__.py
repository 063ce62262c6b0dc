"""What is watched during a measurement, and the facts about the hosts that are measured."""
