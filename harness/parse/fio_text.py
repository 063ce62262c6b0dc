"""fio's text output (``--output-format=normal``), from 2.0 to 3.4x.

After ``show_thread_status_normal()`` in its stat.c, and ``add_job()`` in its init.c, which prints a line with
some options of each job. Runtimes and counts of I/Os are whole, so bytes are exact where all blocks have
one size; other figures have three or four digits. Units are powers of 1024, also where 2.x prints ``KB``.
With ``group_reporting`` a block of figures is that of a group of jobs.

A report ends with ``Run status group``. With ``--status-interval`` a run prints one every so often, each with
all figures since its start: the last one counts. Of several runs in one text the first counts, and the others
get a warning, as with JSON.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import msgspec

from harness.model import COMPLETION, Io, Job, Latency
from harness.model.errors import UsageError
from harness.parse.embedded import quote
from harness.parse.figures import TOLERANCE, Printed, printed, rate_problem
from harness.parse.fio import (
    MS_NS,
    NOT_SEPARATE,
    NOT_SINCE_ISSUED,
    PERCENTILES,
    S_NS,
    FioJob,
    FioOutput,
    LatencyKind,
    further_runs,
    interim_reports,
    is_above_total,
    version_number,
)
from harness.parse.jobfile import moves_read, moves_write

ROUNDED = (
    "read from fio's text output, which has fewer digits, no histograms and "
    "not all options: use --output-format=json"
)
NO_FIGURES = "no reads or writes were completed, or the text is cut"
IMPOSSIBLE = "latencies longer than the whole run were left out: this version of fio misread a clock"

_BLOCK = re.compile(
    r"^(?P<name>\S.{0,255}?): \(groupid=(?P<group>[0-9]{1,9}), jobs=(?P<jobs>[0-9]{1,9})\): "
    r"err= *(?P<error>[0-9]{1,9})(?:[^\n]{0,255}?: pid=(?P<pid>[0-9]{1,12}))?",
    re.MULTILINE,
)
_MARGIN = re.compile(r"^[>| \t]{1,16}(?=[^>| \t\n][^\n]{0,255}?: \(groupid=[0-9])", re.MULTILINE)
_MIXED = re.compile(r"^[ \t]*mixed *: (?:IOPS|io)=", re.MULTILINE)
_RUN_ENDS = re.compile(r"^[ \t]*Run status group [0-9]", re.MULTILINE)
_OPTIONS = re.compile(
    r"^(?P<name>\S.{0,255}?): \(g=(?P<group>[0-9]{1,9})\): rw=(?P<rw>[a-z]{1,16}), bs=(?P<bs>\S.{0,120}?), "
    r"ioengine=(?P<ioengine>[\w.:/-]{1,64}), iodepth=(?P<iodepth>[0-9]{1,9})[ \t\r]*$",
    re.MULTILINE,
)
_VERSION = re.compile(r"^(fio-[0-9][\w.-]{0,60})[ \t\r]*$", re.MULTILINE)
_AMOUNT = r"[0-9]{1,19}(?:\.[0-9]{1,9})?"
_TRANSFER = re.compile(
    rf"^[ \t]*(?P<way>read|write|trim)\s*: IOPS=\S+, "
    rf"BW=(?P<rate>{_AMOUNT})(?P<rate_unit>[KMGTP]?)i?B/s.{{0,40}}?"
    rf"\((?P<bytes>{_AMOUNT})(?P<unit>[KMGTP]?)i?B/(?P<ms>[0-9]{{1,12}})msec\)",
    re.MULTILINE,
)
_TRANSFER_2 = re.compile(
    rf"^[ \t]*(?P<way>read|write|trim)\s*: io=(?P<bytes>{_AMOUNT})(?P<unit>[KMGTP]?)B, "
    rf"bw=(?P<rate>{_AMOUNT})(?P<rate_unit>[KMGTP]?)B/s, iops=\s*\S+, runt= *(?P<ms>[0-9]{{1,12}})msec",
    re.MULTILINE,
)
_LATENCY = re.compile(
    rf"^[ \t]*(?P<kind>clat|lat) \((?P<unit>nsec|usec|msec|sec)\)\s*: min= *(?P<min>{_AMOUNT}[kKM]?), "
    rf"max= *(?P<max>{_AMOUNT}[kKM]?), avg= *(?P<mean>{_AMOUNT}[kKM]?), "
    rf"stdev= *(?P<stddev>{_AMOUNT}[kKM]?)",
    re.MULTILINE,
)
_PERCENTILES = re.compile(
    r"^[ \t]*(?P<kind>clat|lat) percentiles \((?P<unit>nsec|usec|msec|sec)\):(?P<rows>(?:\s{0,40}\|[^\n]*)+)",
    re.MULTILINE,
)
_PERCENTILE = re.compile(r"(?P<part>[0-9]{1,3}\.[0-9]{1,6})th=\[\s*(?P<value>[0-9]{1,19})\]")
_ISSUED = re.compile(
    r"^[ \t]*issued\s*(?:rwts?)?\s*: total=(?:r=)?(?P<read>[0-9]{1,18})[,/](?:w=)?(?P<write>[0-9]{1,18})",
    re.MULTILINE,
)
_SIZES = re.compile(
    rf"(?P<number>{_AMOUNT})(?P<unit>[KMGTP]?)i?B?-(?P<most>{_AMOUNT})(?P<unit_of_most>[KMGTP]?)i?B?"
)
_DIGITS_ARE_DECIMAL, _DIGITS_ARE_ROUNDED = (2, 20), (3, 26)
"""Versions whose num2str() was mended (lib/num2str.c, commits 9e55f2c7debac and c736b361190e1)."""
_POWERS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_NS = {"nsec": 1, "usec": 1000, "msec": MS_NS, "sec": S_NS}


def is_one(text: str) -> bool:
    """Whether the text has such an output, with figures."""
    return _BLOCK.search(_aligned(text)) is not None


def _aligned(text: str) -> str:
    """The text without what a mail or a page puts before each line of it."""
    margin = _MARGIN.search(text)
    return re.sub(f"^{re.escape(margin[0])}", "", text, flags=re.MULTILINE) if margin else text


def parse(text: str, warnings: list[str]) -> FioOutput:
    """The jobs, or groups of jobs, in the order of the text. UsageError if none of them moved anything."""
    text = _first_run(_aligned(text), warnings)
    sizes, options = _options(text)
    version = _VERSION.search(text)
    number = version_number(version[1]) if version else None
    jobs = [_job(block, part, sizes, options, number) for block, part in _last_report(text, warnings)]
    reported = list(dict.fromkeys(words for _, words in jobs if words))
    found = tuple(job for job, _ in jobs)
    if not any(job.read or job.write or job.invalid != (NO_FIGURES,) for job in found):
        raise UsageError(
            f"expected figures in fio's output, found none in a text that begins with {quote(text)}",
            hint="write it with fio --output-format=json --output=FILE, and let fio finish",
        )
    return FioOutput(
        version=version[1] if version else None, jobs=found, warnings=(*warnings, ROUNDED, *reported)
    )


def _first_run(text: str, warnings: list[str]) -> str:
    """The text up to the second run with figures: fio prints its version as each begins."""
    begins = [match.start() for match in _VERSION.finditer(text)]
    bounds = [0, *begins[1:], len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(bounds)]
    runs = [number for number, part in enumerate(parts) if _BLOCK.search(part)]
    if len(runs) < 2:
        return text
    warnings.append(further_runs(len(runs) - 1))
    # The lines with a run's options stand before its version.
    return text[: bounds[runs[0] + 1]]


def _last_report(text: str, warnings: list[str]) -> list[tuple[re.Match[str], str]]:
    """The blocks of the first run's last report, each with its text."""
    begins = list(_BLOCK.finditer(text))
    ends = [*(block.start() for block in begins[1:]), len(text)]
    reports: list[list[tuple[re.Match[str], str]]] = [[]]
    for block, end in zip(begins, ends, strict=True):
        part = text[block.end() : end]
        reports[-1].append((block, part))
        if _RUN_ENDS.search(part) and end < len(text):
            reports.append([])
    of_run = [report for report in reports if _processes(report) & _processes(reports[0])]
    if interim := len(of_run) - 1:
        warnings.append(interim_reports(interim))
    if further := len(reports) - max(len(of_run), 1):
        warnings.append(further_runs(further))
    return of_run[-1] if of_run else reports[0]


