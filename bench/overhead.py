"""What a run does besides measuring: when fio begins, how long it measures, and which programs are started.

    python bench/overhead.py trace                         # a traced run of this clone
    python bench/overhead.py trace --of ../before --every  # of another clone, with every program
    python bench/overhead.py pairs ../before --pairs 5     # both in turn, on the same minutes of one machine
    python bench/overhead.py trace -- --link wired         # with other options of `harness run`

``trace`` runs `harness run` once, with a version of its inside that notes when each program is started and
how long it lives, and counts the processes of the lab's kernel (``processes`` of /proc/stat, which includes
what programs start themselves) and its page faults (/proc/vmstat). ``pairs`` runs both clones in turn,
without a trace, each with the Python of its ``.venv``, and prints medians, and the median of the ratios
within the pairs. Figures of a busy machine are of use only as ratios.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.model import Status
from harness.results.store import open_results

HERE = Path(__file__).resolve()
RUN = ("--link", "local", "--link", "wired", "--ipsec", "both", "--runtime", "1.5s", "--retries", "0")
WORKLOADS = ("--workload", "seq-read-256k", "--workload", "rand-read-4k", "--repeats", "3")
TRACE = "trace.jsonl"
SUMMARY = re.compile(r"fio began ([\d.]+) s after the start and measured for (\d+)% of the whole time")

STEPS = (
    "harness.runs.executor:prepare",
    "harness.runs.executor:mount_private",
    "harness.runs.cells:CellComposer._make_storage",
    "harness.runs.cells:CellComposer._start_sides",
    "harness.runs.cells:CellComposer.column",
    "harness.runs.cells:CellComposer._log_in",
    "harness.runs.cells:CellComposer._close_columns",
    "harness.runs.cells:CellComposer._measure",
    "harness.runs.columns:Columns.bring_up",
    "harness.runs.columns:Columns._close",
    "harness.runs.cells:CellComposer._probe",
    "harness.runs.measure:on_connected_luns",
    "harness.runs.measure:on_disk",
    "harness.observe.environment:describe",
    "harness.protection.proof:snapshot",
    "harness.protection.proof:collect",
    "harness.probes.echo:before_cell",
    "harness.runs.leftovers:tell",
)
"""Functions whose calls are noted; a clone that has not got one of them goes without."""


# In the lab


class Notes:
    """What is noted, one JSON object a line; ``at`` is in seconds since the lab's kernel began."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1, encoding="utf-8")

    def add(self, kind: str, **what: object) -> None:
        self._file.write(json.dumps({"kind": kind, "at": round(time.monotonic(), 4), **what}) + "\n")


def forks() -> int:
    found = re.search(r"^processes (\d+)", Path("/proc/stat").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) if found else 0


def faults() -> int:
    found = re.search(r"^pgfault (\d+)", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) if found else 0


def inside(argv: list[str]) -> int:
    """``harness.runs.executor`` with notes: ``run FOLDER JOURNAL``."""
    notes = Notes(Path(argv[1]) / TRACE)
    notes.add("python", forks=forks())
    run_inside: Any = importlib.import_module("harness.runs.executor")
    notes.add("imported", forks=forks())
    _note_programs(notes)
    _note_requests(notes)
    for name in STEPS:
        _note_calls(notes, name)
    of_events = run_inside.writer

    def writer(file: Path) -> Callable[[Any], None]:
        emit = of_events(file)

        def noted(event: Any) -> None:
            name = type(event).__name__
            said = getattr(event, "key", None) or getattr(event, "text", "")
            counts = {"forks": forks(), "faults": faults(), "cpu": time.process_time()}
            notes.add("event", name=name, said=said, **counts)
            emit(event)

        return noted

    run_inside.writer = writer
    return int(run_inside.main(argv))


