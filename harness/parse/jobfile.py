"""fio job files: the user's, checked strictly, and one written for each cell.

A job file can name any device and run any command. So only options from a list are accepted that can do no
more than shape I/O on the device that the harness chooses. What only names other files, orders jobs or writes
logs is left out, and noted; all others are refused, all at once. Their meaning is that of fio 3.33 (its
HOWTO, ``init.c`` and ``parse.c``).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.model import Clock, Job, Workload
from harness.model.errors import UsageError
from harness.model.lines import listed
from harness.model.units import LARGEST, check_name, closest, format_size, positive, shown, slug, unknown_name
from harness.parse.files import read_text, shown_path
from harness.parse.profiles import data_folder

SIZE_BOUND_CELL_S = 600.0
"""Wall time granted to a cell whose job ends with its size, because no file says how long that takes."""

LOG_INTERVAL_MS = 100
MOST_LOGGED = 600
"""About how many samples of bandwidth a measurement of known length has: longer ones have longer
intervals."""

DEFAULT_BLOCK_BYTES = 4096
PERCENTILES = "50:90:95:99:99.9:99.99"

_READS = ("read", "randread", "rw", "randrw")
_WRITES = ("write", "randwrite", "rw", "randrw")
_SYNCHRONOUS = ("psync", "sync", "vsync", "pvsync", "pvsync2")
_ENGINES = (*_SYNCHRONOUS, "libaio", "io_uring", "posixaio")

_ALIASES = {
    "readwrite": "rw",
    "blocksize": "bs",
    "blockalign": "ba",
    "blocksize_range": "bsrange",
    "blocksize_unaligned": "bs_unaligned",
    "iodepth_batch_submit": "iodepth_batch",
    "iodepth_batch_complete": "iodepth_batch_complete_min",
    "io_limit": "io_size",
    "fileoffset": "offset",
    "timeout": "runtime",
    "iomem": "mem",
    "ratemin": "rate_min",
    "ratecycle": "rate_cycle",
    "wait_for_previous": "stonewall",
    "disable_bw": "disable_bw_measurement",
    "ss": "steadystate",
    "ss_dur": "steadystate_duration",
    "ss_ramp": "steadystate_ramp_time",
    "threads": "thread",
    "nr_files": "nrfiles",
}

_OPPOSITES = {"buffered": ("direct", 1), "rwmixwrite": ("rwmixread", 100)}
"""One setting of fio's under two names, whose values add up to this. Jobs have one of them, so what is said
later counts, also where [global] said the other."""

_DROPPED = {"stonewall", "wait_for", "new_group", "exitall_on_error", "group_reporting", "description"}
"""Accepted and left out: they change nothing of a section that is measured alone, as one."""


def _by_option(reasons: Mapping[str, str]) -> dict[str, str]:
    return {option: reason for reason, options in reasons.items() for option in options.split()}


_LEFT_OUT = _by_option(
    {
        "the harness chooses the device": """
            filename filename_format directory lockfile unique_filename nrfiles openfiles
            file_service_type filesize file_append fill_device fill_fs allow_file_create allow_mounted_write
            create_on_open create_serialize create_fsync overwrite fallocate unlink unlink_each_loop""",
        "each row is named after its section": "name",
        "every section is measured alone": """
            exitall exit_what startdelay flow flow_id flow_sleep flow_watermark""",
        "all rows have the same percentiles": """
            lat_percentiles clat_percentiles slat_percentiles percentile_list""",
        "the harness keeps its own logs": """
            write_bw_log write_lat_log write_iops_log write_hist_log write_iolog per_job_logs log_avg_msec
            log_hist_msec log_offset log_prio log_compression verify_dump verify_state_save""",
        "the kernel decides where memory is allocated": "numa_cpu_nodes numa_mem_policy",
    }
)
"""Accepted and left out with a note, by the reason: users' files have them, and a run has something else in
their place."""

_OF_SIZE = {"filesize", "nrfiles"}
"""Left out, but a job with one file and no ``size`` has the file's."""

_LIKE = {"windowsaio": "libaio", "solarisaio": "libaio", "mmap": "psync", "splice": "psync"}
"""Replacements for engines that need another system, or files."""

_REFUSED = _by_option(
    {
        "only the harness chooses the device": """
        create_only opendir read_iolog replay_redirect merge_blktrace_file verify_state_load hostname port""",
        "a job file may not run commands": "exec_prerun exec_postrun program arguments",
        "it would change the machine, not the I/O": "ioscheduler cgroup cgroup_weight uid gid",
        "the seed is the run's, so that a run can be repeated": "randseed allrandrepeat",
        "an I/O error must end the measurement": "ignore_error continue_on_error",
        "the results keep reads and writes separate": "unified_rw_reporting",
        "fio must report what it did": "stats",
        "the testbed chooses the clock": "clocksource",
        "sizes must mean the same in every file": "kb_base unit_base",
    }
)

