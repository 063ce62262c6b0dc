"""Events: what a run writes is read back live, line by line, whole lines only."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.model import Status
from harness.results.events import (
    CellEnded,
    CellStarted,
    CellWithdrawn,
    Ended,
    Event,
    EventReader,
    Failed,
    Phase,
    writer,
)

ALL: list[Event] = [
    Phase("making and filling the disk"),
    CellStarted("local.seq-read-4k.r1", 1, 40),
    CellWithdrawn("wired+aes128gcm16.seq-read-4k.r1", "cleartext"),
    CellEnded("local.seq-read-4k.r1", Status.INVALID, "kernel warning: „x“\n", 1_500_000_000, 1.75e9),
    Failed("interrupted", None, 130),
    Ended(("VethPair was not undone: `ip link del` ended with status 1",)),
]


def test_every_event_comes_back_as_it_was(tmp_path: Path) -> None:
    emit = writer(tmp_path / "events.jsonl")
    reader = EventReader(tmp_path / "events.jsonl")
    for event in ALL:
        emit(event)
        assert reader.read() == [event]
    assert EventReader(tmp_path / "events.jsonl").read() == ALL


def test_each_event_is_one_line(tmp_path: Path) -> None:
    emit = writer(tmp_path / "events.jsonl")
    for event in ALL:
        emit(event)
    assert (tmp_path / "events.jsonl").read_bytes().count(b"\n") == len(ALL)


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
        assert reader.read() == [ALL[0]]
        assert reader.read() == []
        file.write_bytes(whole)
        assert reader.read() == [ALL[2]]


def test_before_the_first_event_there_is_none(tmp_path: Path) -> None:
    reader = EventReader(tmp_path / "events.jsonl")
    assert reader.read() == []
    writer(tmp_path / "events.jsonl")(ALL[0])
    assert reader.read() == [ALL[0]]


def test_a_reader_of_a_resumed_run_begins_where_the_first_ended(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    emit = writer(file)
    emit(ALL[0])
    reader = EventReader(file, start=file.stat().st_size)
    emit(ALL[1])
    assert reader.read() == [ALL[1]]


@pytest.mark.parametrize("line", [b"{}", b'{"event": "party"}', b"\x00"])
def test_a_whole_line_of_something_else_is_not_passed_over(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(line + b"\n")
    with pytest.raises(msgspec.DecodeError):
        EventReader(file).read()
