"""fio's JSON output (``--output-format=json`` or ``json+``), from fio 2.1 to 3.4x.

Units, after fio's HOWTO ("JSON output"), ``stat.c`` and issues 378 and 422 of axboe/fio:

==============  ==================================  ==============================================
quantity        up to fio 2.19                      from fio 2.99
==============  ==================================  ==============================================
``io_bytes``    KiB                                 bytes (and ``io_kbytes``, in KiB)
``bw``          KiB/s, rounded down                 the same, later with ``bw_bytes``, in bytes/s
latencies       microseconds: ``clat``, ``lat``     nanoseconds: ``clat_ns``, ``lat_ns``
``runtime``     milliseconds                        milliseconds
==============  ==================================  ==============================================

The units changed one by one in between, so the existing keys decide and the version confirms. Bandwidth is
``io_bytes`` over ``runtime``; the bandwidth that fio reports must agree with it.

Of several documents in one text the first run counts, and the others get a warning. They may be repeats or
other jobs, and for some of these it is wrong to add or to average. With ``--status-interval`` a run prints a
document every so often, each with all figures since its start: the last one counts.

fio's client (``--client``) prints one document for all servers, in which the ``hostname`` of a job is its
server's name on the command line. A server that died has no job in it, and the exit status does not always
show it (seen with 3.33). With ``--debug=net`` the client also prints each message that it receives.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from harness.model import COMPLETION, PER_JOB, Io, Latency
from harness.model.errors import UsageError
from harness.model.histogram import Histogram, merge
from harness.parse import embedded
from harness.parse.figures import TOLERANCE, take

MS_NS, S_NS = 1_000_000, 1_000_000_000

ADDED_UP = "jobs of this name added up"
"""Appended to the number of summed figures: how they were made, not a warning."""

LatencyKind: TypeAlias = Literal["lat", "clat"]
"""Latency from the start of submission (total) or from its end (completion)."""


class FioJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job, or with group_reporting one group of jobs.

    ``invalid`` says why the job's figures must not be used; it is empty for a good job. Jobs of one ``group``
    ran at the same time. ``read``, ``write`` and ``trim`` are None for a direction without I/O, or with
    unusable figures (then ``invalid`` names it). Nothing compares trims: a job without reads and writes is
    invalid. ``sync_latency`` is that of fsync and similar calls. Percentiles and bins are of the kind of
    latency that ``percentiles_of`` says; the rest of a ``Latency`` is total latency. The bins of json+ map a
    latency in ns to a count of I/Os; plain json has none. ``options`` are the job's merged over [global].
    """

    name: str
    group: int | None = None
    error: int | None = None
    invalid: tuple[str, ...] = ()
    read: Io | None = None
    write: Io | None = None
    trim: Io | None = None
    sync_latency: Latency | None = None
    percentiles_of: LatencyKind | None = None
    read_bins: dict[int, int] = {}
    write_bins: dict[int, int] = {}
    options: dict[str, str] = {}
    hostname: str | None = None


class FioOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of fio reported; ``jobs`` has at least one member.

    ``version`` is fio's own string (``fio-3.33``); ``disks`` are the kernel's names of those that it used, as
    far as it says them. The row that fio's client adds to its servers' jobs is not
    among them: it is a sum, which fio is known to compute wrongly.
    """

    version: str | None
    jobs: tuple[FioJob, ...]
    warnings: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one server answered to fio's client.

    Whether it accepted the job, whether its job ended, the job itself if it was reported, and its other
    messages.
    """

    accepted: bool = False
    ended: bool = False
    job: FioJob | None = None
    said: tuple[str, ...] = ()


class ClientOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output of fio's client, by the name of each server on its command line."""

    servers: dict[str, ServerAnswer]
    warnings: tuple[str, ...] = ()


BEGAN = "SERVER_START"
"""A server's job begins: it has yet to open its file, and then does I/O."""

GONE = "removed"
"""The client is done with a server."""


def heard(line: str) -> tuple[str, str] | None:
    """A line that fio's client prints with ``--debug=net``: the message, and the server that it is from.

    None for all other lines, and for the client's other notes.
    """
    match = _HEARD.search(line)
    return (match[1] or GONE, match[2]) if match else None


