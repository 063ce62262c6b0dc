"""Events: what a run writes is read back live, line by line, whole lines only."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.model import Status
from harness.results import events
from harness.results.events import EventReader, writer

ALL: list[events.Event] = [
    events.Phase("making and filling the disk"),
    events.CellStarted("local.seq-read-4k.r1", 1, 40),
    events.CellWithdrawn("wired+aes128gcm16.seq-read-4k.r1", "cleartext"),
    events.CellEnded("local.seq-read-4k.r1", Status.INVALID, "kernel warning: „x“\n", 1_500_000_000, 1.75e9),
    events.Failed("interrupted", None, 130),
    events.Ended(("VethPair was not undone: `ip link del` ended with status 1",)),
]


def test_every_event_is_one_line_and_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    reader = EventReader(file)
    assert reader.read() == [], "before the first event there is none"
    emit = writer(file)
    for number, event in enumerate(ALL, 1):
        emit(event)
        assert reader.read() == [event]
        assert file.read_bytes().count(b"\n") == number
    assert EventReader(file).read() == ALL


def test_a_line_that_is_not_whole_is_left_for_the_next_read_wherever_it_was_cut(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    emit = writer(file)
    emit(ALL[0])
    begin = file.stat().st_size
    emit(ALL[2])
    whole = file.read_bytes()
    for length in range(begin, len(whole)):
        file.write_bytes(whole[:length])
        reader = EventReader(file)
        assert reader.read() == [ALL[0]] and reader.read() == []
        file.write_bytes(whole)
        assert reader.read() == [ALL[2]]
    # That of a resumed run begins where the first ended.
    assert EventReader(file, start=begin).read() == [ALL[2]]
    # A whole line of something else is not passed over.
    for line in (b"{}", b'{"event": "party"}', b"\x00"):
        file.write_bytes(line + b"\n")
        with pytest.raises(msgspec.DecodeError):
            EventReader(file).read()
