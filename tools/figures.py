#!/usr/bin/env python3
"""The figures of the docs: measured, stored, printed and compared.

    python tools/figures.py                      # exits 1 if a page or picture differs from docs/figures/
    python tools/figures.py --write              # prints and draws all of it anew
    python tools/figures.py --measure [NAME...]  # measures all, or these; stores; says how long each took

``docs/figures/NAME/`` is the folder of a run, without what nothing here reads. A page has blocks and figures
between two comments, which no reader sees:

    <!-- figures: table make-run --metric p99 -->
    (what the command prints)
    <!-- end -->

The first word is a command of the harness or one of ``PRINTERS``; a word that is a name in docs/figures/
stands for its folder. ``| lines A-B`` keeps those lines, from 1.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

import harness
from harness.analysis import disturbance, stats
from harness.cli import app
from harness.explain import curves
from harness.model import Record, transport_title
from harness.model.errors import HarnessError
from harness.model.lines import wrapped
from harness.model.units import format_duration
from harness.parse import references
from harness.probes.emulation import profile_ns
from harness.report.picture import with_text
from harness.results.measured import Measured
from harness.results.store import RunFolder
from tools import notebook, scores

ROOT = Path(__file__).parents[1]
FIGURES = "docs/figures"
PICTURES = "docs/pictures"
MEASURED = "measured.json"
"""In a stored run's folder: the command, the commit, the time that it took, and what the run said last."""

_READS = ("--profile", f"{FIGURES}/reads.fio", "--link", "wired:unshaped", "--repeats", "3")
_CIPHERS = (*_READS, *("--protect", "off", "--protect", "aes128gcm16", "--protect", "aes128gcm16-gso"))
_PROTECTIONS = (
    *("--link", "wired", "--link", "wifi", "--transport", "iscsi", "--transport", "nvme-tcp"),
    *("--protect", "off", "--protect", "aes128gcm16", "--protect", "wireguard", "--protect", "macsec"),
    *("--workload", "seq-read-256k", "--workload", "rand-read-4k"),
)
_BASELINES = (
    *("--link", "local", "--link", "wired"),
    *("--ipsec", "off", "--ipsec", "null-sha256", "--ipsec", "on"),
)
_4K = ("--workload", "rand-read-4k")
_256K = ("--workload", "seq-read-256k")
_OVER_HOPS = (
    *("run", "--virtual-time", "--disk", "ram", "--repeats", "1", "--runtime", "0.1s", "--size", "16M"),
    *("--ipsec", "off", *_4K),
)
_TO_A_CONTROLLER = ("--link", "openflow:controller", "--link", "openflow:controller=fast-ethernet")

RUNS: Mapping[str, tuple[str, ...]] = {
    # What `make run` does on a machine where the custom kernel is not built.
    "make-run": ("run", "--lab-kernel", "debian"),
    "generic": (
        *("run", "--lab-kernel", "debian", "--cipher-driver", "generic"),
        *("--link", "wired", "--ipsec", "both", *_256K),
    ),
    "protections": ("run", "--lab-kernel", "custom", *_PROTECTIONS, "--repeats", "2"),
    "ciphers": ("run", "--lab-kernel", "custom", *_CIPHERS),
    "ciphers-generic": ("run", "--lab-kernel", "custom", *_CIPHERS, "--cipher-driver", "generic"),
    "ladder": ("run", "--lab-kernel", "custom", *_BASELINES, *_256K, *_4K),
    "emulation": (
        *("run", "--lab-kernel", "custom", "--link", "wired", "--link", "10g", "--link", "wifi"),
        *("--link", "wired:unshaped", "--ipsec", "off", *_4K),
    ),
    "pppoe": ("probe", "--profile", "pppoe"),
    "openflow": ("probe", "--profile", "openflow", "--duration", "3s"),
    "openflow-tenth": ("probe", "--profile", "openflow-tenth"),
    "packet-rate": ("probe", "--profile", "packet-rate"),
    "switches": ("probe", "--profile", "switches", "--count", "5000", "--repeats", "3"),
    # In virtual time: the same on every machine, as busy as it may be.
    "protections-virtual": (
        *("run", "--virtual-time", "--disk", "ram", *_PROTECTIONS, "--repeats", "1", "--runtime", "1s"),
    ),
    "iscsi-ipsec-virtual": (
        *("run", "--virtual-time", "--disk", "hdd-7200", "--repeats", "1", "--runtime", "1s"),
    ),
    "openflow-virtual": ("probe", "--virtual-time", "--profile", "openflow", "--duration", "10s"),
    "switches-virtual": (
        *("probe", "--virtual-time", "--profile", "switches", "--count", "200", "--repeats", "1"),
    ),
    "scale-virtual": (
        *("run", "--virtual-time", "--lab-initiators", "32", "--link", "wired", "--transport", "nvme-tcp"),
        *("--ipsec", "both", *_4K, "--size", "16M", "--runtime", "0.2s", "--repeats", "1"),
    ),
    "hops-virtual": (
        *(*_OVER_HOPS, "--link", "switched:0", "--link", "switched:1", "--link", "switched:2"),
        *("--link", "switched:3", "--link", "switched:4"),
    ),
    "openflow-hops": (*_OVER_HOPS, "--link", "openflow:flows", *_TO_A_CONTROLLER),
    "sweep-virtual": (
        *("sweep", "--lab-kernel", "custom", "--virtual-time"),
        *("--over", "depth=1..64", "--over", "block=4K..1M"),
        *("--link", "wired", "--link", "wired:rtt=5ms", "--protect", "off", "--protect", "aes128gcm16"),
    ),
}
"""What is measured under each name, in this order: words behind `harness`."""

