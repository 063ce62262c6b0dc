"""What the harness must leave as it was on the machine, and which processes something started there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COUNTING = ("valid_life_time", "preferred_life_time")
"""Fields of ip(8) that count down by themselves."""

OURS = ("/run/harness",)
"""The lock and its folder stay, by design."""


def below(process: int) -> list[int]:
    """All that a process started and that these did, each before its own."""
    found = [process]
    for each in found:
        with contextlib.suppress(OSError):  # it has ended
            texts = [file.read_text() for file in Path(f"/proc/{each}/task").glob("*/children")]
            found += [int(word) for text in texts for word in text.split()]
    return found[1:]


def snapshot() -> dict[str, Any]:
    """Network, kernel state and names of files, for comparison before and after."""
    return {
        "addresses": _without_counters(_ip("-j", "address")),
        "routes": _ip("-j", "route", "show", "table", "all"),
        "namespaces": _ip("netns", "list"),
        "xfrm states": _ip("xfrm", "state"),
        "xfrm policies": _ip("xfrm", "policy"),
        "mounts": Path("/proc/mounts").read_text(encoding="utf-8"),
        "modules": _names_of_modules(),
        "files": sorted(_names()),
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What has changed, by what it is; files as the names that came and went."""
    changed = {what: (before[what], after[what]) for what in before if before[what] != after[what]}
    if "files" in changed:
        came, gone = (set(b) - set(a) for a, b in (changed["files"], reversed(changed["files"])))
        changed["files"] = (sorted(gone), sorted(came))
    return changed


def _ip(*words: str) -> str:
    # The words of a failure count as well: a kernel without XFRM has to stay one without.
    done = subprocess.run(["ip", *words], capture_output=True, encoding="utf-8", check=False)
    return f"{done.stdout}{done.stderr}"


def _without_counters(text: str) -> Any:
    links = json.loads(text)
    for link in links:
        for address in link.get("addr_info", ()):
            for field in COUNTING:
                address.pop(field, None)
    return links


def _names_of_modules() -> list[str]:
    file = Path("/proc/modules")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return sorted(line.split()[0] for line in text.splitlines())


def _names() -> Iterator[str]:
    """All names below /etc and /run; those in folders that other programs keep writing to, one level deep."""
    for top in ("/etc", "/run"):
        for folder, folders, files in os.walk(top):
            yield from (path for name in folders + files if not _is_ours(path := f"{folder}/{name}"))
    for shallow in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/dev"), Path.home()):
        # Others at work on the machine make files there, too.
        yield from (str(path) for path in shallow.iterdir() if path.lstat().st_uid == os.geteuid())
    uml = Path.home() / ".uml"
    yield from map(str, uml.iterdir() if uml.is_dir() else ())


def _is_ours(path: str) -> bool:
    return any(path == ours or path.startswith(f"{ours}/") for ours in OURS)
