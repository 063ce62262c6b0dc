"""NVMe/TCP."""
