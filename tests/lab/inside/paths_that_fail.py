"""Paths that do not come up: what is said of them, in how long, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hosts import PRIVATE, NamespaceHost
from harness.hosts.journal import Journal
from harness.model.errors import CommandFailed
from harness.network import paths
from harness.network.links import Folders, LinkPath, LinkPlace
from harness.parse.profiles import load_link
from harness.runs import leftovers

TAG = "beef"
INITIATOR = NamespaceHost("initiator")


@contextlib.contextmanager
def coming_up(spec: str, index: int) -> Iterator[tuple[LinkPath, Path]]:
    """A path and the folder of its logs; nothing else is left of it, whether it comes up or not."""
    journal, logs = Journal(Path("/run/journal.jsonl")), Path(f"/run/logs-{index}")
    logs.mkdir()
    place = LinkPlace(journal, INITIATOR, load_link(spec), tag=TAG, index=index)
    try:
        with paths.bring_up(place, Folders(private=PRIVATE / str(index), logs=logs)) as path:
            yield path, logs
    finally:
        assert (journal.leaks, journal.open_entries(), leftovers.find(INITIATOR, TAG)) == ([], {}, [])


def refusal(spec: str, index: int) -> str:
    """Why a path does not come up."""
    began = time.monotonic()
    with pytest.raises(CommandFailed) as error, coming_up(spec, index):
        print(f"{spec} came up")
    print(f"{spec}, after {time.monotonic() - began:.0f} s: {error.value}")
    return error.value.message
