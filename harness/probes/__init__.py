"""Probes: what a path does to packets, without storage. One module for each kind of tool, and the records."""