def parse_client(text: str) -> ClientOutput:
    """Read what fio's client printed with ``--debug=net`` and JSON, for servers with one job each.

    Nothing is refused: a client that was stopped has printed no JSON, and then no server has a job.
    """
    log, newline, document = text.partition("\n{\n")
    warnings: tuple[str, ...] = ()
    jobs: dict[str | None, list[FioJob]] = {}
    try:
        output = parse(newline + document)
    except UsageError as error:
        warnings = (error.message,)
    else:
        warnings = tuple(words for words in output.warnings if words != _ALL_CLIENTS_LEFT_OUT)
        for job in output.jobs:
            jobs.setdefault(job.hostname, []).append(job)
    messages: dict[str, set[str]] = {}
    said: dict[str, list[str]] = {}
    server = ""
    for line in log.split("\n"):
        if message := heard(line):
            kind, server = message
            messages.setdefault(server, set()).add(kind)
        elif (words := _SAID.match(line)) and not _ROUTINE.match(words[1]):
            said.setdefault(server, []).append(words[1])
    return ClientOutput(
        servers={
            server: ServerAnswer(
                accepted="START" in kinds,
                ended="STOP" in kinds,
                job=_only(jobs.get(server, []), said.get(server, [])),
                said=tuple(said.get(server, [])),
            )
            for server, kinds in messages.items()
        },
        warnings=warnings,
    )


def _only(jobs: list[FioJob], said: list[str]) -> FioJob | None:
    """The one job of a server; invalid if it is not the only one, or if its server was interrupted."""
    if not jobs:
        return None
    problems = list(jobs[0].invalid)
    if len(jobs) > 1:
        problems.append(f"expected one job of each server, found {len(jobs)}")
    if any(_INTERRUPTED in words for words in said):
        problems.append(_INTERRUPTED_REASON)
    return msgspec.structs.replace(jobs[0], invalid=tuple(problems))


def parse(text: bytes | str) -> FioOutput:
    """Read what fio wrote, with any text around it: JSON, or else what it prints for people.

    A job's ``invalid`` says what is wrong with it; ``warnings`` say what else is odd. Raises ``UsageError``,
    and nothing else, if the text has no whole fio document with at least one job.
    """
    warnings: list[str] = []
    string = embedded.to_string(text, warnings)
    try:
        document, before, after = _document(string, warnings)
    except embedded.NoDocument as error:
        from harness.parse import fio_text  # which imports this module

        if fio_text.is_one(string):
            return fio_text.parse(string, warnings)
        raise _refusal(str(error)) from None
    rows = (document.client_stats if document.jobs is None else document.jobs) or []
    doubts = []
    if _INTERRUPTED in before or _INTERRUPTED in after:
        doubts.append(_INTERRUPTED_REASON)
    if _begins_another(after):
        doubts.append("a later document in this text is cut off or damaged; it may belong to the same run")
    jobs = [_job(raw, number, document, doubts, warnings) for number, raw in enumerate(rows, start=1)]
    if document.jobs is None and any(job.name == _ALL_CLIENTS for job in jobs):
        jobs = [job for job in jobs if job.name != _ALL_CLIENTS]
        warnings.append(_ALL_CLIENTS_LEFT_OUT)
        if not jobs:
            raise UsageError(
                f"expected the jobs of fio's servers, found only the row '{_ALL_CLIENTS}'",
                hint="that row is fio's own sum, which may be wrong: keep the whole output of fio --client",
            )
    if not jobs:
        around = f"{before}\n{after}".strip()
        said = f"; the text around it says {embedded.quote(around)}" if around else ""
        raise UsageError(
            f"expected at least one job in fio's output, found none{said}",
            hint="look at fio's own messages: it exits with 0 even if its server refused the job",
        )
    if document.version is None:
        if not any(job.read or job.write for job in jobs):
            raise _refusal("JSON with jobs, but without 'fio version' and without any I/O")
        warnings.append("'fio version' is missing: units were judged only by the keys")
    return FioOutput(
        version=document.version,
        jobs=tuple(jobs),
        warnings=tuple(dict.fromkeys(warnings)),
        disks=document.disks,
    )