_SEE = "profiles/README.md says what is accepted"
_NO_ROOM = "use a larger backing, or lower size, offset or bs in the profile"
_MOST_AT_ONCE = 6
_MOST_NAMED = 50
"""Obstacles of one file; fio's own examples have up to 20."""

_VARIABLE = re.compile(r"\$\{[^}]{1,64}\}|\$(?:ncpus|pagesize|mb_memory|jobname|jobnum|filenum)\b")
"""Of the environment, and fio's own (its HOWTO, "Environment variables" and "Reserved keywords")."""

_FIO_SIZE = re.compile(r"([0-9]{1,19})([kmgtp]?)b?", re.ASCII | re.IGNORECASE)
_FIO_TIME = re.compile(r"([0-9]{1,19})(us|usec|ms|msec|s|sec|m|h|d)?", re.ASCII | re.IGNORECASE)
_MICROSECONDS = {
    "us": 1,
    "usec": 1,
    "ms": 1000,
    "msec": 1000,
    "s": 10**6,
    "sec": 10**6,
    "m": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
}

_DIRECT = {"direct", "buffered"}
_FILLED = {"zero_buffers", "buffer_pattern", "refill_buffers", "buffer_compress_percentage"}
"""With one of these fio's buffers are filled as the harness has them filled."""

_Became = Callable[[str, str], None]
"""Called with an option of a job file, and what was done with it."""

_Measurable = Callable[[Job], object]
"""Raises UsageError for a job that cannot be measured, for example because it does not fit on the storage."""

_Check = Callable[[str], str | None]
"""Takes an option's value; returns what was expected instead, or None if the value is valid."""


def _one_of(*words: str) -> _Check:
    return lambda value: None if value in words else f"one of {', '.join(words)}"


def _matching(pattern: str, expected: str) -> _Check:
    return lambda value: None if re.fullmatch(pattern, value, re.ASCII) else expected


def _count(low: int, high: int = 2**31 - 1) -> _Check:
    def check(value: str) -> str | None:
        fits = re.fullmatch(r"[0-9]{1,19}", value, re.ASCII) and low <= int(value) <= high
        return None if fits else f"a whole number from {low} to {high}"

    return check


def _sizes(low: int, *, at_most: int = 1, empty: bool = False, percent: bool = False) -> _Check:
    """Sizes separated by commas, for reads, writes and trims; ``empty`` ones mean the default. Where they may
    be a ``percent`` of the device, one of 100 % is all of it.
    """
    part_of = r"[1-9][0-9]?%|100%" if low else r"[0-9]{1,2}%"

    def check(value: str) -> str | None:
        if percent and re.fullmatch(part_of, value, re.ASCII):
            return None
        parts = value.split(",")
        sizes = [_size(part) for part in parts if part or not empty]
        if sizes and len(parts) <= at_most and all(s is not None and low <= s <= LARGEST for s in sizes):
            return None
        # parse.c takes Ki for 1000 and K for 1024, the reverse of the standard: nobody means 4000.
        return f"a size of at least {low} bytes, such as 4k or 1M (powers of 1024; fio takes KiB for 1000)"

    return check


def _time(low_us: int) -> _Check:
    """fio silently reads 1.5 as 1 and 00:00:02 as 0 (seen with 3.33), so both are refused."""

    def check(value: str) -> str | None:
        match = _FIO_TIME.fullmatch(value)
        if match and low_us <= int(match[1]) * _MICROSECONDS[(match[2] or "s").lower()] <= LARGEST // 1000:
            return None
        return "a whole number of us, ms, s, m, h or d" + (" above 0, such as 1500ms" if low_us else "")

    return check


_FLAGS = (
    *("time_based", "thread", "norandommap", "bs_unaligned", "zero_buffers", "refill_buffers", "hipri"),
    *("fixedbufs", "registerfiles", "sqthread_poll", "userspace_reap"),
)
_SIZE_RANGE = r"[0-9]{1,19}[kKmMgG]?[bB]?[-:][0-9]{1,19}[kKmMgG]?[bB]?"

