"""Protection: encryption of a path, and the proof of what was on the wire."""
