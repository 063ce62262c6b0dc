"""The store: what a run writes under ``results/<run id>/``, and everything that can be read as results.

``docs/results.md`` describes the files. Readers are strict: a record that cannot be read is an error that
names the file, because a table without that record would still look complete. Commands note such errors, and
name the records below what they show of the others (``harness.model.unread``).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import secrets
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from harness.analysis import sanity
from harness.model import (
    FIO_SOURCE,
    SCHEMA_VERSION,
    Cell,
    Plan,
    Record,
    Status,
    probing,
    texts,
    unread,
)
from harness.model.errors import Unreadable, UsageError
from harness.model.escape import printable
from harness.model.telemetry import UNSTEADY
from harness.parse.files import kind_of, read_bytes, shown_path, unreadable
from harness.results.machine import MACHINE
from harness.results.probe_records import ProbeRecord

if TYPE_CHECKING:
    from harness.results import upgrade

RESULTS = "results"
"""The folder of runs, unless another is named."""

SHARED = ".zip"
"""The suffix of a shared run."""

_RUNS_FILES = ("plan.json", "environment.json", "reread.json", "events.jsonl", "console.log", "disk.log")
_RUNS_FOLDERS = ("cells", "probes", "raw", "columns")
_FIO_MARKS = (b'"fio version"', b": (groupid=")
_PROSE = re.compile(rb"\s*(?:\xef\xbb\xbf)?[A-Za-z#].{7}", re.DOTALL)
"""How no JSON of this size begins, within the first ``_LOOKED_AT`` bytes: a file may be 256 MiB of blanks."""
_LOOKED_AT = 4096
_MOST_FILES = 10_000
_RESTORE = "restore the file from a copy, or move it elsewhere to go on without it"
_CALLED = {"record": "record", "plan": "plan", "probe": "record of a probe"}
_RECORD_DECODER = msgspec.json.Decoder(Record)
_PLAN_DECODER = msgspec.json.Decoder(Plan)
_PROBE_DECODER = msgspec.json.Decoder(ProbeRecord)
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_SNIFFED_BYTES = 1 << 20


T = TypeVar("T")


class _AnyFile(msgspec.Struct):
    """What records and plans of every version have in common."""

    run_id: str = ""
    schema: int = 0


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` so that ``path`` holds either all of it or what it held before, even after a power cut.

    An existing file keeps its mode. Fails with OSError (full, read-only), and leaves nothing behind.
    """
    # The name is new, so nobody can have made a link of that name beforehand.
    scratch = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        made = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(made, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.lstat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    # The new name is durable only after the folder itself is on the disk: fsync(2).
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_out(path: Path, data: bytes) -> None:
    """Write ``data`` where a user wants it: to a file as in ``write_atomically``, to a device or pipe as it
    is.

    Symbolic links are not followed, because somebody else may have planted them; those in /dev are the
    system's. OSError if it is not possible to write there.
    """
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and path.is_relative_to("/dev"):
            mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISREG(mode) and not path.is_symlink():
        if _is_of_a_run(path):
            raise PermissionError(errno.EACCES, "a run's own files are there, and would be lost")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "it is write-protected")
        write_atomically(path, data)
        return
    if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, f"it is {kind_of(mode)}")
    # Do not wait for a pipe that nobody reads.
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        os.set_blocking(descriptor, True)
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]


def _is_of_a_run(path: Path) -> bool:
    """Whether a run keeps its own there: by the names in its folder, which may be the user's too."""
    path = path.absolute()
    if path.name in _RUNS_FILES and RunFolder.is_at(path.parent):
        return True
    kept = (folder for folder in path.parents[:3] if folder.name in _RUNS_FOLDERS)
    return any(RunFolder.is_at(folder.parent) for folder in kept)


def record_key(record: Record) -> str:
    """File name stem of a record: the key of the cell that it measured."""
    return Cell(record.column, record.workload.name, record.repeat).key