_TABLE: tuple[tuple[_Check, str], ...] = (
    (
        _one_of("0", "1"),
        """
        direct buffered atomic invalidate randrepeat end_fsync fsync_on_close
        scramble_buffers serialize_overlap dedupe_global do_verify verify_fatal rate_ignore_thinktime
        latency_run gtod_reduce disable_lat disable_clat disable_slat disable_bw_measurement disk_util
        nowait uncached """
        + " ".join(_FLAGS),
    ),
    (_count(0), "fsync fdatasync write_barrier verify_backlog verify_backlog_batch"),
    (_count(0, 65536), "iodepth_batch_complete_min sqthread_poll_cpu nonvectored"),
    (_count(0, 7), "prio cmdprio"),
    (_count(0, 3), "prioclass cmdprio_class"),
    (_count(0, 100), "rwmixread rwmixwrite buffer_compress_percentage dedupe_percentage"),
    (_count(0, 100), "dedupe_working_set_percentage hipri_percentage cmdprio_percentage"),
    (_count(1), "number_ios loops thinktime_blocks rate_cycle verify_async"),
    (_count(1, 4096), "numjobs"),
    (_count(1, 65536), "iodepth iodepth_batch iodepth_batch_complete_max iodepth_low"),
    (_sizes(0), "ba offset_align offset_increment verify_interval zoneskip"),
    (_sizes(1), "io_size buffer_compress_chunk zonesize zonerange"),
    (_sizes(1, at_most=3, empty=True), "bs rate rate_min"),
    (_sizes(0, percent=True), "offset"),
    (_sizes(1, percent=True), "size"),
    (_time(0), "ramp_time thinktime thinktime_spin thinktime_iotime"),
    (_time(0), "steadystate_duration steadystate_ramp_time"),
    (_time(1), "runtime latency_target latency_window max_latency"),
    (_matching(rf"{_SIZE_RANGE}([,/]{_SIZE_RANGE}){{0,2}}", "a range of sizes, such as 4k-64k"), "bsrange"),
    (
        _matching(
            rf"({'|'.join(sorted({*_READS, *_WRITES, 'readwrite'}))})(:-?[0-9]{{1,9}}[kKmM]?)?",
            "one of read, write, randread, randwrite, rw and randrw",
        ),
        "rw",
    ),
    (
        _matching(
            r"(bw|iops)(_slope)?:[0-9]{1,9}(\.[0-9]{1,9})?%?", "a limit such as iops:10% or bw_slope:1%"
        ),
        "steadystate",
    ),
    (_one_of(*_ENGINES), "ioengine"),
    (_one_of("malloc", "shm", "shmhuge", "mmap", "mmaphuge", "mmapshared"), "mem"),
    (_one_of("none", "strided"), "zonemode"),
    (
        _matching(
            r"(random|zipf|pareto|normal|zoned|zoned_abs)(:[0-9.,:/]{1,245})?",
            "random, zipf, pareto, normal, zoned or zoned_abs, with its numbers",
        ),
        "random_distribution",
    ),
    (
        _matching(
            r"[A-Za-z0-9_.,:/%+][A-Za-z0-9_.,:/%+-]{0,254}", "only letters, digits and _ . , : / % + -"
        ),
        """
        bssplit cmdprio_bssplit percentage_random random_generator rw_sequencer rate_iops
        rate_iops_min rate_process latency_percentile io_submit_mode thinktime_blocks_type buffer_pattern
        verify verify_pattern cpus_allowed cpus_allowed_policy cpumask sync write_hint
        fadvise_hint dedupe_mode""",
    ),
)
_CHECKS = {option: check for check, options in _TABLE for option in options.split()}


def load_jobs(
    spec: str, notes: list[str] | None = None, measurable: _Measurable | None = None
) -> tuple[str, tuple[Job, ...]]:
    """The name of a profile and its workloads, in the order of its sections.

    ``spec`` is the name of a shipped profile (``basic``, ``modern``) or the path of a job file of the
    user's; the profile's name is then made from the file's. ``notes``, ``measurable`` and errors are those
    of ``parse_jobs``.
    """
    known = shipped()
    path = _folder() / f"{spec}.fio" if spec in known else Path(spec)
    if spec not in known and "/" not in spec and not spec.endswith(".fio"):
        error = unknown_name("profile", spec, known)
        raise UsageError(error.message, hint=f"{error.hint}; for a job file of your own, write ./FILE")
    jobs = parse_jobs(read_text(path, "profile"), shown_path(path), notes, path.parent, measurable)
    if notes is not None and spec not in known:
        notes += about(jobs, _other_default)
    return slug(path.stem, fallback="profile"), jobs


def shipped() -> list[str]:
    """The names of the profiles that the project ships."""
    return sorted(file.stem for file in _folder().glob("*.fio"))


def _folder() -> Path:
    return data_folder() / "profiles"


def about(jobs: Sequence[Job], fate_of: Callable[[Job], str | None]) -> Iterator[str]:
    """Notes on jobs, each sentence once, with the names of the jobs that it applies to."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        if fate := fate_of(job):
            found.setdefault(fate, []).append(job.name)
    return (f"{listed(names, _MOST_AT_ONCE)}: {fate}" for fate, names in found.items())


def _other_default(job: Job) -> str | None:
    """What the harness sets (``job_file``) where the file leaves it to fio and fio's default differs."""
    options = dict(job.options)
    other = []
    if not _DIRECT & options.keys():
        other.append("direct=1, while fio would use the page cache by default")
    elif options.get("direct") == "0":
        other.append("uses the page cache, so a cell is invalid if less crosses the link than fio counts")
    if moves_write(job) and not _FILLED & options.keys() and "verify" not in options:
        other.append("refill_buffers, while fio would fill its buffers once")
    return "; ".join(other) or None


