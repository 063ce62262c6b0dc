"""What a volume loses on iSCSI, over which link, with IPsec on, and which layer causes it.

Each folder is a room, and imports go one way between them: CONTRIBUTING.md has the map.
"""

__version__ = "0.1.1"
