"""Records of probes on disk, next to those of cells."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from harness.model import unread
from harness.model.errors import Unreadable, UsageError
from harness.model.escape import printable
from harness.model.probing import check
from harness.parse.files import read_bytes
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder, decode, open_runs

FOLDER = "probes"
_DECODER = msgspec.json.Decoder(ProbeRecord)


def save(folder: RunFolder, record: ProbeRecord) -> Path:
    """Write the record of one probe; it replaces an earlier one with the same key."""
    file = folder.path / FOLDER / f"{record.key}.json"
    folder.write(file, msgspec.json.encode(record))
    return file


def load(folder: RunFolder) -> list[ProbeRecord]:
    """All records of probes of a run, by name. What cannot be read is noted (``harness.model.unread``)."""
    return list(unread.each(folder.entries(FOLDER), _load))


def open_probes(paths: Iterable[Path | str]) -> list[ProbeRecord]:
    """The records of probes of all runs in ``paths``: run folders, or folders of those."""
    return [record for run in open_runs(paths) for record in load(run)]


def _load(file: Path) -> ProbeRecord:
    record = decode(_DECODER, "probe", file, read_bytes(file, follow=False))
    if record.probe.SENDS:  # a cipher probe has no parameters to check
        try:
            check(record.probe)
        except UsageError as error:
            raise Unreadable(f"{printable(str(file))}, probe: {error.message}", hint=error.hint) from error
    return record