def parse_jobs(
    text: str,
    source: str,
    notes: list[str] | None = None,
    folder: Path | None = None,
    measurable: _Measurable | None = None,
) -> tuple[Job, ...]:
    """The sections of a job file as workloads, each merged with the [global] options above it.

    ``rw`` and ``bs`` are written out where fio would take its defaults. The value of a flag is None.
    ``source`` names the file in errors. ``notes`` gets what was replaced or left out, and why. ``folder`` has
    the files that it may include. UsageError, with line and option, for all options and values that are not
    accepted, other includes, text outside sections, a file without sections, and jobs that are not
    ``measurable``. Of a section that is refused, ``measurable`` gets the options that are accepted.
    """
    reading = _Reading()
    for number, line in _lines(text):
        with reading.at(number):
            if line.startswith("["):
                reading.open(line, number)
            elif folder is not None and (included := _included(line, folder)) is not None:
                # As if its lines stood here; it has no sections (init.c).
                for _, each in _lines(read_text(included, "included file")):
                    with reading.at(number):
                        reading.take(each)
            else:
                reading.take(line)
    jobs = []
    for name, section in reading.sections.items():
        with reading.at(section.line):
            # That may follow from what was refused.
            if not section.refused & {"runtime", "ramp_time", "include"}:
                _check_ramp(name, section.options)
        with reading.at(section.line):
            jobs.append(_job(name, section, reading.became))
            if measurable is not None and "include" not in section.refused:
                measurable(jobs[-1])
    if not reading.has_sections:
        with reading.at(text.count("\n") + 1):
            raise UsageError(
                "expected at least one section other than [global], found none",
                hint="begin a job with its name in brackets, such as [rand-read-4k]",
            )
    reading.require_none(source)
    reading.note_what_was_at_once()
    if notes is not None:
        # Everything of which the same is true in one sentence.
        notes += [f"{', '.join(what)}: {fate}" for fate, what in reading.fates.items()]
    return tuple(jobs)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers from 1."""
    for number, raw in enumerate(text.split("\n"), 1):
        # parse.c ends a line at the first of these, wherever it stands; there is no quoting.
        if line := re.split("[;#]", raw, maxsplit=1)[0].strip():
            yield number, line


def _included(line: str, folder: Path) -> Path | None:
    """The file of this folder that a line includes, if it does."""
    match = re.fullmatch(r"include[ =]([A-Za-z0-9._-]{1,255})", line)
    return folder / match[1] if match and (folder / match[1]).is_file() else None


@dataclass
class _Section:
    """Options by their own names. ``waits``: for all before it; ``wait_for``: for the one of this name.
    ``refused``: the keys of those that were refused."""

    line: int
    options: dict[str, str] = field(default_factory=dict)
    waits: bool = False
    wait_for: str = ""
    refused: set[str] = field(default_factory=set)


class _Reading:
    """A job file as far as it has been read, with what stands in its way and what became of the rest."""

    def __init__(self) -> None:
        self.sections: dict[str, _Section] = {}
        self.fates: dict[str, dict[str, None]] = {}
        self.has_sections = False
        self._obstacles: dict[str, tuple[str | None, list[int]]] = {}
        self._shared = _Section(0)
        self._current: _Section | None = None
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def at(self, line: int) -> Iterator[None]:
        """Keep an error instead of raising it: the message has all of them at once, the same one once."""
        try:
            yield
        except UsageError as error:
            for each in error.obstacles or [error.message]:
                self._obstacles.setdefault(each, (error.hint, []))[1].append(line)

    def became(self, what: str, fate: str) -> None:
        """Note that ``what`` is not as the file has it."""
        self.fates.setdefault(fate, {})[what] = None

    def note_what_was_at_once(self) -> None:
        """Note the sections that fio would run at the same time, which may be what the file is about."""
        groups: list[list[str]] = []
        after: dict[str, set[str]] = {}
        for name, section in self.sections.items():
            after[name] = {section.wait_for, *after.get(section.wait_for, ())}
            if groups and not section.waits:
                groups[-1].append(name)
            else:
                groups.append([name])
        for names in groups:
            pairs = [(a, b) for a, b in itertools.combinations(names, 2) if a not in after[b]]
            if pairs:
                met = [name for name in names if any(name in pair for pair in pairs)]
                those = (
                    "those without stonewall or wait_for"
                    if len(pairs) < len(met) * (len(met) - 1) / 2
                    else "them"
                )
                fate = f"measured one after another, while fio would run {those} at the same time"
                self.became(listed(met, _MOST_AT_ONCE, " with "), fate)

    def open(self, line: str, number: int) -> None:
        # The options of a section that is refused are still read.
        shared = self._shared
        self._seen = set()
        self._current = replace(
            shared, line=number, options=dict(shared.options), refused=set(shared.refused)
        )
        if line == "[global]":
            self._current = shared
            return
        self.has_sections = True
        first = _section_name(line)
        # fio has any number of one name.
        further = (f"{first[:60]}-{count}" for count in itertools.count(2))
        name = next(each for each in itertools.chain([first], further) if each not in self.sections)
        if line != f"[{name}]":
            self.became(line, f"called {name}")
        self.sections[name] = self._current

    def take(self, line: str) -> None:
        if self._current is None:
            raise UsageError(f"{shown(line)} stands before the first section", hint="put [global] above it")
        try:
            option, value = _option(line, self.became)
        except UsageError:
            meant = _meant(re.split(r"[\s=]", line, maxsplit=1)[0])
            self._current.refused.add(meant)
            self._seen.add(meant)
            raise
        if option == "stonewall":
            self._current.waits = value != "0"
        elif option == "wait_for":
            self._current.wait_for = slug(value, fallback="")
        if option in _LEFT_OUT and option != "filesize":
            self.became(option, f"left out, because {_LEFT_OUT[option]}")
        if option in _OF_SIZE or option not in {*_LEFT_OUT, *_DROPPED}:
            options = self._current.options
            if option in self._seen and options.get(option, value) != value:
                self.became(
                    f"{option}={options[option]}", "a later line of its section replaces it, as in fio"
                )
            if option not in self._seen:  # what was refused is [global]'s
                self._current.refused.discard(option)
            self._seen.add(option)
            options[option] = value

    def require_none(self, source: str) -> None:
        """UsageError with all obstacles."""
        refused = [
            f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}: {message}"
            for message, (_, lines) in self._obstacles.items()
        ]
        if len(refused) == 1:
            ((hint, _),) = self._obstacles.values()
            raise UsageError(f"{source}, {refused[0]}", hint=hint)
        if refused:
            more = [f"and {len(refused) - _MOST_NAMED} more"] if len(refused) > _MOST_NAMED else []
            aim, hint = "fit on the storage", _NO_ROOM
            if any(each != _NO_ROOM for each, _ in self._obstacles.values()):
                aim, hint = "read and write a device of the harness's", _SEE
            raise UsageError(
                f"{source}: expected jobs that {aim}, found others",
                hint=hint,
                obstacles=(*refused[:_MOST_NAMED], *more),
            )


def _section_name(line: str) -> str:
    """The row's name for a section."""
    if not line.endswith("]"):
        raise UsageError(f"expected [NAME], found {shown(line)}", hint="close the bracket")
    # Letters in upper case, blanks, / and % are common in names, and cannot be in those of rows.
    name = slug(line[1:-1], fallback="")
    if not name or not line.isprintable():
        return check_name("section", line[1:-1])
    # init.c compares six characters, so [globals] would be another [global].
    if line != "[global]" and name.startswith("global"):
        raise UsageError(
            f"fio takes the section {shown(line[1:-1])} for [global]", hint="start its name differently"
        )
    return name