@dataclass(frozen=True)
class RunFolder:
    """One run's folder, ``results/<run id>/``. Its sub-folders are made when something is written to them.

    It may be somebody else's folder, so symbolic links in it are never followed.
    """

    path: Path

    @staticmethod
    def is_at(path: Path) -> bool:
        try:
            return (path / "cells").is_dir() or os.path.lexists(path / "plan.json")
        except OSError as error:
            raise unreadable(path, error) from error

    @property
    def run_id(self) -> str:
        """The run's id, by its plan, or else by its first record; without any, the folder's name."""
        if self.has_plan:
            return self.load_plan().run_id
        # A folder may have been renamed, or copied without its plan.
        first = next((file for kind in ("cells", "probes") for file in self.entries(kind)), None)
        found = ""
        with contextlib.suppress(*_UNDECODABLE):
            if first is not None:
                found = msgspec.json.decode(read_bytes(first, follow=False), type=_AnyFile).run_id
        return found or self.path.resolve().name

    @property
    def has_plan(self) -> bool:
        """UsageError if the folder cannot be searched: it may well have one."""
        try:
            (self.path / "plan.json").lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise unreadable(self.path, error) from error
        return True

    def save_plan(self, plan: Plan) -> None:
        self.write(self.path / "plan.json", msgspec.json.encode(plan))

    def load_plan(self) -> Plan:
        """The plan. UsageError if it is missing, damaged, of a later version, or could not have been
        typed."""
        file = self.path / "plan.json"
        if not self.has_plan:
            raise UsageError(
                f"expected a run's folder, found no plan.json in {shown_path(self.path)}",
                hint="name a folder like results/RUN-ID",
            )
        plan = decode(_PLAN_DECODER, "plan", file, read_bytes(file, follow=False))
        from harness.results import rules  # here, because most readers of results do not read a plan

        rules.check(plan, shown_path(file))
        return plan

    def require_plain(self) -> None:
        """UsageError if the folder has links (hard or symbolic), pipes or devices: it is about to be written
        to."""
        for folder, folders, files in os.walk(self.path, onerror=_raise):
            for name in (*folders, *files):
                file = os.lstat(f"{folder}/{name}")
                if not (stat.S_ISREG(file.st_mode) or stat.S_ISDIR(file.st_mode)):
                    raise UsageError(
                        f"{printable(f'{folder}/{name}')}: expected files and folders in a run's folder, "
                        f"found {kind_of(file.st_mode)}",
                        hint="remove it, if you know who made it",
                    )
                if stat.S_ISREG(file.st_mode) and file.st_nlink > 1:
                    raise UsageError(
                        f"{printable(f'{folder}/{name}')}: expected a file with one name, found one with "
                        f"{file.st_nlink}: writing to it would change the others too",
                        hint=f"copy the folder and name the copy: cp -r {shlex.quote(str(self.path))} COPY",
                    )

    def save_environment(self, environment: dict[str, Any]) -> None:
        """``environment``: JSON types only; see docs/results.md for the keys.

        What is known of the machine that the lab runs on stays: the lab itself does not know it.
        """
        kept = {}
        with contextlib.suppress(UsageError):
            kept = {key: value for key, value in self.load_environment().items() if key == MACHINE}
        self.write(self.path / "environment.json", msgspec.json.encode({**kept, **environment}))

    def load_environment(self) -> dict[str, Any]:
        """The environment; empty if the run ended before it was known."""
        file = self.path / "environment.json"
        if not os.path.lexists(file):
            return {}
        data = read_bytes(file, follow=False)
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except _UNDECODABLE as error:
            raise _damaged(file, "environment", data, error) from error

    def save_record(self, record: Record) -> Path:
        """Write the record of one cell and repeat; it replaces an earlier one of the same cell."""
        file = self.path / "cells" / f"{_safe(record_key(record))}.json"
        self.write(file, msgspec.json.encode(record))
        return file

    def record_files(self) -> list[Path]:
        """The records' files, ordered by name."""
        return self.entries("cells")

    def entries(self, kind: str) -> list[Path]:
        """The JSON files in a sub-folder of the run's, ordered by name; none if there is no such folder."""
        folder = self.path / kind
        if not os.path.lexists(folder):
            return []
        if folder.is_symlink() or not folder.is_dir():
            raise UsageError(
                f"{shown_path(folder)}: expected a folder, found {kind_of(folder.lstat().st_mode)}",
                hint="a run's folder may not have links: copy what it points to",
            )
        return [file for file in _entries(folder) if file.name.endswith(".json")]

    def has_records(self) -> bool:
        """Whether anything was measured, cells or probes."""
        return any(any((self.path / kind).glob("*.json")) for kind in ("cells", "probes"))

    def load_records(self) -> list[Record]:
        """All records so far. What cannot be read is noted (``harness.model.unread``), naming the file."""
        return list(unread.each(self.record_files(), _of_run))

    def raw_folder(self, cell_key: str) -> Path:
        """The folder for the unmodified outputs of a cell's tools; it is made if it is missing."""
        folder = self.path / "raw" / _safe(cell_key)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def new_raw_folder(self, cell_key: str) -> Path:
        """The same, empty: what an earlier attempt left there is kept next to it."""
        set_aside(self.path / "raw" / _safe(cell_key))
        return self.raw_folder(cell_key)

    def save_probe(self, record: ProbeRecord) -> Path:
        """The same of one probe."""
        file = self.path / "probes" / f"{record.key}.json"
        self.write(file, msgspec.json.encode(record))
        return file

    def load_probes(self) -> list[ProbeRecord]:
        """All records of probes, as ``load_records``."""
        return list(unread.each(self.entries("probes"), _probe_of_run))

    @staticmethod
    def write(file: Path, data: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, msgspec.json.format(data, indent=1) + b"\n")