def _processes(report: Sequence[tuple[re.Match[str], str]]) -> set[tuple[str, str]]:
    return {(block["name"], block["pid"]) for block, _ in report if block["pid"]}


_Sizes = Mapping[tuple[str, str], Mapping[str, int]]
_Options = Mapping[tuple[str, str], Mapping[str, str]]


def _options(text: str) -> tuple[_Sizes, _Options]:
    """By name and group: the size of all reads and of all writes, where they have one; and the options."""
    sizes: dict[tuple[str, str], dict[str, int]] = {}
    options: dict[tuple[str, str], dict[str, str]] = {}
    for line in _OPTIONS.finditer(text):
        key = line["name"], line["group"]
        if key in sizes:
            continue  # of the run that follows: its options stand before its version
        found = {}
        for way, size in zip(("read", "write"), _SIZES.finditer(line["bs"]), strict=False):
            number = printed(size["number"], _POWERS[size["unit"]])
            if size.group(1, 2) == size.group(3, 4) and number is not None and number.value >= 1:
                found[way] = int(number.value)
        sizes[key] = found
        options[key] = {name: line[name] for name in ("rw", "ioengine", "iodepth")}
        job = Job(name=line["name"], options=(("rw", line["rw"]),))
        ways = (("read", moves_read(job)), ("write", moves_write(job)))
        moved = {found.get(way) for way, is_moved in ways if is_moved}
        if len(moved) == 1 and (size_bytes := moved.pop()) is not None:
            options[key]["bs"] = str(size_bytes)
    return sizes, options


