"""Files on another machine's file system: their column, their answer, and what is said of caches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness.analysis.limit import Limit
from harness.explain import explain
from harness.explain.evidence import MOUNTED
from harness.model import AttachedVolume, Backing, BackingKind, Job, Machines, Plan, Record, TestbedKind
from harness.model.telemetry import ProcessorUse, Telemetry
from harness.planning import duration
from harness.report.conclusion import answers
from harness.table import build
from tests import flat
from tests.unit.explain.test_explain import measured

TITLE = "/mnt/nas/bench.img (nfs4 of nas.lan:/export, vers=4.2, rsize=1048576, hard)"
VOLUME = AttachedVolume(path="/mnt/nas/bench.img", title=TITLE, filesystem="nfs")
USE = ProcessorUse(hosts=("initiator",), wall_ns=11 * 10**8, cores=1, busiest_core=0.05)


def plan(*jobs: Job, **changes: Any) -> Plan:
    whole: dict[str, Any] = {"run_id": "r1", "testbed": TestbedKind.HOST, "columns": (VOLUME.column,)}
    whole |= {"jobs": jobs or (job("seq-read-256k"),), "repeats": 3, "seed": 1, "links": {}, "proposals": {}}
    whole |= {"backing": Backing(kind=BackingKind.FILE, size_bytes=1 << 30), "volume": VOLUME}
    return flat.plan(**whole | {"machines": Machines(target=None, initiators=("local",))} | changes)


def job(name: str, **options: str) -> Job:
    return Job(name=name, options=(("rw", "read"), ("bs", "256k"), *options.items()))


def reads(**changes: Any) -> list[Record]:
    """256K over NFS, each in 10 ms: 26.2 MB/s."""
    facts: dict[str, Any] = {"transport": None, "session": {}, "link_title": TITLE, "fio_ns": 10**9}
    facts |= {"testbed": TestbedKind.HOST, "telemetry": Telemetry(processors=(USE,))}
    return measured("nfs", "off", 10_000, **facts | changes)


def test_its_column_is_named_by_its_kind_and_titled_by_its_server() -> None:
    (column,) = build(reads(), plans={"r1": plan()}).columns
    assert column.label == "nfs" and column.heading[1:] == (TITLE, "", "")


def test_it_is_answered_for_as_a_link_is_and_no_disk_is_blamed() -> None:
    plans = {"r1": plan()}
    cells = explain(reads(), plans)
    (found,) = answers(build(reads(), plans=plans), cells)
    (loss,) = found.losses
    assert found.column.heading[1] == TITLE and loss.mb_s == pytest.approx([26.16], rel=1e-3)
    assert found.proved == "Its network path is not proven."
    (cell,) = cells
    assert cell.verdict.limited_by is Limit.UNKNOWN and MOUNTED in cell.evidence.missing
    assert not any("plan is missing" in words for words in cell.evidence.missing)
    # A volume of the machine's own still is one.
    local = [flat.changed(each, link="local") for each in reads()]
    assert [each.verdict.limited_by for each in explain(local, plans)] == [Limit.DEVICE]


@pytest.mark.parametrize("option", [{"direct": "0"}, {"buffered": "1"}])
def test_a_note_says_whose_caches_may_answer(option: dict[str, str]) -> None:
    def note(*jobs: Job, records: list[Record]) -> list[str]:
        notes = build(records, plans={"r1": plan(*jobs)}).notes
        return [each for each in notes if "a file of another machine" in each]

    (past,) = note(job("seq-read-256k", direct="1"), records=reads())
    assert past.startswith(
        "nfs: a file of another machine, opened with O_DIRECT (past this machine's page cache)"
    )
    assert "page cache may answer" not in past and "The server's memory may answer reads" in past
    (cached,) = note(job("seq-read-256k", **option), records=reads())
    assert "but for seq-read-256k, which this machine's page cache may answer" in cached
    assert note(records=[flat.changed(each, link="local") for each in reads()]) == []


def test_nothing_is_brought_up_for_it() -> None:
    nfs, local = (plan(columns=(msgspec.structs.replace(VOLUME.column, link=n),)) for n in ("nfs", "local"))
    assert duration.run_s(nfs) == duration.run_s(local)