def total(jobs: Sequence[FioJob]) -> tuple[Io | None, Io | None]:
    """Reads and writes of all jobs as if of one: bytes and I/Os added up, over the longest run time.

    Percentiles come from the merged histograms. There are none if a job has no histogram (plain json), or if
    jobs have histograms of different kinds of latency. One job alone is its own total.
    """
    reads = [(job.read, job.read_bins, job.percentiles_of) for job in jobs if job.read]
    writes = [(job.write, job.write_bins, job.percentiles_of) for job in jobs if job.write]
    return _sum(reads), _sum(writes)


def _sum(parts: Sequence[tuple[Io, dict[int, int], LatencyKind | None]]) -> Io | None:
    ios = [io for io, _, _ in parts]
    if len(ios) < 2:
        return ios[0] if ios else None
    latencies = [io.latency for io in ios]
    values: dict[str, Any] = {}
    if all(bins for _, bins, _ in parts) and len({kind for _, _, kind in parts}) == 1:
        merged = merge(Histogram(bins) for _, bins, _ in parts)
        names = PERCENTILES.values()
        values = dict(zip(names, merged.percentiles_ns(list(PERCENTILES)), strict=True))
        values["percentiles"] = latencies[0].percentiles
    elif any(latency.p50_ns or latency.p99_ns or latency.p99_9_ns for latency in latencies):
        values["percentiles"] = PER_JOB
    for name, extreme in (("min_ns", min), ("max_ns", max)):
        known = [value for latency in latencies if (value := getattr(latency, name)) is not None]
        values[name] = extreme(known) if len(known) == len(ios) else None
    values["mean_ns"], values["stddev_ns"] = _moments(ios)
    return Io(
        bytes=sum(io.bytes for io in ios),
        ios=sum(io.ios for io in ios),
        runtime_ns=max(io.runtime_ns for io in ios),
        latency=Latency(**values),
    )


def _moments(ios: Sequence[Io]) -> tuple[float | None, float | None]:
    """Mean and standard deviation of all latencies, computed exactly from those of each; None if one is
    missing.

    fio's deviation is that of a sample (``stat.c``, calc_lat).
    """
    means = [(io.ios, io.latency.mean_ns) for io in ios if io.latency.mean_ns is not None]
    if len(means) < len(ios):
        return None, None
    count = sum(n for n, _ in means)
    mean = sum(n * m for n, m in means) / count
    deviations = [(io.ios, io.latency.stddev_ns) for io in ios if io.latency.stddev_ns is not None]
    if len(deviations) < len(ios):
        return mean, None
    squares = sum((n - 1) * s**2 for n, s in deviations) + sum(n * (m - mean) ** 2 for n, m in means)
    return mean, math.sqrt(squares / (count - 1))


def as_json(output: FioOutput) -> dict[str, Any]:
    """What was parsed, for ``harness parse fio``: units in the keys, null for what is unknown."""
    shown: dict[str, Any] = msgspec.to_builtins(output)
    del shown["disks"]
    for job, found in zip(output.jobs, shown["jobs"], strict=True):
        del found["read_bins"], found["write_bins"]
        for name in ("read", "write", "trim"):
            io: Io | None = getattr(job, name)
            if io is not None:
                latency = _latency_as_json(found[name].pop("latency"))
                found[name] = {"bytes_per_s": io.bytes_per_s, "iops": io.iops, **found[name], **latency}
        latency = found.pop("sync_latency")
        found["sync"] = latency and _latency_as_json(latency)
    return shown


def _latency_as_json(latency: dict[str, object]) -> dict[str, object]:
    """Without of what the percentiles are, which the job says."""
    return {f"latency_{name}": value for name, value in latency.items() if name != "percentiles"}


# fio's own form. Figures are Any, so that one of a wrong type only costs its direction and not the file; jobs
# are Raw, so that one of a wrong form only costs itself.


class _Distribution(msgspec.Struct):
    min: Any = None
    max: Any = None
    mean: Any = None
    stddev: Any = None
    percentile: dict[str, Any] = {}
    bins: dict[str, Any] = {}


_InNs: TypeAlias = tuple[_Distribution | None, int]
"""A distribution, and how many ns its unit has."""


