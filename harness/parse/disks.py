"""Profiles of modelled disks (``profiles/disks/*.toml``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.model import DiskProfile
from harness.model.units import shown
from harness.parse import profiles
from harness.parse.files import TomlFile, read_text
from harness.parse.ranges import Refuse


def load_disk(name: str, folders: Sequence[Path] | None = None) -> DiskProfile:
    """The disk profile of that name, or of a file ``NAME.toml``. UsageError if it is unknown or wrong.

    ``folders`` replaces ``search_folders("profiles", "disks")``.
    """
    if folders is None:
        folders = profiles.search_folders(*profiles.FOLDERS["disk"])
    path = Path(name) if name.endswith(".toml") else profiles.find("disk", name, folders, known=())
    file = TomlFile("disk", path, read_text(path, "disk"))
    profile = file.load_named(DiskProfile)
    check(profile, file.refuse)
    return profile


def check(profile: DiskProfile, refuse: Refuse) -> None:
    """Raise ``refuse``'s error for the first figure that no disk can have."""
    if profile.flash is not None and profile.moving is not None:
        raise refuse("moving", "expected flash or moving parts, found both", "remove one")
    for table in ("flash", "moving"):
        for key, value in msgspec.to_builtins(getattr(profile, table) or {}).items():
            # Written so that NaN, which compares false with everything, is also refused.
            if not 0 < value <= 10**15:
                raise refuse(
                    key,
                    f"expected more than 0, found {shown(str(value))}",
                    "check the unit: it is in the key's name",
                )
    if profile.flash is not None and profile.flash.page_bytes % 4096:
        # blk_queue_max_sectors() takes whole pages of memory.
        raise refuse("page_bytes", "expected a multiple of 4096", "use the next multiple")
