"""WireGuard."""