def _option(line: str, became: _Became) -> tuple[str, str]:
    """One line as an option's own name and its checked value; a flag without value is "1"."""
    key, equals, value = (part.strip() for part in line.partition("="))
    # init.c recognises an include by the beginning of the line, before it looks for an option.
    if line.startswith("include"):
        raise UsageError(
            f"expected a file in the job file's folder, without includes of its own, found {shown(line)}",
            hint="copy the file's lines into this one",
        )
    option = _ALIASES.get(key, key)
    if option in _DROPPED or option in _LEFT_OUT:
        return option, value
    if option in _REFUSED:
        raise UsageError(f"option {shown(key)} is refused: {_REFUSED[option]}", hint="remove it")
    _check_known(option, key)
    # Not of an option that is refused whatever its value is.
    if variable := _VARIABLE.search(value):
        raise UsageError(
            f"option {shown(key)}: fio would insert the value of {variable[0]}, which "
            "may differ between machines",
            hint=f"write its value instead of {variable[0]}",
        )
    if option in _FLAGS and not equals:
        value = "1"
    if option == "ioengine" and value in _LIKE:
        became(f"ioengine={value}", f"{_LIKE[value]}, its equivalent on Linux")
        value = _LIKE[value]
    # fio takes 100%%, as printf(1) needs it, for 100%.
    if option in ("size", "offset") and value.endswith("%%"):
        value = value[:-1]
    _check_value(option, key, value)
    if option in _OPPOSITES:
        other, whole = _OPPOSITES[option]
        return other, str(whole - int(value))
    return option, value