def _note_programs(notes: Notes) -> None:
    real: Any = subprocess.Popen
    real_sleep = time.sleep

    class Noted(real):  # type: ignore[misc]
        def __init__(self, args: Any, *rest: Any, **named: Any) -> None:
            began = time.monotonic()
            super().__init__(args, *rest, **named)
            words = [str(word) for word in args]
            shown = " ".join(
                word if len(word) < 80 else word[:30].replace("\n", " ") + "..." for word in words
            )
            self._noted = False
            self._began = began
            self._shown = shown
            notes.add("start", argv=shown, pid=self.pid, took=round(time.monotonic() - began, 4))

        def _handle_exitstatus(self, *rest: Any, **named: Any) -> None:
            super()._handle_exitstatus(*rest, **named)
            if not self._noted:
                self._noted = True
                lived = round(time.monotonic() - self._began, 4)
                notes.add("end", argv=self._shown, pid=self.pid, lived=lived)

    def sleep(seconds: float) -> None:
        notes.add("sleep", s=seconds)
        real_sleep(seconds)

    subprocess.Popen = Noted  # type: ignore[misc]
    setattr(time, "sleep", sleep)  # noqa: B010 -- mypy knows its type


def _note_requests(notes: Notes) -> None:
    """What the agents of machines are asked, and how long each answer takes."""
    connections: Any = importlib.import_module("harness.hosts.remote").AgentConnection
    real = connections.ask

    @functools.wraps(real)
    def ask(self: Any, do: str, **named: Any) -> Any:
        began = time.monotonic()
        try:
            return real(self, do, **named)
        finally:
            argv = [str(word)[:60].replace("\n", " ") for word in named.get("argv", ())]
            took = round(time.monotonic() - began, 4)
            what = " ".join(argv) or str(named.get("entry", {}).get("what", ""))
            notes.add("ask", host=self.name, do=do, argv=what, took=took)

    connections.ask = ask


def _note_calls(notes: Notes, name: str) -> None:
    module, _, path = name.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        *parents, last = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        real = getattr(owner, last)
    except (ImportError, AttributeError):
        return

    @functools.wraps(real)
    def noted(*args: Any, **named: Any) -> Any:
        notes.add("enter", step=path)
        try:
            return real(*args, **named)
        finally:
            notes.add("leave", step=path)

    setattr(owner, last, noted)


# Outside


def traced(argv: list[str]) -> None:
    """`harness ARGV`, whose inside is this file's. It runs under the Python of the clone that is traced."""
    from harness.testbeds import entry_points

    entry_points.command = lambda _module, *words: [sys.executable, str(HERE), "--inside", *words]
    from harness.cli import main as cli

    sys.argv = ["harness", *argv]
    cli()


def verbose(clone: Path) -> list[str]:
    """The option with which `harness run` of a clone says when fio began and for how long it measured:
    earlier versions have none, and always say it."""
    places = [clone / "harness" / room / "console.py" for room in ("terminal", "cli")]
    reported = next(filter(Path.exists, places)).read_text(encoding="utf-8")
    return ["--verbose"] * ("--verbose" in reported)


def run(clone: Path, words: Sequence[str], results: Path, *, trace: bool) -> tuple[Path, dict[str, float]]:
    """One run of a clone; returns its folder and its figures."""
    python = clone / ".venv/bin/python"
    command = [str(python), str(HERE), "--traced"] if trace else [str(clone / ".venv/bin/harness")]
    before = set(results.iterdir()) if results.is_dir() else set()
    began = time.monotonic()
    done = subprocess.run(
        [*command, "run", *words, *verbose(clone), "--results", str(results)],
        check=False,
        capture_output=True,
        text=True,
    )
    took_s = time.monotonic() - began
    found = SUMMARY.search(done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"no figures from {clone}: {done.stdout[-500:]} {done.stderr[-2000:]}")
    (folder,) = set(results.iterdir()) - before
    figures = {"first fio, s": float(found[1]), "fio's share, %": float(found[2])}
    around = defaultdict(list)
    measured = [record for record in open_results([folder]) if record.fio_ns]
    took_s -= sum(record.fio_ns for record in measured) / 1e9
    figures["s of the whole run besides fio, a cell"] = took_s / len(measured)
    for record in measured:
        if record.status is Status.OK:
            column = record.column.link + ("+ESP" if record.column.protection else "")
            around[column].append((record.wall_ns - record.fio_ns) / 1e9)
    # The first cell of a column brings it up.
    figures |= {f"{column}, s besides fio": statistics.median(all_s) for column, all_s in around.items()}
    return folder, figures


