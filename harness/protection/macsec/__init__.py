"""MACsec, with static keys or by MKA."""