def set_aside(folder: Path) -> None:
    """Keep the raw outputs in ``folder`` as ``<folder>.attempt-<number>``, because their cell or probe is
    about to be measured again. Nothing reads them there; a record lists the files of its own attempt."""
    if folder.is_dir() and any(folder.iterdir()):
        attempts = (folder.with_name(f"{folder.name}.attempt-{number}") for number in itertools.count(1))
        folder.rename(next(place for place in attempts if not place.exists()))


def _of_run(file: Path) -> Record:
    """A record in a run's folder."""
    record = load_record(file, follow=False)
    if UNSTEADY.isdisjoint(record.warnings):
        return record
    from harness.results import bandwidth_series  # here, because most records need none

    return bandwidth_series.judged_anew(record, file.parent.parent)


def _probe_of_run(file: Path) -> ProbeRecord:
    record = decode(_PROBE_DECODER, "probe", file, read_bytes(file, follow=False))
    if record.probe.SENDS:  # a cipher probe has no parameters to check
        try:
            probing.check(record.probe)
        except UsageError as error:
            raise Unreadable(f"{shown_path(file)}, probe: {error.message}", hint=error.hint) from error
    return record


def load_record(file: Path, *, follow: bool = True) -> Record:
    """One record; INVALID if its figures contradict one another.

    UsageError if it is damaged, out of range or of a later version of the harness.
    """
    data = read_bytes(file, follow=follow)
    if _PROSE.match(data, 0, _LOOKED_AT) and _remedy(file) is _RESTORE:
        from harness.parse.embedded import quote

        begins = quote(data[:1000].decode(errors="replace"))
        raise Unreadable(
            f"{shown_path(file)}: expected a record of the harness or an output of fio, found a text that "
            f"begins with {begins}",
            hint="let fio finish, and keep what it writes with --output-format=json --output=FILE",
        )
    record = decode(_RECORD_DECODER, "record", file, data)
    if record.setting.source == FIO_SOURCE:
        # The ``raw`` of these names files anywhere, which a record may not choose.
        raise Unreadable(
            f"{shown_path(file)}: expected a record of the harness, found the source {FIO_SOURCE}",
            hint="name fio's output itself",
        )
    if record.status is Status.OK and (against := sanity.contradictions(record)):
        reason = f"the record contradicts itself: {'; '.join(against)}"
        return msgspec.structs.replace(record, status=Status.INVALID, reason=reason)
    return record


def _readable(files: Iterable[Path], asked: Set[Path], read: Callable[[Path], T]) -> Iterator[T]:
    """What ``read`` makes of each file. One that is not named itself may be anybody's: if anything is wrong
    with it, it is noted and left out."""
    for file in files:
        try:
            found = read(file)
        except UsageError as error:
            if file.resolve() in asked:
                raise
            unread.note(Unreadable(error.message, hint=error.hint))
        else:
            yield found


def open_results(paths: Sequence[Path | str], *, with_probes: bool = False) -> list[Record]:
    """All records in ``paths``: run folders, shared runs, folders of those, records, fio's JSON outputs,
    folders of them.

    A record found twice (a copy, a link to the latest run) counts once. In a folder of loose files and below
    it, every file that looks like fio's output is read as that. Of the others, each ``*.json`` must be a
    record, unless there are run folders next to it. What cannot be read in a folder is noted
    (``harness.model.unread``). UsageError for what is named itself, if nothing at all can be read, and for a
    path without anything to read. ``with_probes``: records of probes alone are enough.
    """
    loose: list[Path] = []
    of_runs: list[Path] = []
    fio_files: list[Path] = []
    for path in map(_opened, paths):
        runs = _runs_in(path)
        records, fio = ([], []) if runs and runs[0].path == path else _files_in(path, with_runs=bool(runs))
        in_runs = [file for run in runs for file in run.record_files()]
        has_probes = with_probes and any(run.entries("probes") for run in runs)
        if not (records or fio or in_runs or has_probes):
            raise UsageError(
                f"{shown_path(path)} holds no results",
                hint="measure some with 'harness run', or name a run's folder, a record or a fio output; "
                "for probes add --view",
            )
        loose += records
        of_runs += in_runs
        fio_files += fio
    asked = {Path(path).resolve() for path in paths}
    with unread.passed_on() as lost:
        found = list(unread.each(of_runs, _of_run))
        found += _readable(loose, asked, load_record)
        if fio_files:
            # Here, because most tables do not read a fio output.
            from harness.results import plain, plain_columns

            distinct = {file.resolve(): file for file in fio_files}
            found += plain_columns.in_columns([*_readable(distinct.values(), asked, plain.opened)])
        if not found and not with_probes:
            raise lost[0]
    return _without_copies(found)