class _Direction(msgspec.Struct):
    io_bytes: Any = None
    io_kbytes: Any = None
    bw_bytes: Any = None
    bw: Any = None
    iops: Any = None
    runtime: Any = None
    total_ios: Any = None
    slat: _Distribution | None = None
    clat: _Distribution | None = None
    lat: _Distribution | None = None
    slat_ns: _Distribution | None = None
    clat_ns: _Distribution | None = None
    lat_ns: _Distribution | None = None

    def distribution(self, kind: LatencyKind) -> _InNs:
        in_ns, in_us = (self.lat_ns, self.lat) if kind == "lat" else (self.clat_ns, self.clat)
        return (in_us, 1000) if in_ns is None else (in_ns, 1)

    def counts_kib(self, version: tuple[int, int] | None) -> bool:
        """Whether ``io_bytes`` is in KiB."""
        if self.io_kbytes is not None or self.bw_bytes is not None:
            return False
        if self.slat_ns or self.clat_ns or self.lat_ns:
            return False
        if self.slat or self.clat or self.lat:
            return True
        return version is not None and version <= _LAST_IN_KIB


class _Sync(msgspec.Struct):
    lat_ns: _Distribution | None = None


class _Job(msgspec.Struct):
    jobname: str | None = None
    groupid: Any = None
    job_start: Any = None
    elapsed: Any = None
    eta: Any = None
    error: Any = None
    total_err: Any = None
    hostname: str | None = None
    options: dict[str, Any] = msgspec.field(name="job options", default_factory=dict)
    read: _Direction | None = None
    write: _Direction | None = None
    trim: _Direction | None = None
    mixed: _Direction | None = None
    sync: _Sync = msgspec.field(default_factory=_Sync)


class _FioDocument(msgspec.Struct):
    version: str | None = msgspec.field(name="fio version", default=None)
    timestamp: Any = None
    timestamp_ms: Any = None
    global_options: dict[str, Any] | list[dict[str, Any]] = msgspec.field(
        name="global options", default_factory=dict
    )
    jobs: list[msgspec.Raw] | None = None
    client_stats: list[msgspec.Raw] | None = None
    disk_util: Any = None

    @property
    def disks(self) -> tuple[str, ...]:
        used = self.disk_util if isinstance(self.disk_util, list) else []
        return tuple(str(each.get("name")) for each in used if isinstance(each, dict))

    def options_of(self, job: _Job) -> dict[str, Any]:
        """A job's options with the global ones. Later versions have global options for each server."""
        found = self.global_options
        if isinstance(found, list):
            its_own = (each for each in found if each.get("hostname") == job.hostname)
            found = {key: value for key, value in next(its_own, {}).items() if key not in _ADDRESS}
        return found | job.options

    @property
    def version_number(self) -> tuple[int, int] | None:
        return version_number(self.version or "")


def version_number(version: str) -> tuple[int, int] | None:
    match = re.match(r"fio-(\d{1,4})\.(\d{1,4})", version)
    return (int(match[1]), int(match[2])) if match else None


_ADDRESS = ("hostname", "port")
"""These say to which server global options belong (fio 3.37 and later, if there are several servers)."""

_DOCUMENT = msgspec.json.Decoder(_FioDocument)
_JOB = msgspec.json.Decoder(_Job)
_ETA_UNKNOWN = 2**31 - 1
_LAST_IN_KIB, _FIRST_IN_BYTES = (2, 19), (2, 99)
PERCENTILES = {50.0: "p50_ns", 99.0: "p99_ns", 99.9: "p99_9_ns"}
_KINDS: tuple[LatencyKind, ...] = ("lat", "clat")
_NS = re.compile(r"[0-9]{1,19}")
_ALL_CLIENTS = "All clients"
_ALL_CLIENTS_LEFT_OUT = f"the row '{_ALL_CLIENTS}' was left out: it is fio's sum of the jobs, not a job"
_INTERRUPTED = "terminating on signal"
_INTERRUPTED_REASON = f"the run was interrupted: fio's messages have '{_INTERRUPTED}'"
_HEARD = re.compile(r"net +\d+ +client: (?:got cmd op (\w+) from |removed <)(.+?)(?: \(pdu=\d+\)|>)\s*$")
_SAID = re.compile(r"<[^>]*> ?(.*\S)")
_ROUTINE = re.compile(r"\S+: \(g=\d+\): rw=|Starting \d+ |\.\.\.$|\S+: Laying out IO file")


