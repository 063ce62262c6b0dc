"""Published measurements, repeated: what they asked, and what the harness measures of it."""
