"""What a disk of a profile (``profiles/disks/*.toml``) takes for one read at a time, in closed form.

The same that the modelled disks do (``harness/storage``): a test holds this to the program of the one with
moving parts. Writes are left out, as the profiles leave out write caches.
"""

from __future__ import annotations

import math

from harness.model import DiskProfile, Flash, MovingParts


def read_ns(
    disk: DiskProfile, block_bytes: int, *, is_random: bool, volume_bytes: int, elsewhere_ns: float = 0.0
) -> float:
    """The mean time from one read's begin to the next one's, if each spends ``elsewhere_ns`` elsewhere, one
    after the other. Only what a disk reads ahead of a sequential reader it reads in the meantime.

    ``volume_bytes`` is the size of the volume, which is at the beginning of the disk.
    """
    if disk.moving is not None:
        found = disk.moving
        if is_random:
            return elsewhere_ns + _placed_ns(found, volume_bytes) + _below_ns(found, block_bytes)
        later_ns = max(
            found.command_us * 1000, _below_ns(found, block_bytes) - _below_ns(found, found.read_ahead_bytes)
        )
        return max(elsewhere_ns + later_ns, _below_ns(found, block_bytes))
    return elsewhere_ns + (_chips_ns(disk.flash, block_bytes) if disk.flash is not None else 0.0)


def _chips_ns(flash: Flash, block_bytes: int) -> float:
    """A command of many pages is one for each page, and a chip does one at a time."""
    pages = math.ceil(block_bytes / flash.page_bytes)
    return math.ceil(pages / flash.pages_at_once) * flash.page_us * 1000


def _below_ns(disk: MovingParts, length_bytes: int) -> float:
    """How long so many bytes take to pass below the head."""
    return length_bytes / disk.rate_bytes_s * 1e9


def _placed_ns(disk: MovingParts, volume_bytes: int) -> float:
    """Until the first byte of a block at a random place is below the head: the command, the mean seek between
    two places of the volume, and half a turn.

    Of two places on the same track no seek is waited for; 8/15 is the mean square root of the distance of two
    random places, of which the farthest are 1 apart (``storage/programs/harddisk.py``).
    """
    turn_s = 60 / disk.rpm
    same_track = min(1.0, disk.rate_bytes_s * turn_s / volume_bytes)
    to_another = (1 - same_track) ** 2
    # The sum's mean over distances that are farther than a track: density 2 (1 - d), times the square root.
    way = 2 * ((2 / 3 - 2 / 5) - (2 / 3 * math.pow(same_track, 1.5) - 2 / 5 * math.pow(same_track, 2.5)))
    longest = 15 / 8 * math.sqrt(volume_bytes / disk.capacity_bytes)
    seek_us = disk.track_seek_us * to_another + (disk.average_seek_us - disk.track_seek_us) * longest * way
    return (disk.command_us + seek_us) * 1000 + turn_s / 2 * 1e9