KEPT = {"sweep-virtual": "rand-write"}
"""Of what workloads the cells are stored, where it is not all of them: sixteen surfaces fill no page."""

DRAWN = dict.fromkeys(
    ("answer", "loss", "bars", "waterfall", "matrix", "percentiles", "roofline"), "make-run"
) | dict.fromkeys(("curves", "response", "heat-map"), "sweep-virtual")
"""The pictures, each with its run. One of them needs what fio printed, which is stored of make-run alone."""

WIDE = 118
"""Characters of a line of a block; tables may be wider."""

PAGE_PX = (1200, 800)
PAGES = ("README.md", "docs/**/*.md")

BLOCK = re.compile(r"<!-- figures: (?P<asked>[^\n]*?) -->(?P<told>.*?)<!-- end -->", re.DOTALL)
_LINES = re.compile(r"^(?P<asked>.*?) \| lines (?P<first>\d+)-(?P<last>\d+)$")
_SAID = re.compile(r"^(?:\d+ (?:cells|probes) \(|fio began|\d+ of \d+ \w+ disturbed)")
_UNREAD = ("job options", "trim", "latency_ns", "latency_us", "latency_ms", "percentile")


class Wrong(Exception):
    """A sentence for whoever wrote the marker."""


# Printing


def folder(name: str) -> Path:
    return ROOT / FIGURES / name


def measured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(name) / MEASURED).read_bytes())
    return found


def mb_s(name: str) -> dict[tuple[str, str], tuple[float, bool]]:
    """By column and workload: the median of the repeats that count, in MB/s, and whether it does count.

    Where all repeats are disturbed, it is the median of all.
    """
    cells: dict[tuple[str, str], list[Record]] = {}
    for record in RunFolder(folder(name)).load_records():
        cells.setdefault((record.column.label, record.workload.name), []).append(record)
    found = {}
    for cell, records in cells.items():
        quiet = disturbance.quiet(records)
        moved = [io.bytes_per_s / 1e6 for one in quiet or records if (io := one.read or one.write)]
        if moved:
            found[cell] = stats.median(moved), bool(quiet)
    return found


def value(name: str, column: str, workload: str) -> str:
    """One figure, in MB/s, of three digits: for a sentence."""
    return _shown(*_of(mb_s(name), column, workload))


def command(*names: str) -> str:
    """What was typed to measure these."""
    lines: list[str] = []
    for name in names:
        # An option and what it is given stay together.
        together = re.sub(r" (?!--)", "\N{NO-BREAK SPACE}", measured(name)["command"])
        lines += [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped(together, WIDE, "  ")]
    return "\n".join(lines)


