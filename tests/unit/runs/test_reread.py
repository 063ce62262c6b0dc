"""The re-read test is made once in a run, and its samples are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts import Host, NamespaceHost
from harness.model import Clock
from harness.model.errors import CommandFailed
from harness.model.reread import Samples, Sign, Suspicion
from harness.results.events import Event, Phase
from harness.runs import reread
from harness.storage import reread as storage_reread
from tests import flat
from tests.unit.results_folder import made_plan

HOST = NamespaceHost("initiator")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is asked for; the volume is half empty."""
    found = []

    def sample(_host: Host, path: str, **more: Any) -> Samples:
        found.append(more)
        if path == "/gone":
            raise CommandFailed("it is gone")
        return Samples(block_bytes=512, blocks=2, zeros=1)

    monkeypatch.setattr(storage_reread, "sample", sample)
    return found


def test_a_resumed_run_keeps_what_wpre_existing_before_its_first_cell(
    tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    events: list[Event] = []
    plan = made_plan()
    found = [reread.of_volume(HOST, "/dev/sda", plan, tmp_path, events.append) for _ in range(2)]
    assert found[0] == found[1] and found[0].signs == (Sign.ZEROS,)
    assert found[0].region_bytes == plan.storage.backing.size_bytes == asked[0]["region_bytes"]
    assert len(asked) == len(events) == 1
    (tmp_path / reread.SAMPLES).write_bytes(b"{")
    assert reread.of_volume(HOST, "/dev/sda", plan, tmp_path, events.append) == found[0] and len(asked) == 2


def test_each_run_reads_other_blocks_and_virtual_time_repeats(
    tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    for clock in Clock:
        for run_id in ("one", "two"):
            plan = flat.changed(made_plan(), run_id=run_id, clock=clock)
            (tmp_path / reread.SAMPLES).unlink(missing_ok=True)
            reread.of_volume(HOST, "/dev/sda", plan, tmp_path, lambda _: None)
        assert (asked[-2]["seed"] == asked[-1]["seed"]) is (clock is Clock.VIRTUAL), clock


def test_a_disk_that_cannot_be_sampled_or_answers_no_command_is_measured_all_the_same(
    tmp_path: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Event] = []
    found = reread.of_volume(HOST, "/gone", made_plan(), tmp_path, events.append)
    assert found.verdict is Suspicion.CANNOT_TELL and Phase("it is gone") in events
    assert len(asked) == 1 and not (tmp_path / reread.SAMPLES).exists()
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found

    def commands(_host: Host, path: str) -> None:
        raise CommandFailed(f"{path} is gone")

    monkeypatch.setattr(storage_reread, "commands", commands)
    assert reread.of_commands(HOST, "/gone") is None