def _refusal(found: str) -> UsageError:
    return UsageError(
        f"expected the JSON output of fio, found {found}",
        hint="write it with fio --output-format=json --output=FILE, and let fio finish",
    )


NOT_SEPARATE = "reads and writes are not separate (unified_rw_reporting)"
NOT_SINCE_ISSUED = (
    "percentiles were left out: completion latency is above the total latency, so its engine does not say "
    "when an I/O was issued"
)


def is_above_total(completion: float | None, total: float | None) -> bool:
    """Whether mean completion latency contradicts the mean total latency, of which it is a part."""
    return bool(completion and total and completion > (1 + TOLERANCE) * total)


def interim_reports(count: int, what: str = "reports") -> str:
    return f"{count} interim {what} of the same run (--status-interval) were left out: only the last is used"


def further_runs(count: int, what: str = "runs of fio") -> str:
    return (
        f"{count} further {what} in the same text were left out: only the first run is used; give each "
        f"its own file"
    )


def _begins_another(after: str) -> bool:
    """Whether the text after all whole documents is the beginning of another one."""
    last = "".join(after[after.rfind("{") :].split()) if "{" in after else ""
    return '"fio version"' in after or (last != "" and '{"fioversion"'.startswith(last))


def _document(string: str, warnings: list[str]) -> tuple[_FioDocument, str, str]:
    """The document, and the text before and after it."""
    found = embedded.find(string, ("jobs", "client_stats"), _DOCUMENT, warnings)
    documents = found.documents
    # Those at the start are of the same run as a later one.
    goes_on = itertools.starmap(_goes_on, itertools.pairwise(documents))
    interim = sum(1 for _ in itertools.takewhile(bool, goes_on))
    if interim:
        warnings.append(interim_reports(interim, "documents"))
    if further := len(documents) - 1 - interim:
        warnings.append(further_runs(further, "fio documents"))
    return documents[interim], found.before, found.after


class _Progress(NamedTuple):
    """How far a run was when it wrote a document; 0 for what the document does not report."""

    names: list[str | None]
    started_ms: list[float | None]
    """since 1970, of each job; later versions of fio have it,"""
    written_ms: float | None
    elapsed_s: float
    """as fio counts, to about a second,"""
    runtime_ms: float
    """the longest of all directions of all jobs."""


def _progress(document: _FioDocument) -> _Progress:
    names, started_ms, elapsed, runtimes = list[str | None](), list[float | None](), [0.0], [0.0]
    for raw in document.client_stats or document.jobs or ():
        try:
            job = _JOB.decode(raw)
        except msgspec.DecodeError:
            continue
        names.append(job.jobname)
        started_ms.append(take(job.job_start, "job_start", []) or None)
        elapsed.append(take(job.elapsed, "elapsed", []) or 0)
        directions = [direction for direction in (job.read, job.write, job.trim) if direction]
        runtimes += [take(direction.runtime, "runtime", []) or 0 for direction in directions]
    written_ms = take(document.timestamp_ms, "timestamp_ms", [])
    if written_ms is None:
        written_ms = take(document.timestamp, "timestamp", [], 1000)
    return _Progress(names, started_ms, written_ms, max(elapsed), max(runtimes))


def _goes_on(first: _FioDocument, following: _FioDocument) -> bool:
    """Whether both are of one run.

    Its jobs began once. Where fio does not say when: of two runs, one begins after the other's end; in one,
    as much time has passed between two documents as since its start.
    """
    if (first.version, first.global_options) != (following.version, following.global_options):
        return False
    before, after = _progress(first), _progress(following)
    if before.names != after.names:
        return False
    starts = [pair for pair in zip(before.started_ms, after.started_ms, strict=True) if None not in pair]
    if starts:
        return all(early == late for early, late in starts)
    if after.elapsed_s <= before.elapsed_s:
        return False
    if before.written_ms is None or after.written_ms is None:
        return after.runtime_ms > before.runtime_ms
    passed_s = (after.written_ms - before.written_ms) / 1000
    return abs(passed_s - (after.elapsed_s - before.elapsed_s)) <= 1