def _meant(key: str) -> str:
    """The option that a key is, or may be a typo of."""
    option = _ALIASES.get(key, key)
    return option if option in {*_CHECKS, *_REFUSED, "include"} else closest(key, _CHECKS) or key


def _check_known(option: str, key: str) -> None:
    """UsageError for an option that is not passed on."""
    if option not in _CHECKS:
        near = closest(key, _CHECKS)
        raise UsageError(
            f"the harness does not pass option {shown(key)} on to fio",
            hint=f"did you mean {near}?" if near else f"remove it; {_SEE}",
        )


def _check_value(option: str, key: str, value: str) -> None:
    """UsageError for a value that the option cannot have."""
    if expected := refusal(option, value):
        raise UsageError(
            f"option {shown(key)}: expected {expected}, found {shown(value)}",
            hint=f"'fio --cmdhelp={option}' describes it",
        )


def refusal(option: str, value: str) -> str | None:
    """What was expected of an option that is accepted; None if it can have this value."""
    return _CHECKS[option](value)


def check_job(job: Job) -> None:
    """UsageError for a workload that no job file could give: its name, or an option that is not accepted."""
    check_name("section", job.name)
    for option, value in job.options:
        _check_known(option, option)
        # The value of a flag is None.
        _check_value(option, option, "1" if value is None and option in _FLAGS else value or "")


def _job(name: str, section: _Section, became: _Became) -> Job:
    """The job. Without what was refused it needs the least room that the user can have meant."""
    options = {option: value for option, value in section.options.items() if option not in section.refused}
    file_size, files = options.pop("filesize", None), options.pop("nrfiles", "1")
    if file_size is not None:
        if files == "1" and "size" not in {*options, *section.refused} and _sizes(1)(file_size) is None:
            options["size"] = file_size
            became("filesize", "used as the size of a job that has none, as fio does")
        else:
            became("filesize", f"left out, because {_LEFT_OUT['filesize']}")
    values: dict[str, str | None] = {"rw": "read"}
    if not {"bsrange", "bssplit"} & options.keys() and not {"bs", "bsrange", "bssplit"} & section.refused:
        values["bs"] = str(DEFAULT_BLOCK_BYTES)
    writes = moves_write(Job(name=name, options=tuple(options.items())))
    for option, value in options.items():
        if option == "verify" and value == "0":
            continue  # none: as without
        if not writes and "verify" in option:
            became(f"{option} of {name}", "left out, because a job alone can only verify what it wrote")
        elif option not in _FLAGS:
            values[option] = value
        elif value == "1":
            values[option] = None
    if (values.get("io_submit_mode"), values.get("rate_process")) == ("offload", "poisson"):
        # Seen with fio 3.33, in the example poisson-rate-submission.
        became(f"io_submit_mode of {name}", "left out, because with rate_process=poisson fio would never end")
        del values["io_submit_mode"]
    if "time_based" in values and "runtime" not in values:
        became(f"time_based of {name}", "left out, as fio does without a runtime")
        del values["time_based"]
    return Job(name=name, options=tuple(values.items()))


def _check_ramp(name: str, options: Mapping[str, str]) -> None:
    if "runtime" in options and _seconds(options, "ramp_time") > _seconds(options, "runtime"):
        raise UsageError(
            f"section {shown(name)}: expected ramp_time to be at most runtime, "
            f"found {shown(options['ramp_time'])}",
            hint="otherwise fio would not measure as asked: raise runtime or lower ramp_time",
        )


