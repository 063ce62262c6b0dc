"""Several initiators at once: totals, what is said of each, and that nobody waits for ever."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts import Daemon, NamespaceHost
from harness.hosts.runner import Completed
from harness.model import Io, Latency
from harness.model.errors import HostLost, RequirementError
from harness.parse.fio import FioJob, total
from harness.runs import distributed
from harness.runs.distributed import absence_warnings, run_distributed, start_warnings
from harness.runs.outcome import Done, InitiatorResult
from tests.unit.fakes import IdleDaemon
from tests.unit.storage.files import lines, scripts

FAST = [100] * 990 + [200] * 10
SLOW = [1000] * 50 + [9000] * 50
BEGUN = "PROBE START SERVER_START"
REFUSED = ("Bad option <nosuch=1>", "fio: job a dropped")


def measured(of_ns: Sequence[int], *, runtime_s: float = 1.0) -> Io:
    """What fio would tell of I/Os of 4 KiB and these latencies, without percentiles."""
    mean, stddev = statistics.mean(of_ns), statistics.stdev(of_ns)
    # Of one job: never to be seen in a total.
    percentiles: dict[str, Any] = {"p50_ns": 1.0, "p99_ns": 1.0, "p99_9_ns": 1.0}
    latency = Latency(mean_ns=mean, min_ns=min(of_ns), max_ns=max(of_ns), stddev_ns=stddev, **percentiles)
    return Io(bytes=4096 * len(of_ns), ios=len(of_ns), runtime_ns=int(runtime_s * 10**9), latency=latency)


def reader(latencies_ns: Sequence[int], **changes: Any) -> FioJob:
    bins = {value: latencies_ns.count(value) for value in set(latencies_ns)}
    job = FioJob(name="a", error=0, read=measured(latencies_ns), read_bins=bins, percentiles_of="lat")
    return msgspec.structs.replace(job, **changes)


def read_of(*jobs: FioJob) -> Io:
    """The total of what they read; nothing was written."""
    read, write = total(jobs)
    assert read is not None and write is None
    return read


def test_a_total_is_of_all_ios() -> None:
    read = read_of(reader(FAST), reader(SLOW, read=measured(SLOW, runtime_s=1.5)))
    assert (read.bytes, read.ios, read.runtime_ns) == (1100 * 4096, 1100, 1_500_000_000)
    latency, ranked = read.latency, sorted(FAST + SLOW)
    expected = [ranked[math.ceil(len(ranked) * q / 100) - 1] for q in (50, 99, 99.9)]
    assert [latency.p50_ns, latency.p99_ns, latency.p99_9_ns] == expected == [100, 9000, 9000]
    assert latency.mean_ns == pytest.approx(statistics.mean(ranked))
    assert latency.stddev_ns == pytest.approx(statistics.stdev(ranked))
    assert (latency.min_ns, latency.max_ns) == (100, 9000)
    writer = FioJob(name="a", write=measured(SLOW), write_bins={1000: 100}, percentiles_of="lat")
    # One job alone is its own total.
    assert total([reader(FAST), writer]) == (reader(FAST).read, writer.write)
    assert total([]) == (None, None)


def test_what_one_job_did_not_measure_a_total_does_not_have() -> None:
    for other in (reader(SLOW, read_bins={}), reader(SLOW, percentiles_of="clat")):
        latency = read_of(reader(FAST), other).latency
        found = (latency.p50_ns, latency.p99_ns, latency.p99_9_ns, latency.max_ns)
        assert found == (None, None, None, 9000), other
    unmeasured = msgspec.structs.replace(measured(SLOW), latency=Latency())
    read = read_of(reader(FAST), reader(SLOW, read=unmeasured, read_bins={}))
    assert (read.latency, read.ios) == (Latency(percentiles="per-job"), 1100)


def parts(*started_s: float | None) -> list[InitiatorResult]:
    job = reader(FAST)
    return [InitiatorResult(initiator=f"i{n}", job=job, started_unix_s=s) for n, s in enumerate(started_s)]


def test_jobs_that_begin_apart_or_not_at_all_are_warned_about() -> None:
    assert start_warnings(parts(100.0, 100.04, 100.02)) == ()
    assert start_warnings(parts(100.0, None)) == ()
    assert start_warnings([InitiatorResult(initiator="i0", reasons=["gone"])]) == ()
    (warning,) = start_warnings(parts(100.0, 99.75, 99.9))
    assert "i0 began 0.25 s after i1" in warning
    idle = InitiatorResult(initiator="i9", job=FioJob(name="a", invalid=("nothing",)))
    assert absence_warnings(parts(1.0, 1.0)) == absence_warnings([idle]) == ()
    (warning,) = absence_warnings([*parts(1.0), idle, InitiatorResult(initiator="i8")])
    assert warning == "i9, i8 stopped early, so the others measured partly without them"


@dataclass(frozen=True, eq=False)
class Reached(NamespaceHost):
    """A host whose fio servers are none."""

    folder: Path = field(kw_only=True)
    version: str = "fio-3.33"
    is_lost: bool = False
    stopped: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str], **_options: Any) -> Completed:
        if self.is_lost:
            raise HostLost("the host was lost in the middle of the run")
        return Completed(argv=tuple(argv), status=0, stdout=f"{self.version}\n", stderr="")

    @contextlib.contextmanager
    def daemon(self, argv: Sequence[str], **_options: Any) -> Iterator[Daemon]:
        yield IdleDaemon()
        self.stopped.append(argv[-1])
        (self.folder / "stopped").touch()

    @contextlib.contextmanager
    def reach(self, path: Path) -> Iterator[Path]:
        yield self.folder / path.name


def io(ios: int) -> dict[str, Any]:
    """A direction of a second with this many I/Os of 4 KiB, as fio tells it."""
    latency = {"min": 1, "max": 9, "mean": 5.0, "stddev": 1.0, "percentile": {"50.000000": 5}}
    counts = {"io_bytes": 4096 * ios, "bw_bytes": 4096 * ios, "iops": float(ios), "total_ios": ios}
    return {**counts, "runtime": 1000 if ios else 0, "lat_ns": {**latency, "bins": {"5": ios}}}


@dataclass
class Script:
    """What a fio in place of fio prints as client: ``lines`` at once, the rest and the JSON after a pause."""

    folder: Path
    lines: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    pause: str = "true"
    last_lines: list[str] = field(default_factory=list)
    then: str = "exit 0"

    def server(self, number: int) -> str:
        return str(self.folder / f"fio-{number}.sock")

    def heard(self, number: int, *messages: str) -> None:
        name = self.server(number)
        self.lines += [f"net      7     client: got cmd op {word} from {name} (pdu=8)" for word in messages]

    def said(self, number: int, *words: str) -> None:
        for line in words:
            self.heard(number, "TEXT")
            self.lines.append(f"<vm> {line}")

    def gone(self, number: int, *, late: bool = False) -> None:
        removed = f"net      7     client: removed <{self.server(number)}>"
        (self.last_lines if late else self.lines).append(removed)

    def measures(self, number: int, *, ios: int = 1000) -> None:
        """A server whose job comes to its end; with no I/O if ``ios`` is 0."""
        self.heard(number, "PROBE", "START", "SERVER_START", "TS", "STOP", "QUIT")
        self.gone(number)
        row = {"jobname": "a", "error": 0, "read": io(ios), "write": io(0), "hostname": self.server(number)}
        self.rows.append(row)

    def write(self) -> None:
        last = list(self.last_lines)
        if self.rows:
            everybody = {**self.rows[0], "jobname": "All clients"}
            article = {"fio version": "fio-3.33", "client_stats": [*self.rows, everybody]}
            last += ["", json.dumps(article, indent=1)]
        lines(self.folder, {"begin": "\n".join(self.lines), "end": "\n".join(last)})
        steps = ('[ "$1" = --version ] && exec echo fio-3.33', "cat begin", self.pause, "cat end", self.then)
        scripts(self.folder, {"fio": "\n".join((f"cd {self.folder}", *steps, ""))})


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Script(tmp_path)


def reached(script: Script, name: str = "i0", **facts: Any) -> Reached:
    return Reached(name=name, folder=script.folder, **facts)


def ran(script: Script, *hosts: Reached, timeout_s: float = 60.0) -> Done:
    script.write()
    jobs = [(host, "[a]\n") for host in hosts or (reached(script), reached(script, "i1"))]
    return run_distributed(jobs, folder=script.folder, timeout_s=timeout_s)


def test_each_part_has_its_own_job(script: Script) -> None:
    script.measures(1, ios=2000)
    script.measures(0, ios=1000)
    done = ran(script)
    read = read_of(*(part.job for part in done.parts if part.job))
    assert (read.ios, read.latency.p50_ns, done.warnings) == (3000, 5, [])
    found = [(part.initiator, part.job and part.job.read and part.job.read.ios) for part in done.parts]
    assert found == [("i0", 1000), ("i1", 2000)]
    assert all(not part.reasons and part.started_unix_s for part in done.parts), done.parts
    # What was asked and answered is kept.
    assert (script.folder / "i0.fio").read_text(encoding="utf-8") == "[a]\n"
    assert "client_stats" in (script.folder / "fio-client.txt").read_text(encoding="utf-8")


def reason_beside_a_good_one(script: Script, **facts: Any) -> str:
    """Of the first initiator, where the second one measured."""
    script.measures(1)
    first, second = ran(script, reached(script, **facts), reached(script, "i1")).parts
    assert second.job is not None and second.reasons == []
    assert first.job is None or first.job.read is None
    return "".join(first.reasons)


@pytest.mark.parametrize(
    ("heard", "said", "then", "is_lost", "reason"),
    [
        (BEGUN, (), "exit 1", False, "its fio server was killed while it ran"),
        (f"{BEGUN} STOP QUIT", (), "exit 0", False, "its fio job was killed while it ran"),
        ("PROBE", REFUSED, "exit 0", False, f"its fio did not accept the job: {' / '.join(REFUSED)}"),
        (BEGUN, (), "exit 0", True, "the host was lost in the middle of the run"),
    ],
)
def test_a_part_without_figures_says_why(
    script: Script, heard: str, said: tuple[str, ...], then: str, is_lost: bool, reason: str
) -> None:
    script.heard(0, *heard.split())
    script.said(0, *said)
    script.gone(0)
    script.then = then
    assert reason_beside_a_good_one(script, is_lost=is_lost) == reason


def test_a_job_without_io_has_the_words_of_its_server(script: Script) -> None:
    script.heard(0, "START")
    script.said(0, "a: (g=0): rw=read, bs=4k", "Starting 1 thread", "fio: file creation disallowed")
    script.measures(0, ios=0)
    assert reason_beside_a_good_one(script) == "its fio said: fio: file creation disallowed"


def test_two_versions_of_fio_and_a_missing_one_are_named(script: Script) -> None:
    script.gone(0)
    script.lines.append("<vm> fio: bad server cmd version 97")
    reason = reason_beside_a_good_one(script, version="fio-3.28")
    assert "fio-3.33 here, fio-3.28 on the i0" in reason
    # A missing one is named as well.
    script.then = "exit 127"
    with pytest.raises(RequirementError, match="fio"):
        ran(script)


def test_a_signal_at_one_server_is_not_the_others(script: Script) -> None:
    script.measures(0)
    script.said(0, "fio: terminating on signal 15")
    script.measures(1)
    first, second = (part.job for part in ran(script).parts)
    assert first is not None and any("terminating on signal" in problem for problem in first.invalid)
    assert second is not None and second.invalid == ()


def test_what_hangs_is_stopped_in_time_and_the_rest_kept(script: Script) -> None:
    hangs, good = reached(script), reached(script, "i1")
    script.heard(0, *BEGUN.split())
    script.measures(1)
    script.pause = "until [ -e stopped ]; do sleep 0.02; done"
    script.gone(0, late=True)
    done = ran(script, hangs, good, timeout_s=0.2)
    assert done.parts[0].reasons == ["its fio did not end within 0.2 s, and was stopped"]
    assert done.parts[1].job is not None and len(hangs.stopped) == len(good.stopped) == 1
    assert done.warnings == ["i0 stopped early, so the others measured partly without them"]


def test_a_client_that_never_ends_is_killed(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "CUT_S", 0.1)
    script.measures(0)
    script.heard(1, *BEGUN.split())
    script.pause = "exec sleep 60"
    killed = "fio's client ended with status -9 before it printed its results"
    for timeout_s in (0.2, 10.0):  # on a busy machine it may have said nothing so soon
        first, second = ran(script, timeout_s=timeout_s).parts
        assert second.reasons == [f"its fio did not end within {timeout_s:g} s, and was stopped"]
        if first.reasons == [killed]:
            break
    assert first.reasons == [killed]
