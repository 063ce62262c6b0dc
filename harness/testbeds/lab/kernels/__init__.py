"""Kernels for the lab that are built here: its own, and modules for Debian's."""
