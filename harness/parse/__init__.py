"""Readers of what measuring tools print: text in, frozen types out, and ``UsageError`` for the rest."""