def hops(name: str) -> str:
    """Links, one read of 4K each, in us, and what that is in MB/s."""
    lines = ["| link | one read, us | MB/s |", "|---|---:|---:|"]
    plan = RunFolder(folder(name)).load_plan()
    for column in plan.columns:
        figure, _ = _of(mb_s(name), column.label, "rand-read-4k")
        lines.append(
            f"| `{column.label}` | {_io_us(name, column.label, 'rand-read-4k'):.2f} | {figure:.1f} |"
        )
    return "\n".join(lines)


def depths(*names: str) -> str:
    """MB/s of reads, one / eight at a time: rows of protections and sizes, a column for each name."""
    found = [mb_s(name) for name in names]
    lines = [f"| MB/s, one / eight at a time | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for size in ("256k", "4k"):
        for column in RunFolder(folder(names[0])).load_plan().columns:
            of = [
                " / ".join(_shown(*_of(figures, column.label, f"{size}-depth{depth}")) for depth in (1, 8))
                for figures in found
            ]
            what = "+".join(column.protection) or "unprotected"
            lines.append(f"| `{what}`, {size.upper()} | {' | '.join(of)} |")
    return "\n".join(lines)


def losses(name: str) -> str:
    """By how much protected columns are slower than the same link and transport without: from, to."""
    found, parts = mb_s(name), []
    for record in RunFolder(folder(name)).load_records():
        plain = record.column.bare.label
        if record.column.protection and (plain, record.workload.name) in found:
            these, those = (found[label, record.workload.name][0] for label in (record.column.label, plain))
            parts.append(100 * (1 - these / those))
    return f"{min(parts):.0f} to {max(parts):.0f} %"


def sentences(name: str) -> str:
    """What the curves of a run say."""
    said = curves.sentences(Measured.read([folder(name)]).curves)
    return "\n".join(line for each in said for line in wrapped(each, WIDE, "  "))


def protections(measured_name: str, virtual_name: str) -> str:
    """Measured / in virtual time: rows of transport, link and workload, a column for each protection."""
    real, virtual = mb_s(measured_name), mb_s(virtual_name)
    plan = RunFolder(folder(measured_name)).load_plan()
    titles = dict.fromkeys(column.title or "none" for column in plan.columns)
    lines = [
        f"{'':24}" + "".join(f"  {title:>17}" for title in titles),
        "  ".join(["-" * 24, *["-" * 17] * len(titles)]),
    ]
    for transport, link in dict.fromkeys((column.transport or "", column.link) for column in plan.columns):
        for workload in plan.jobs:
            size = workload.name.rpartition("-")[2].upper()
            row = f"{transport_title(transport):8}  {link:6}{size:>8}"
            for title in titles:
                column = next(
                    one.label
                    for one in plan.columns
                    if (one.transport, one.link, one.title or "none") == (transport, link, title)
                )
                figure, is_quiet = _of(real, column, workload.name)
                shown = (
                    f"{figure:.2f}{'' if is_quiet else ' !'} / {_of(virtual, column, workload.name)[0]:6.2f}"
                )
                row += f"  {shown:>17}"
            lines.append(row.rstrip())
    return "\n".join(lines)


def matrix(name: str, reference: str) -> str:
    """MB/s of a run / as an article published them."""
    published, found = references.load_reference(reference), mb_s(name)
    heads = [f"{one.title}, IPsec" if one.protection else one.title for one in published.columns]
    lines = [f"| MB/s | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for workload, values in published.rows.items():
        cells = []
        for column, figure in zip(published.columns, values, strict=True):
            # The article does not say which proposal it was.
            label = column.link + ("+aes128gcm16" if column.protection else "")
            cells.append(f"{_of(found, label, workload)[0]:.2f} / {figure:.2f}")
        lines.append(f"| `{workload}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def emulation(name: str) -> str:
    """What a link's emulation adds: the calibration of a round trip, and what 4K reads took longer than over
    an unshaped link, without what the profile says; in us."""
    run = RunFolder(folder(name))
    plan, workload = run.load_plan(), "rand-read-4k"
    unshaped = _io_us(name, "wired-unshaped", workload)
    lines = ["| link | calibration, us | reads of 4K, us |", "|---|---:|---:|"]
    calibrations: dict[str, float] = {}
    for record in run.load_records():
        if record.telemetry is not None and (ns := record.telemetry.emulation_round_trip_ns) is not None:
            calibrations[record.column.link] = min(ns / 1e3, calibrations.get(record.column.link, ns / 1e3))
    for link in plan.columns:
        if link.link not in calibrations or plan.links[link.link].rate_bit_s is None:
            continue
        longer = _io_us(name, link.label, workload) - unshaped - profile_ns(plan.links[link.link]) / 1e3
        lines.append(f"| `{link.link}` | {calibrations[link.link]:.0f} | {longer:.0f} |")
    return "\n".join(lines)


def runs() -> str:
    """What each name is; ``measured.json`` has the processor and the time that it took, too."""
    lines = ["| name | command | commit |", "|---|---|---|"]
    for name in RUNS:
        about = measured(name)
        commit = about["harness"].split(", ")[-1]
        lines.append(f"| `{name}` | `{about['command']}` | {commit} |")
    return "\n".join(lines)


PRINTERS: Mapping[str, Callable[..., str]] = {
    "command": command,
    "depths": depths,
    "emulation": emulation,
    "hops": hops,
    "losses": losses,
    "matrix": matrix,
    "protections": protections,
    "runs": runs,
    "score": scores.printed,
    "sentences": sentences,
    "value": value,
}
"""What no command of the harness prints."""


def _of(
    found: Mapping[tuple[str, str], tuple[float, bool]], column: str, workload: str
) -> tuple[float, bool]:
    if (column, workload) not in found:
        known = ", ".join(" ".join(cell) for cell in found)
        raise Wrong(f"expected a cell, found {column} {workload}; there are {known}")
    return found[column, workload]


def _io_us(name: str, column: str, workload: str) -> float:
    """How long one I/O took: the mean of each repeat, and of these the median."""
    records = RunFolder(folder(name)).load_records()
    records = [one for one in records if (one.column.label, one.workload.name) == (column, workload)]
    ios = [io for one in disturbance.quiet(records) or records if (io := one.read or one.write)]
    means = [io.latency.mean_ns / 1e3 for io in ios if io.latency.mean_ns is not None]
    if not means:
        raise Wrong(f"expected latencies of {column} {workload} in {name}, found none")
    return stats.median(means)


def _shown(figure: float, is_quiet: bool) -> str:
    """Three digits, with a mark if the figure does not count."""
    digits = 0 if figure >= 100 else 1 if figure >= 10 else 2
    return f"{figure:.{digits}f}{'' if is_quiet else ' !'}"


def harness_prints(words: Sequence[str]) -> str:
    """What `harness WORDS` prints where its output is no terminal; names are folders of docs/figures/."""
    # What stands behind an option is the name of something else.
    words = [
        f"{FIGURES}/{word}" if word in RUNS and not before.startswith("--") else word
        for before, word in zip(("", *words), words, strict=False)
    ]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        command: Any = typer.main.get_command(app)
        try:
            command.main(list(words), prog_name="harness")
        except SystemExit as ended:
            if ended.code:
                raise Wrong(f"harness {shlex.join(words)}: {err.getvalue().strip()}") from ended
        except HarnessError as error:
            raise Wrong(f"harness {shlex.join(words)}: {error}") from error
    lines = (line.rstrip() for line in out.getvalue().rstrip().splitlines())
    return "\n".join(
        part for line in lines for part in (wrapped(line, WIDE, "  ") if _is_prose(line) else [line])
    )


def _is_prose(line: str) -> bool:
    """Whether a line is a sentence that is too long, and no row of a table."""
    return len(line) > WIDE and "  " not in line and not line.startswith("|")


def printed(asked: str) -> str:
    """What a marker asks for. ``Wrong`` if it cannot be had."""
    part = _LINES.match(asked)
    name, *words = shlex.split(part["asked"] if part else asked)
    try:
        reported = PRINTERS[name](*words) if name in PRINTERS else harness_prints([name, *words])
    except (TypeError, ValueError, FileNotFoundError, HarnessError) as error:
        raise Wrong(str(error)) from error
    if part is None:
        return reported
    lines, first, last = reported.splitlines(), int(part["first"]), int(part["last"])
    if not 1 <= first <= last <= len(lines):
        raise Wrong(f"expected lines 1 to {len(lines)}, found {first} to {last}")
    return "\n".join(lines[first - 1 : last])


def page_with(page: str, tell: Callable[[str], None]) -> str:
    """The text of a page with all that it asks for printed anew; ``tell`` hears each that differs, and each
    that cannot be printed, which stays as it is."""

    def anew(block: re.Match[str]) -> str:
        asked, reported = block["asked"], block["told"]
        try:
            text = printed(asked)
        except Wrong as error:
            tell(f"{asked}: {error}")
            return block[0]
        is_inline = "\n" not in reported
        if is_inline and page[: block.start()].rpartition("\n")[2].strip() == "":
            # CommonMark would end the paragraph there.
            tell(f"{asked}: a marker within a sentence may not begin a line")
            return block[0]
        if is_inline and "\n" in text:
            tell(f"{asked}: this is more than a line, so its comments need lines of their own")
            return block[0]
        if not is_inline:
            is_markdown = text.startswith("|")
            text = "\n".join(line if is_markdown or not line else f"    {line}" for line in text.splitlines())
            text = f"\n\n{text}\n\n"
        if text != reported:
            tell(f"{asked}: the page says something else")
        return block[0].replace(f"-->{reported}<!--", f"-->{text}<!--")

    return BLOCK.sub(anew, page)


def pages() -> list[Path]:
    return sorted({file for pattern in PAGES for file in ROOT.glob(pattern)})


def picture(kind: str) -> str:
    """The SVG."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, f"{kind}.svg")
        harness_prints(["plot", kind, DRAWN[kind], "-o", str(file)])
        return file.read_text(encoding="utf-8")


def page_picture(drawn: bytes) -> bytes:
    """The top of the report of make-run as a PNG, by Chromium; ``drawn`` itself, if it is of the same page.

    The metadata name the run, and the SHA-256 of the page.
    """
    with tempfile.TemporaryDirectory() as scratch:
        page, file = Path(scratch, "report.html"), Path(scratch, "report.png")
        harness_prints(["report", "make-run", "-o", str(page)])
        source = f"{_run_shown()} {hashlib.sha256(page.read_bytes()).hexdigest()}"
        if shows(drawn, source):
            return drawn
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        words += [f"--window-size={PAGE_PX[0]},{PAGE_PX[1]}", f"--user-data-dir={scratch}/chromium"]
        try:
            subprocess.run(
                ["chromium", *words, f"--screenshot={file}", page.as_uri()],
                capture_output=True,
                check=True,
                timeout=120,
            )
        except FileNotFoundError as error:
            raise Wrong("report.png needs chromium: apt install chromium") from error
        return with_text(file.read_bytes(), {"Source": source})


def shows(png: bytes, source: str) -> bool:
    """Whether ``page_picture`` made it of this: a run, or a page of a run."""
    return b"iTXtSource" + bytes(5) + source.encode() in png


def _run_shown() -> str:
    return RunFolder(folder("make-run")).run_id


def differences(*, write: bool = False) -> list[str]:
    """What of the docs is not as docs/figures/ gives it; with ``write`` it is then."""
    found: list[str] = []
    for page in pages():
        name, before = page.relative_to(ROOT), page.read_text(encoding="utf-8")
        after = page_with(before, lambda reported, name=name: found.append(f"{name}: {reported}"))  # type: ignore[misc]
        if write and after != before:
            page.write_text(after, encoding="utf-8")
    for kind in DRAWN:
        file = ROOT / PICTURES / f"{kind}.svg"
        if (drawn := picture(kind)) != file.read_text(encoding="utf-8"):
            found.append(f"{file.relative_to(ROOT)}: the picture is another")
            if write:
                file.write_text(drawn, encoding="utf-8")
    report = ROOT / PICTURES / "report.png"
    if write:
        report.write_bytes(page_picture(report.read_bytes()))
    elif not shows(report.read_bytes(), _run_shown()):
        found.append(f"{report.relative_to(ROOT)}: the picture is of another run")
    stored = notebook.load()
    if notebook.printed(executed := notebook.executed(stored)) != notebook.printed(stored):
        found.append(f"{notebook.FILE.relative_to(ROOT)}: its cells print something else")
        if write:
            notebook.save(executed)
    return found


# Measuring


def measure(name: str, also: Sequence[str] = ()) -> float:
    """Measure ``name`` and store it; returns how long that took, in s. ``also`` are more options."""
    words = [*RUNS[name], *also]
    scratch = ROOT / "results" / "figures" / name
    shutil.rmtree(scratch, ignore_errors=True)
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words, "--verbose", "--results", str(scratch.relative_to(ROOT))],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    took_s = time.monotonic() - begun
    lines = done.stderr.splitlines()
    reported = [line for line in lines if _SAID.match(line)]
    found = [one for one in scratch.glob("*/") if RunFolder.is_at(one)]
    if done.returncode or len(found) != 1:
        raise Wrong(f"{name}: harness {shlex.join(words)} exits with {done.returncode}: {lines[-5:]}")
    about = {
        "command": f"harness {shlex.join(words)}",
        "harness": f"{harness.__version__}, {_commit()}",
        "machine": "",
        "took_s": round(took_s, 1),
        "said": reported,
    }
    store(found[0], folder(name), about, with_raw=name == "make-run", kept=KEPT.get(name, ""))
    for line in reported:
        print(f"    {line}")
    return took_s


def store(run: Path, to: Path, about: dict[str, Any], *, with_raw: bool, kept: str = "") -> None:
    """Copy what is read of a run's folder to ``to``, in place of what is there: the cells of workloads that
    have ``kept`` in their names."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    environment = json.loads((run / "environment.json").read_bytes())
    environment = {
        key: _without_accidents(environment[key]) for key in ("machine", "hosts") if key in environment
    }
    machine = environment.get("machine", {})
    about = {
        **about,
        "machine": ", ".join(str(machine[key]) for key in ("cpu", "hypervisor") if key in machine),
    }
    _save(to / MEASURED, about)
    _save(to / "environment.json", environment)
    _save(to / "plan.json", json.loads((run / "plan.json").read_bytes()))
    for kind in ("cells", "probes"):
        for file in (run / kind).glob(f"*{kept}*.json" if kept else "*.json"):
            record = json.loads(file.read_bytes())
            wanted = [name for name in record.get("raw", ()) if with_raw and kind == "cells"]
            _save(to / kind / file.name, record)
            for raw in wanted:
                _store_raw(run / raw, to / raw)


def _store_raw(file: Path, to: Path) -> None:
    """What the pictures need of fio's own output: bins of latencies, and bandwidth over time."""
    if file.name == "fio.json":
        output = json.loads(file.read_bytes())
        output.pop("disk_util", None)
        for job in output["jobs"]:
            for unread in _UNREAD:
                job.pop(unread, None)
            for direction in ("read", "write"):
                if not job[direction]["total_ios"]:
                    del job[direction]
                elif job[direction]["lat_ns"].get("bins"):
                    # Those of total latency are read, where there are both.
                    del job[direction]["clat_ns"]
        _save(to, output)
    elif file.name in ("bw.log", "job.fio"):
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)


def _save(file: Path, data: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")


def _without_accidents(found: Any) -> Any:
    """Facts about hosts without who built their kernels, and the folders in their command lines."""
    if isinstance(found, dict):
        return {key: _without_accidents(one) for key, one in found.items() if key != "kernel_command_line"}
    return (
        re.sub(r" \(.*", "", found) if isinstance(found, str) and found.startswith("Linux version") else found
    )


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="figures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="print and draw everything anew")
    parser.add_argument("--measure", nargs="*", metavar="NAME", help=f"measure and store: {', '.join(RUNS)}")
    parser.add_argument("--also", default="", metavar="WORDS", help="more options, for a short trial")
    options = parser.parse_args(argv)
    try:
        if options.measure is not None:
            if unknown := set(options.measure) - set(RUNS):
                raise Wrong(f"expected names of {', '.join(RUNS)}, found {', '.join(unknown)}")
            total_s, also = 0.0, shlex.split(options.also)
            for name in options.measure or RUNS:
                print(f"{name}: harness {shlex.join([*RUNS[name], *also])}", flush=True)
                took_s = measure(name, also)
                total_s += took_s
                print(f"    took {format_duration(round(took_s))}", flush=True)
            print(f"in all {format_duration(round(total_s))}; now: python tools/figures.py --write")
            return 0
        found = differences(write=options.write)
    except Wrong as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    for difference in found:
        print(difference)
    if found and not options.write:
        print(
            "figures: the docs differ from docs/figures/; if they should not: python tools/figures.py --write"
        )
    return 1 if found and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
