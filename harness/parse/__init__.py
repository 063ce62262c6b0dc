"""Text in, frozen types out, and ``UsageError`` for the rest: what tools print, and what users write."""
