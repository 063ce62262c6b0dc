"""TLS within NVMe/TCP."""