def _job(
    raw: msgspec.Raw, number: int, document: _FioDocument, doubts: list[str], warnings: list[str]
) -> FioJob:
    """The number-th job of the document (from 1)."""
    try:
        job = _JOB.decode(raw)
    except msgspec.DecodeError as error:
        return FioJob(name=f"(job {number})", invalid=(f"the job cannot be read: {error}",))
    figures = _Figures(document.version_number, warnings)
    problems = figures.problems
    error_number = figures.take(job.error, "error")
    if job.error is None:
        problems.append("error is missing")
    elif error_number:
        problems.append(f"fio reports error {error_number:g}")
    if total := figures.take(job.total_err, "total_err"):
        problems.append(f"fio counted {total:g} I/O errors")
    problems += doubts
    if (left_s := figures.take(job.eta, "eta")) and left_s < _ETA_UNKNOWN:
        problems.append(f"the run was not over: by fio's estimate it had {left_s:g} s to go")
    if job.jobname is None:
        problems.append("jobname is missing")

    name = job.jobname or f"(job {number})"
    options = {key: str(value) for key, value in document.options_of(job).items()}
    kind = _percentiles_of(job)
    read = figures.io(job.read, "read", kind)
    write = figures.io(job.write, "write", kind)
    trim = figures.io(job.trim, "trim", kind) if job.trim and job.trim.total_ios else None
    if not (read or write or problems):
        problems.append(_why_nothing(trim, mixed=bool(job.mixed)))
    elif trim:
        warnings.append(
            f"job {embedded.quote(name)} trimmed {trim.ios} blocks in addition to its reads and writes"
        )
    if write and options.get("rw") in ("read", "randread"):
        warnings.append(f"job {embedded.quote(name)} counts writes, but its options say that it reads")
    sync_latency = figures.latency((job.sync.lat_ns, 1), (job.sync.lat_ns, 1), "sync")
    group = figures.take(job.groupid, "groupid")
    result = FioJob(
        name=name,
        group=None if group is None else int(group),
        error=None if error_number is None else int(error_number),
        read=read,
        write=write,
        trim=trim,
        sync_latency=None if sync_latency == Latency() else sync_latency,
        percentiles_of=kind,
        read_bins=figures.bins(job.read, "read", kind),
        write_bins=figures.bins(job.write, "write", kind),
        options=options,
        hostname=job.hostname,
    )
    return msgspec.structs.replace(result, invalid=tuple(problems))


def _why_nothing(trim: Io | None, *, mixed: bool) -> str:
    if trim:
        return f"fio completed only trims ({trim.ios}), no reads or writes"
    if mixed:
        return NOT_SEPARATE
    return "fio completed no reads or writes"


def _percentiles_of(job: _Job) -> LatencyKind | None:
    """One kind for the whole job, so that its reads and writes can be compared."""
    directions = (job.read, job.write, job.trim)
    active = [direction for direction in directions if direction and direction.io_bytes]
    for kind in _KINDS:
        for direction in active:
            distribution, _ = direction.distribution(kind)
            if distribution and distribution.percentile and distribution.max:
                return kind
    return None