def _job(
    block: re.Match[str],
    part: str,
    sizes: _Sizes,
    options: _Options,
    version: tuple[int, int] | None,
) -> tuple[FioJob, str]:
    """A job, or a group of jobs, and what was left out of its figures, or is odd about them."""
    key = block["name"], block["group"]
    its_own = {**options.get(key, {})}
    if its_own:
        its_own["numjobs"] = block["jobs"]
    problems = [f"fio reports error {int(block['error'])}"] if int(block["error"]) else []
    transfers = sorted(
        [*_TRANSFER.finditer(part), *_TRANSFER_2.finditer(part)], key=lambda found: found.start()
    )
    if (issued := _ISSUED.search(part)) is None:
        transfers = []
    ios, kinds, left_out = dict[str, Io](), set[LatencyKind](), ""
    for transfer, following in zip(transfers, [*transfers, None][1:], strict=True):
        if transfer["way"] == "trim":
            continue
        of_way = part[transfer.end() : following.start() if following else len(part)]
        count = int(issued[transfer["way"]]) if issued else 0
        size_bytes = sizes.get(key, {}).get(transfer["way"])
        moved, problem = _moved(transfer, count, size_bytes, version)
        if size_bytes and moved > (1 + TOLERANCE) * count * size_bytes:
            left_out = f"{transfer['way']}: {moved} bytes, but {count} blocks have only {count * size_bytes}"
        if problem:
            problems.append(f"{transfer['way']}: {problem}")
        if moved and not count:
            problems.append(f"{transfer['way']}: {moved} bytes, but no I/O was issued")
        runtime_ns = int(transfer["ms"]) * MS_NS
        latency, kind, doubt = _latency(of_way)
        left_out = left_out or doubt
        if (latency.min_ns or 0) > runtime_ns:
            latency, kind, left_out = Latency(), None, IMPOSSIBLE
        kinds |= {kind} if kind else set()
        if moved and count and runtime_ns:
            ios[transfer["way"]] = Io(bytes=moved, ios=count, runtime_ns=runtime_ns, latency=latency)
    if not (ios or problems):
        problems.append(NOT_SEPARATE if _MIXED.search(part) else NO_FIGURES)
    job = FioJob(
        name=block["name"].strip(),
        group=int(block["group"]),
        error=int(block["error"]),
        invalid=tuple(problems),
        read=ios.get("read"),
        write=ios.get("write"),
        percentiles_of=kinds.pop() if len(kinds) == 1 else None,
        options=its_own,
    )
    return job, left_out


