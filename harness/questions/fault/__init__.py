"""How long I/O stands still when something breaks, and which timer decides."""