def open_runs(paths: Iterable[Path | str]) -> list[RunFolder]:
    """The run folders in ``paths``, each once, for what they have besides the records."""
    folders: dict[Path, RunFolder] = {}
    for path in map(_opened, paths):
        for run in _runs_in(path):
            folders.setdefault(run.path.resolve(), run)
    return list(folders.values())


def open_probes(paths: Iterable[Path | str]) -> list[ProbeRecord]:
    """The records of probes of the runs in ``paths``."""
    return [record for run in open_runs(paths) for record in run.load_probes()]


def open_plans(paths: Iterable[Path | str]) -> dict[str, Plan]:
    """The plans of the runs in ``paths``, by run id; a run folder without a plan is skipped."""
    plans = [run.load_plan() for run in open_runs(paths) if run.has_plan]
    return {plan.run_id: plan for plan in plans}


def open_environments(paths: Iterable[Path | str]) -> dict[str, dict[str, Any]]:
    """The environments of the runs in ``paths``, by run id."""
    return {run.run_id: run.load_environment() for run in open_runs(paths)}


def _files_in(path: Path, *, with_runs: bool) -> tuple[list[Path], list[Path]]:
    """The loose files that ``path`` stands for, itself or what is in it: records, and fio's outputs.

    A folder's sub-folders are looked into as well, except for runs, and where there are runs in the folder
    itself.
    """
    if not path.is_dir():
        return ([], [path]) if _is_fio_output(path) else ([path], [])
    found = _entries(path) if with_runs else [Path(at, name) for at, names in below(path) for name in names]
    files = [file for file in found if file.is_file()]
    looked_at = list(unread.each(files, lambda file: (file, _is_fio_output(file))))
    records = [file for file, is_fio in looked_at if not is_fio and file.suffix == ".json" and not with_runs]
    return records, [file for file, is_fio in looked_at if is_fio]