def read(folder: Path) -> list[dict[str, Any]]:
    with (folder / TRACE).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def show(notes: list[dict[str, Any]], *, every: bool) -> None:
    """Print what happened between the notes of events."""
    lived = {note["pid"]: note["lived"] for note in notes if note["kind"] == "end"}
    inside_of: list[str] = []
    last = notes[0]["at"]
    for note in notes:
        kind, at = note["kind"], note["at"]
        pad = "  " * len(inside_of)
        if kind == "leave":
            inside_of.pop()
            pad = "  " * len(inside_of)
        match kind:
            case "start":
                words = f"{note['argv']}  [{lived.get(note['pid'], 0):.3f}]"
            case "ask":
                words = f"{note['host']}: {note['do']} {note['argv']}  [{note['took']:.3f}]"
            case "enter" | "leave":
                words = f"{'>' if kind == 'enter' else '<'} {note['step']}"
            case "event":
                words = (
                    f"=== {note['name']} {note['said']} (processes {note['forks']}, faults {note['faults']})"
                )
            case _:
                words = f"--- {kind} {note.get('s', '')}"
        if kind != "end" and (every or kind not in ("start", "sleep", "ask")):
            print(f"{at:8.3f} {at - last:+7.3f} {pad}{words}")
            last = at
        if kind == "enter":
            inside_of.append(note["step"])


def summary(notes: list[dict[str, Any]]) -> None:
    """Print the processes of each cell (of the kernel's, and those that the harness started itself)."""
    began: dict[str, Any] = {}
    started = 0
    rows = defaultdict(list)
    first = None
    for note in notes:
        if note["kind"] == "start":
            started += 1
        elif note["kind"] == "enter" and note["step"] == "on_disk":
            first = first or (note["at"], started)
        elif note["kind"] == "event" and note["name"] == "CellStarted":
            began = {**note, "started": started}
        elif note["kind"] == "event" and note["name"] == "CellEnded":
            column = note["said"].partition(".")[0]
            grown = [note[what] - began[what] for what in ("forks", "faults", "at")]
            rows[column].append((grown[0], started - began["started"], *grown[1:]))
    print("of each cell: processes, programs that the harness started, page faults, seconds")
    for column, cells in rows.items():
        for n, what in enumerate(("processes", "programs", "page faults", "seconds")):
            print(f"  {column} {what}: {', '.join(f'{cell[n]:.4g}' for cell in cells)}")
    if first is not None:
        print(f"the first fio: {first[0]:.2f} s after the kernel, after {first[1]} programs")


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The words before ``--``, and those after it."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("trace")
    one.add_argument("--of", type=Path, default=HERE.parents[1])
    one.add_argument("--every", action="store_true")
    two = kinds.add_parser("pairs")
    two.add_argument("before", type=Path)
    two.add_argument("--after", type=Path, default=HERE.parents[1])
    two.add_argument("--pairs", type=int, default=5)
    for kind in (one, two):
        kind.add_argument("--results", type=Path)
    own, words = _split(sys.argv[1:])
    asked = parser.parse_args(own)
    words = words or [*RUN, *WORKLOADS]
    with tempfile.TemporaryDirectory(prefix="overhead-") as made:
        results = asked.results or Path(made)
        if asked.kind == "trace":
            folder, figures = run(asked.of.resolve(), words, results, trace=True)
            notes = read(folder)
            show(notes, every=asked.every)
            summary(notes)
            print(figures)
            return
        pairs = []
        for number in range(asked.pairs):
            both = [asked.before.resolve(), asked.after.resolve()]
            turn = both if number % 2 == 0 else both[::-1]
            found = {clone: run(clone, words, results, trace=False)[1] for clone in turn}
            pairs.append([found[clone] for clone in both])
            print(f"pair {number + 1}: {pairs[-1]}", flush=True)
        print(f"{'':40} {'before':>8} {'after':>8} {'ratio':>8}")
        for name in pairs[0][0]:
            before, after = ([pair[n][name] for pair in pairs] for n in (0, 1))
            ratio = statistics.median(b / a for a, b in zip(before, after, strict=True))
            print(f"{name:40} {statistics.median(before):8.2f} {statistics.median(after):8.2f} {ratio:8.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside(sys.argv[2:]))
    if sys.argv[1:2] == ["--traced"]:
        traced(sys.argv[2:])
    else:
        main()
