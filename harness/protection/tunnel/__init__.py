"""Tunnels of user-space programs that are there already."""
