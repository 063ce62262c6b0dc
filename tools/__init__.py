"""Scripts of the project that are not a part of the harness."""