class _Figures:
    """Reads the figures of one job, and collects what is wrong or odd about them."""

    def __init__(self, version: tuple[int, int] | None, warnings: list[str]) -> None:
        self.version = version
        self.warnings = warnings
        self.problems: list[str] = []

    def take(self, value: object, where: str, unit: int = 1) -> float | None:
        return take(value, where, self.problems, unit)

    def io(self, direction: _Direction | None, where: str, kind: LatencyKind | None) -> Io | None:
        """One direction; None if it was idle, or if its figures are unusable or contradict each other."""
        if direction is None:
            return None
        known_problems = len(self.problems)
        kib = direction.counts_kib(self.version)
        names = ("io_bytes", "io_kbytes", "bw_bytes", "bw", "iops", "runtime", "total_ios")
        units = {"io_bytes": 1024 if kib else 1, "runtime": MS_NS}
        figures = {
            name: self.take(getattr(direction, name), f"{where}.{name}", units.get(name, 1)) for name in names
        }
        # fio before 2.2 has no total_ios.
        required = ("io_bytes", "runtime", "iops" if kib else "total_ios")
        missing = [name for name in required if getattr(direction, name) is None]
        self.problems += [f"{where}.{name} is missing" for name in missing]
        if len(self.problems) > known_problems:
            return None
        if not any(figures[name] for name in names if name != "runtime"):
            return None

        # Less than a byte, an I/O or a ns counts as none.
        moved, runtime_ns = int(figures["io_bytes"] or 0), int(figures["runtime"] or 0)
        if figures["total_ios"] is None:
            ios = round((figures["iops"] or 0) * runtime_ns / S_NS)
            self.warnings.append(
                "this version of fio does not report I/O counts: they were computed as IOPS times runtime"
            )
        else:
            ios = int(figures["total_ios"])
        if not (moved and ios and runtime_ns):
            self.problems.append(f"{where} has {moved} bytes and {ios} I/Os in {runtime_ns / MS_NS:.10g} ms")
            return None
        if self.version and (self.version >= _FIRST_IN_BYTES if kib else self.version <= _LAST_IN_KIB):
            found = "KiB and microseconds" if kib else "bytes and nanoseconds"
            self.warnings.append(
                f"the names of its keys say {found}, which is unusual for this version of fio"
            )
        per_s = S_NS / runtime_ns
        # fio rounds down: each figure by less than 1, and KiB before it derives the bandwidth from them.
        rounding = 1 + (per_s if kib else 0)
        for name, derived in (
            ("bw_bytes", moved * per_s),
            ("bw", moved * per_s / 1024),
            ("iops", ios * per_s),
            ("io_kbytes", moved / 1024),
        ):
            reported = figures[name]
            if reported is not None and abs(reported - derived) > max(TOLERANCE * derived, rounding):
                self.problems.append(
                    f"{where}.{name} is {reported:.10g}, but bytes, I/Os and runtime give {derived:.10g}"
                )
        if len(self.problems) > known_problems:
            return None
        percentiles = self.percentiles(direction, kind)
        return Io(
            bytes=moved,
            ios=ios,
            runtime_ns=runtime_ns,
            latency=msgspec.structs.replace(
                self.latency(direction.distribution("lat"), percentiles, where),
                percentiles=COMPLETION if kind == COMPLETION else msgspec.UNSET,
            ),
        )

    def percentiles(self, direction: _Direction | None, kind: LatencyKind | None) -> _InNs:
        """The distribution with percentiles and bins, unless it contradicts the total latency."""
        found, unit_ns = direction.distribution(kind) if direction and kind else (None, 1)
        total, total_unit_ns = direction.distribution("lat") if direction else (None, 1)
        if found and total:
            means = take(found.mean, "", [], unit_ns), take(total.mean, "", [], total_unit_ns)
            if is_above_total(*means):
                self.warnings.append(NOT_SINCE_ISSUED)
                return None, 1
        return found, unit_ns

    def latency(self, of_moments: _InNs, of_percentiles: _InNs, where: str) -> Latency:
        """Latency from two distributions.

        A distribution of zeros only was not measured (idle, gtod_reduce, disable_lat): it is left out.
        """
        (moments, moments_ns), (percentiles, percentiles_ns) = of_moments, of_percentiles
        values: dict[str, Any] = {}
        if moments is not None and moments.max != 0:
            for name in ("mean", "min", "max", "stddev"):
                value = getattr(moments, name)
                values[f"{name}_ns"] = self.take(value, f"{where} latency {name}", moments_ns)
        if percentiles is not None and percentiles.max != 0:
            for percent, name in PERCENTILES.items():
                value = percentiles.percentile.get(f"{percent:f}")
                values[name] = self.take(value, f"{where} latency percentile {percent:g}", percentiles_ns)
        return Latency(**values)

    def bins(self, direction: _Direction | None, where: str, kind: LatencyKind | None) -> dict[int, int]:
        """I/Os by ns. fio before 2.99 numbered its bins instead, or had them in us: these are not read."""
        distribution, unit_ns = self.percentiles(direction, kind)
        if distribution is None or unit_ns != 1:
            return {}
        counts = {}
        for key, count in distribution.bins.items():
            # A histogram has hundreds of bins; only those that are not plain counts need a closer look.
            is_plain = type(count) is int and 0 < count < 2**63
            number = count if is_plain else self.take(count, f"{where} bin {key}")
            if number and _NS.fullmatch(key):
                counts[int(key)] = int(number)
        return counts