def job_file(
    job: Job,
    *,
    device: str,
    size_bytes: int,
    offset_bytes: int = 0,
    seed: int,
    runtime_s: float | None = None,
    clock: Clock = Clock.REAL,
    has_tested_clock: bool = False,
    log: str | None = None,
) -> str:
    """The job file of one cell: one section, for ``fio FILE`` or ``fio -``.

    ``device`` is an absolute path and ``size_bytes`` its size; a job without ``size``, or with a larger one,
    gets all of it after ``offset``. All that it does is from ``offset_bytes`` on, as if the device began
    there. ``seed`` is fio's ``randseed`` (see ``repeat_seed``). A profile's
    randrepeat=0 asks for fresh randomness and gets no seed, so such a cell is not repeatable. ``runtime_s``
    makes the job run for that many seconds, whatever the profile says. In virtual time fio must ask the
    kernel for the time: its own clock is the processor's (tsc), which goes on while virtual time stands
    still. ``has_tested_clock``: fio need not test that clock before it takes it. ``log`` is the beginning of
    the path of a file for the bandwidth over time (``parse.fiolog``), if any.

    UsageError if the job reaches beyond the device, or if an argument is out of range.
    """
    options = dict(job.options)
    label = f"workload {shown(job.name)}"
    if not re.fullmatch(r"(?!.*/\.\.?(/|$))/[A-Za-z0-9_.:/+@-]{1,254}", device):
        raise UsageError(f"expected the path of a device, found {shown(device)}", hint="try /dev/sdb")
    if runtime_s is not None:
        if not max(1e-6, _seconds(options, "ramp_time")) <= runtime_s <= LARGEST / 1e9:
            raise UsageError(
                f"{label}: expected a runtime above 0 and not below its ramp_time, found {runtime_s} s",
                hint="try 2s",
            )
        options |= {"runtime": f"{round(runtime_s * 1e6)}us", "time_based": None}
    size = _size_on(size_bytes, options, label)
    settings: dict[str, str | None] = {"filename": device.replace(":", "\\:"), **options, "size": str(size)}
    if offset_bytes:
        settings["offset"] = str(offset_bytes + _bytes(options.get("offset"), size_bytes))
    if not _DIRECT & options.keys():
        settings["direct"] = "1"
    if settings.setdefault("randrepeat", "1") == "1":
        settings["randseed"] = str(seed)
    # Blocks that are filled once and sent repeatedly could be compressed or deduplicated on the way.
    if not {"zero_buffers", "buffer_pattern"} & options.keys():
        settings["refill_buffers"] = None
    # A device that has gone stays gone: otherwise fio would make a regular file of that name and measure it.
    settings["allow_file_create"] = "0"
    # It would be a file in the folder where fio is started, perhaps on somebody's machine.
    settings["verify_state_save"] = "0"
    # Threads of one process, which ends as a whole when it is killed; fio's job processes leave its session.
    settings["thread"] = None
    if clock is Clock.VIRTUAL:
        settings["clocksource"] = "clock_gettime"
    elif has_tested_clock:
        settings["clocksource"] = "cpu"
    if log is not None:
        # For all jobs together, in the order in which they end.
        interval_ms = max(LOG_INTERVAL_MS, round(1000 * _seconds(options, "runtime") / MOST_LOGGED))
        settings |= {"write_bw_log": log, "log_avg_msec": str(interval_ms), "per_job_logs": "0"}
    settings |= {"group_reporting": None, "lat_percentiles": "1", "percentile_list": PERCENTILES}
    lines = [option if value is None else f"{option}={value}" for option, value in settings.items()]
    return "\n".join([f"[{job.name}]", *lines, ""])


def together(jobs: Sequence[str]) -> str:
    """One job file from several (``job_file``); fio starts its jobs at the same moment and reports each
    separately."""
    # Else all of them would be one group, and have one report.
    return "".join(job.replace("]\n", "]\nnew_group\n", 1) for job in jobs)


def _size_on(size_bytes: int, options: Mapping[str, str | None], label: str) -> int:
    """How much of a device the job uses. UsageError if it has no room for one block there."""
    reach = _bytes(options.get("offset"), size_bytes)
    reach += _bytes(options.get("offset_increment"), size_bytes) * (int(options.get("numjobs") or 1) - 1)
    size = min(_bytes(options.get("size", "100%"), size_bytes), size_bytes - reach)
    block = _largest_block(options)
    if size < max(block, 1):
        # A job whose block size was refused has none.
        blocks = f"{format_size(block)} blocks" if block else "blocks"
        raise UsageError(
            f"{label}: expected blocks, offset and size to fit on {format_size(size_bytes)}, "
            f"found {blocks} up to {format_size(reach + max(size, 0))}",
            hint=_NO_ROOM,
        )
    return size


def shortened(job: Job, size_bytes: int) -> str | None:
    """What a job gets of its ``size`` where the device has less; None where it has that."""
    options = dict(job.options)
    asked, got = _bytes(options.get("size"), size_bytes), _size_on(size_bytes, options, job.name)
    return None if asked <= got else f"size={options['size']} is {format_size(got)}"


def moved_bytes(job: Job, size_bytes: int) -> int | None:
    """How much a job moves on a device of ``size_bytes`` until it ends, in all its fio jobs, unless its
    runtime ends it before; None of one that is time_based."""
    options = dict(job.options)
    if "time_based" in options:
        return None
    size = _size_on(size_bytes, options, job.name)
    if number := int(options.get("number_ios") or 0):
        size = min(size, number * max(_largest_block(options), 1))
    size = _bytes(options.get("io_size"), size_bytes) or size
    return size * int(options.get("loops") or 1) * int(options.get("numjobs") or 1)


def repeat_seed(seed: int, repeat: int, workload: str) -> int:
    """The seed of one cell: another for each repeat and workload, and the same whenever they are the same.

    fio's default, randrepeat=1 with its own seed, would visit the same blocks in every repeat. From 1 to
    2**31 - 1, which every version of fio reads.
    """
    digest = hashlib.blake2b(f"{seed}:{repeat}:{workload}".encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest) % (2**31 - 1)


