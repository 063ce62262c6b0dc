"""Protection: what keeps a path's bytes from being read on the way, and the proof of what was on the wire."""