def below(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A folder and those below it, each with the names of its files, without runs and what is hidden.

    What may not be entered is noted (``harness.model.unread``). UsageError for more than ``_MOST_FILES``
    files.
    """
    count = 0
    for place, folders, files in os.walk(
        folder, onerror=lambda error: unread.note(unreadable(error.filename, error))
    ):
        folders[:] = sorted(name for name in folders if name[0] != "." and not _is_run(Path(place, name)))
        found = sorted(name for name in files if name[0] != ".")
        count += sum(not name.endswith(".log") for name in found)  # of which a job may write four
        if count > _MOST_FILES:
            raise UsageError(
                f"{shown_path(folder)}: expected results, found more than {_MOST_FILES} files",
                hint="name the folder that has fio's outputs",
            )
        yield place, found


def _is_run(folder: Path) -> bool:
    """Whether it is a run's, as far as that can be seen."""
    with contextlib.suppress(UsageError):
        return RunFolder.is_at(folder)
    return False


def _require(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError as error:
        raise UsageError(f"{shown_path(path)} does not exist", hint="'harness run' makes results/") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:  # a NUL in the name
        raise UsageError(
            f"expected a path, found '{shown_path(path)}'", hint="name a file or folder"
        ) from error


def _is_fio_output(file: Path) -> bool:
    """Whether it has fio's version or, in the text for people, a group of jobs near the beginning."""
    begins = read_bytes(file, first=_SNIFFED_BYTES)
    return any(mark in begins for mark in _FIO_MARKS)


def _opened(path: Path | str) -> Path:
    """What is named, or the folder with what a shared run has."""
    _require(Path(path))
    return Path(path) if Path(path).is_dir() else _unpacked(Path(path))


def _unpacked(file: Path) -> Path:
    from harness.results import archive  # here, because most results are folders

    return archive.unpacked(file)


def _runs_in(path: Path) -> list[RunFolder]:
    if RunFolder.is_at(path):
        return [RunFolder(path)]
    if not path.is_dir():
        return []
    entries = _entries(path)
    runs = [RunFolder(entry) for entry in entries if RunFolder.is_at(entry)]
    own = {run.run_id for run in runs} if (shared := list(_shared_in(entries))) else set()
    return [*runs, *(run for run in shared if run.run_id not in own)]


def _shared_in(entries: Iterable[Path]) -> Iterator[RunFolder]:
    """The shared runs among the entries of a folder; other archives are none of ours."""
    for entry in entries:
        if entry.suffix == SHARED:
            try:
                folder = _unpacked(entry)
            except Unreadable as error:
                unread.note(error)
            except UsageError:
                continue
            else:
                if RunFolder.is_at(folder):
                    yield RunFolder(folder)


def _entries(folder: Path) -> list[Path]:
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise unreadable(folder, error) from error
    return sorted(entries, key=lambda entry: entry.name)


def _without_copies(records: Iterable[Record]) -> list[Record]:
    distinct: dict[tuple[object, ...], Record] = {}
    for record in records:
        identity = (record.run_id, record.column, record.workload.name, record.repeat)
        other = distinct.setdefault(identity, record)
        if other is not record and other != record:
            raise UsageError(
                f"run {printable(record.run_id)} has two different records of the cell "
                f"{printable(record_key(record))}",
                hint="name only one of the two folders",
            )
    return list(distinct.values())


def decode(decoder: msgspec.json.Decoder[T], kind: upgrade.FileKind, file: Path, data: bytes) -> T:
    """Decode a file of this or an earlier version. UsageError if it is damaged, or of a later version."""
    try:
        version = msgspec.json.decode(data, type=_AnyFile).schema
        if version > SCHEMA_VERSION:
            raise Unreadable(
                f"{shown_path(file)} was written by a later version "
                f"(schema {version}, this one knows {SCHEMA_VERSION})",
                hint="read it with the version of the harness that wrote it, or a later one",
            )
        if version == SCHEMA_VERSION:
            return decoder.decode(data)
        found: T = msgspec.convert(_upgraded(kind, data, version), decoder.type, str_keys=True)
        return found
    except _UNDECODABLE as error:
        raise _damaged(file, _CALLED[kind], data, error) from error


def _upgraded(kind: upgrade.FileKind, data: bytes, version: int) -> upgrade.Json:
    """A file of an earlier version as one of this. DecodeError if it has not the shape of its version."""
    from harness.results import upgrade  # here, because most files are of this version

    try:
        return upgrade.upgraded(kind, msgspec.json.decode(data), version, SCHEMA_VERSION)
    except upgrade.MISSHAPEN as error:
        # Python's own words for it, such as 'ipsec' for a missing key, tell a reader nothing.
        raise msgspec.DecodeError(
            f"expected the fields of a {_CALLED[kind]} of schema {version}"
            if version
            else f"expected the fields of a {_CALLED[kind]}, found no 'schema'"
        ) from error


def _damaged(file: Path, what: str, data: bytes, error: Exception) -> Unreadable:
    read = None
    with contextlib.suppress(*_UNDECODABLE):
        read = msgspec.json.decode(data)
    found = printable(texts.in_words(error, read)) if data else "the file is empty"
    return Unreadable(f"{shown_path(file)} is not a readable {what}: {found}", hint=_remedy(file))


def _remedy(file: Path) -> str:
    """What to try with a damaged file: a record in a run's folder can be measured again."""
    run = file.parent.parent
    resumes = {"cells": "run", "probes": "probe"}.get(file.parent.name)
    from harness.model import temporary  # here, because most files can be read

    for shared in (file.parent, run):
        if shared.parent.name.startswith(temporary.PREFIX):
            return f"ask for {printable(shared.name)} again: it is damaged"
    if resumes is None or not (run / "plan.json").exists():
        return _RESTORE
    place = str(run) if "/" in str(run) else f"./{run}"
    return f"measure it again with 'harness {resumes} --resume {shlex.quote(place)}', or {_RESTORE}"


def _raise(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        return  # it is about to be made, or has just been removed
    raise unreadable(error.filename, error) from error


def _safe(key: str) -> str:
    """A cell's key as a file name. Names are checked where they are read; this is the last check."""
    if not key or "/" in key or "\0" in key or key.startswith(".") or len(os.fsencode(key)) > 240:
        raise UsageError(
            f"'{printable(key)}' cannot name a file", hint="use letters, digits, '-', '_' and '.' in names"
        )
    return key