def is_repeatable(job: Job) -> bool:
    """Whether the job uses the seed that it is given (randrepeat=0 asks for other offsets every time)."""
    return dict(job.options).get("randrepeat", "1") == "1"


@functools.lru_cache(maxsize=4096)
def described(job: Job) -> Workload:
    """What a job does. With synchronous engines its depth is always 1; an open loop has none."""
    options = dict(job.options)
    rate_iops = positive(options, "rate_iops") if is_open_loop(job) else None
    word = _direction(job)
    reads, writes = moves_read(job), moves_write(job)
    return Workload(
        name=job.name,
        direction="both" if reads and writes else "read" if reads else "write" if writes else None,
        pattern=None if not (reads or writes) else "random" if word.startswith("rand") else "sequential",
        block_bytes=block_bytes(job),
        depth=None if rate_iops else 1 if is_synchronous(job) else positive(options, "iodepth") or 1,
        numjobs=positive(options, "numjobs") or 1,
        rate_bytes_s=_size(options.get("rate") or ""),
        rate_iops=rate_iops,
    )


def is_past_page_cache(job: Job) -> bool:
    """Whether fio opens what it measures with O_DIRECT, as it does here unless the job says otherwise."""
    options = dict(job.options)
    if "direct" in options:
        return options["direct"] not in ("0", "false")
    return options.get("buffered", "0") in ("0", "false")


def is_open_loop(job: Job) -> bool:
    """Whether requests are due at random times, in fio's words. No job file has these together (``_job``),
    because fio cannot do it: such jobs are carried out by ``runs/programs/open_loop.py``."""
    options = dict(job.options)
    return (options.get("io_submit_mode"), options.get("rate_process")) == ("offload", "poisson")


def is_synchronous(job: Job) -> bool:
    """Whether its engine does one I/O at a time, whatever ``iodepth`` says."""
    return (dict(job.options).get("ioengine") or "psync") in _SYNCHRONOUS


def block_bytes(job: Job) -> int | None:
    """Bytes of every I/O of the workload; None if they differ."""
    options = dict(job.options)
    if {"bsrange", "bssplit"} & options.keys():
        return None
    # One value stands for reads and writes; in a list, an omitted value has fio's default.
    parts = (options.get("bs") or "").split(",")
    read, write = parts[0], parts[1] if len(parts) > 1 else parts[0]
    used = [text for text, moves in ((read, moves_read), (write, moves_write)) if moves(job)]
    sizes = {_size(text) or DEFAULT_BLOCK_BYTES for text in used}
    return sizes.pop() if len(sizes) == 1 else None


def moves_read(job: Job) -> bool:
    """Whether the job itself reads (a verification after a write does not count)."""
    return _direction(job) in _READS


def moves_write(job: Job) -> bool:
    """Whether the job writes."""
    return _direction(job) in _WRITES


def wall_estimate_s(job: Job, runtime_s: float | None = None) -> float:
    """Seconds of wall time to allow one cell, without fio's own start, but with ramp_time.

    ``runtime_s`` replaces the job's own runtime.
    """
    options = dict(job.options)
    if runtime_s is None and "runtime" not in options:
        return SIZE_BOUND_CELL_S
    measured = _seconds(options, "runtime") if runtime_s is None else runtime_s
    return _seconds(options, "ramp_time") + measured


def _direction(job: Job) -> str:
    direction = (dict(job.options).get("rw") or "read").partition(":")[0]
    return "rw" if direction == "readwrite" else direction


def _size(text: str) -> int | None:
    match = _FIO_SIZE.fullmatch(text)
    return int(match[1]) * 1024 ** " kmgtp".index(match[2].lower() or " ") if match else None


def _bytes(text: str | None, whole: int) -> int:
    """A checked size, or that percentage of ``whole``; 0 if there is none."""
    if text is not None and text.endswith("%"):
        return whole * int(text[:-1]) // 100
    return _size(text or "0") or 0


def _seconds(options: Mapping[str, str | None], option: str) -> float:
    """A checked time; 0 if it is not set."""
    match = _FIO_TIME.fullmatch(options.get(option) or "0")
    return int(match[1]) * _MICROSECONDS[(match[2] or "s").lower()] / 1e6 if match else 0.0


def _largest_block(options: Mapping[str, str | None]) -> int:
    """The largest number in ``bs``, ``bsrange`` or ``bssplit``; the latter's percentages are never it."""
    texts = (options.get(option) or "" for option in ("bs", "bsrange", "bssplit"))
    return max(_size(part) or 0 for text in texts for part in re.split("[-:,/]", text))
