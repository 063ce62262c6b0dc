"""Curves over queue depth, block size, round trip and other axes, of which a part is measured."""