def _meanings(text: str, unit: int, version: tuple[int, int] | None) -> list[Printed]:
    """What fio may mean by a number that it printed.

    Up to 2.19, what follows the point is no decimal fraction: 12.6 was 12.0556. Up to 3.25, a fraction that
    rounds to 1 became 0: 24.98 was printed as 24.0. Where no version is known, it is taken for one of these.
    """
    found = printed(text, unit)
    if found is None:
        return []
    whole, _, fraction = text.partition(".")
    if fraction and version and version < _DIGITS_ARE_DECIMAL:
        return [Printed((int(whole) + 0.5) * unit, float(unit))]
    if fraction and not fraction.strip("0") and (version or (0, 0)) < _DIGITS_ARE_ROUNDED:
        return [found, Printed(found.value + unit, found.step)]
    return [found]


def _moved(
    transfer: re.Match[str], count: int, size_bytes: int | None, version: tuple[int, int] | None
) -> tuple[int, str | None]:
    """Bytes, from the count where that is what was printed; and how the rate contradicts them."""
    every_moved = _meanings(transfer["bytes"], _POWERS[transfer["unit"]], version)
    every_rate = _meanings(transfer["rate"], 8 * _POWERS[transfer["rate_unit"]], version)
    if not (every_moved and every_rate):
        return 0, "its figures are not numbers below 2^63"
    seconds, exact = int(transfer["ms"]) / 1000, count * (size_bytes or 0)
    if any(abs(exact - moved.value) <= moved.step for moved in every_moved):
        every_moved = [Printed(float(exact))]
    moved, rate = min(
        itertools.product(every_moved, every_rate),
        key=lambda pair: abs(8 * pair[0].value - pair[1].value * seconds),
    )
    problem = rate_problem(moved, Printed(seconds, 0.001), rate)
    return int(moved.value), problem


def _latency(text: str) -> tuple[Latency, LatencyKind | None, str]:
    """Total latency, of which kind the percentiles are, and what was left out. What only completion has
    stays unknown."""
    kinds = dict[str, Latency]()
    for row in _LATENCY.finditer(text):
        names = ("min", "max", "mean", "stddev")
        values = {f"{name}_ns": _amount(row[name]) * _NS[row["unit"]] for name in names}
        try:
            kinds.setdefault(row["kind"], msgspec.convert(values, Latency))
        except msgspec.ValidationError:
            return Latency(), None, IMPOSSIBLE
    found, completion = kinds.get("lat", Latency()), kinds.get("clat", Latency())
    # With lat_percentiles fio may print both.
    rows = max(_PERCENTILES.finditer(text), key=lambda each: each["kind"] == "lat", default=None)
    if rows is None:
        return found, None, ""
    if rows["kind"] == "clat" and is_above_total(completion.mean_ns, found.mean_ns):
        return found, None, NOT_SINCE_ISSUED
    values = {
        PERCENTILES[float(each["part"])]: int(each["value"]) * _NS[rows["unit"]]
        for each in _PERCENTILE.finditer(rows["rows"])
        if float(each["part"]) in PERCENTILES
    }
    try:
        msgspec.convert(values, Latency)
    except msgspec.ValidationError:
        return found, None, IMPOSSIBLE
    found = msgspec.structs.replace(found, **values)
    if rows["kind"] == "clat":
        return msgspec.structs.replace(found, percentiles=COMPLETION), "clat", ""
    return found, "lat", ""


def _amount(text: str) -> float:
    """A number with fio's k (1000) or K, M of num2str(), which are powers of 1000 here."""
    factor = {"k": 1e3, "K": 1e3, "M": 1e6}.get(text[-1], 1.0)
    return float(text.rstrip("kKM")) * factor
