"""The lanes of the tests, which tox.ini has as environments: which of them CI runs, and what it says."""
