"""802.11 over radios that the kernel simulates."""
