"""Which test modules of the real stack a change can reach: by imports, and by the files that a run reads.

A module below ``FOLDERS`` is reached by what it and its scripts import, by what every run imports, and by the
commands that it names. Of what a run finds by name (a transport, a protection, a link) only those modules are
reached that name it.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp
import msgspec

from harness.cli import COMMANDS
from harness.model import caches

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("harness", "tests", "bench")
FOLDERS = ("tests/lab", "tests/machines", "tests/systems", "tests/browser")
"""Whose modules boot something,"""

READ_ALONE = "tests/browser/"
"""or show what was measured."""

NOT_ON_CI = frozenset({"tests/systems/test_other.py"})

IN_A_RUN = ("runs", "probes", "testbeds", "protection", "network", "storage", "observe", "hosts")
"""Packages of which every run has some."""

READERS = ("explain", "report", "table", "questions")
"""Packages that read results. A run ends with a table and an answer, which the unit tests hold."""

MEASURE = ("run", "probe", "lab", "machine", "cpu_cost")
"""Modules of cli whose commands measure."""

EVERYTHING = (
    *("tests/conftest.py", "tests/flat.py", "tox.ini", ".ci/*", "packages*.txt", "pyproject.toml"),
    *("tests/lab/__init__.py", "tests/lab/isolated.sh", "tests/lab/conftest.py", "tests/lab/cli.py"),
    "harness/testbeds/lab/boot/*",
)
"""What every module stands on (fnmatch(3), where * matches / too)."""

BY_NAME: Mapping[str, str] = {
    "harness/storage/nvme/*": "nvme nvme-tcp TRANSPORTS KERNEL_TARGETS",
    "harness/analysis/wire/nvme.py": "nvme nvme-tcp TRANSPORTS KERNEL_TARGETS",
    "harness/storage/nbd/*": "nbd TRANSPORTS",
    "harness/analysis/wire/nbd.py": "nbd TRANSPORTS",
    "harness/storage/disks.py": "disk hdd-7200 sata-ssd virtual-time",
    "harness/storage/programs/harddisk.py": "disk hdd-7200 sata-ssd",
    "harness/storage/attached.py": "volume portal",
    "harness/storage/*reservations.py": "portal volume reservations shared-lun",
    "harness/storage/*reread.py": "portal volume caches",
    "harness/protection/wireguard/*": "wireguard",
    "harness/protection/macsec/*": "macsec mka",
    "harness/protection/tls/*": "tls",
    "harness/protection/tunnel/*": "portal found_protections openvpn",
    "harness/protection/pre_existing.py": "portal pre-existing",
    "harness/protection/ipsec/pre_existing.py": "portal pre-existing",
    "harness/protection/ipsec/offload.py": "aes128gcm16-gso gso",
    "harness/network/air/*": "wifi radio radios",
    "harness/network/paths/pppoe/*": "pppoe",
    "harness/network/paths/openflow/*": "openflow",
    "harness/network/paths/*": "switched routed pppoe openflow",
    "harness/network/interfaces.py": "interface interfaces nic0 target ssh",
    "harness/probes/*": "probe probes cpu-cost",
    "harness/observe/snmp/*": "snmp",
    "harness/observe/hops.py": "hop",
    "harness/testbeds/portals.py": "portal",
    "harness/testbeds/doctor.py": "doctor",
    "harness/testbeds/lab/per_host/*": "per-host kernels-per-host PER_HOST",
    "harness/testbeds/lab/persistent/*": "STAYS_UP persistent lab-daemon",
    "harness/testbeds/lab/kernels/*": "custom_kernel",
    "harness/runs/distributed.py": "initiators lab-initiators",
    "harness/runs/prober.py": "probe",
    "harness/runs/reread.py": "portal volume",
    "harness/questions/fault/*": "fault",
    "harness/questions/knee/*": "knee",
    "harness/questions/sweep/*": "sweep",
    "harness/questions/trial/*": "forecasts try",
    "harness/planning/cpu_costs.py": "cpu-cost",
    "harness/planning/existing/portal.py": "portal",
    "harness/planning/existing/volume.py": "volume",
    "harness/planning/simulated_cpu_costs.py": "cpu-costs",
}
"""What a run has only if it is asked for, and the words with which it is."""

OF_SYSTEMS = ("tools/*", "releases/*", "Makefile", "README.md", "docs/machines.md", "docs/install.md")
"""What tests/machines and tests/systems do as documented."""

DEFAULTS = frozenset({"wired", "wifi", "basic", "aes128gcm16"})
"""Profiles that runs take without naming them."""

COMMAND = r'"(\w+)"(?!, "all")|\.(table|explain)\('
"""A command of the harness in a test; and no table of ip(8)."""

WIDE = ("model", "hosts")
"""Packages of which a change has all that it reaches run, whatever that takes."""

LANE_S, ALL_S = 420.0, 1800.0
"""What a change of one other package may take: seconds of tests of one lane, and of all, four at a time."""

OFTEN = 20
"""So many green runs after one of everything, everything runs again,"""
WEEK_S = 7 * 86_400
"""and after so long."""


def test_modules() -> list[str]:
    """The files with tests that boot something."""
    files = (file for folder in FOLDERS for file in (ROOT / folder).glob("test_*.py"))
    return sorted({file.relative_to(ROOT).as_posix() for file in files} - NOT_ON_CI)


class Reach:
    """What each test module stands on, by the tree as it is."""

    def __init__(self) -> None:
        self.graph = grimp.build_graph(*PACKAGES, cache_dir=None)
        # What `import harness` loads only when a program uses it.
        self.graph.remove_import(importer="harness", imported="harness.api")
        # The same of what plans by results: CPU costs, forecasts.
        for importer in self._packages((*IN_A_RUN, "planning")):
            for imported in self.graph.find_modules_directly_imported_by(importer):
                if imported.startswith(tuple(f"harness.{package}" for package in READERS)):
                    self.graph.remove_import(importer=importer, imported=imported)
        self.in_a_run = self._closure(self._packages(IN_A_RUN))

    def by(self, changed: Iterable[str]) -> dict[str, str]:
        """The modules that changed files reach, each with the first of these."""
        found: dict[str, str] = {}
        for path in changed:
            for module in test_modules():
                if module not in found and self._is_reached(module, path):
                    found[module] = path
        return found

    def nearest_first(self, modules: Iterable[str], package: str) -> list[str]:
        """First the modules that import something of a package; the others in another order each time."""
        commit = _git("rev-parse", "HEAD")

        def order(module: str) -> tuple[bool, int]:
            texts = "".join(text_of(name) for name in self._sources(module))
            return f"harness.{package}" not in texts, zlib.crc32(f"{module}{commit}".encode())

        return sorted(modules, key=order)

    def _is_reached(self, module: str, path: str) -> bool:
        if path == module or any(fnmatch.fnmatchcase(path, pattern) for pattern in EVERYTHING):
            return True
        is_about_systems = not module.startswith("tests/lab/")
        if is_about_systems and any(fnmatch.fnmatchcase(path, pattern) for pattern in OF_SYSTEMS):
            return True
        top = path.partition("/")[0]
        words = self._words(module)
        if top in ("profiles", "ipsec"):
            return Path(path).suffix != ".md" and bool({Path(path).stem} & (words | DEFAULTS))
        if path.startswith("tests/data/"):
            return bool({*Path(path).parts[2:], Path(path).stem} & words)
        if path.startswith("tests/machines/"):
            return module.startswith("tests/machines/")
        if top not in PACKAGES or path.endswith("/README.md"):
            return False
        imported = self._imported(module)
        name = module_of(path)
        if name is None:  # a program or a table of its package
            name = ".".join(Path(path).parent.parts)
        elif name not in self.graph.modules:  # who imported what has gone is not known any more
            return top == "harness"
        own = next((found for pattern, found in BY_NAME.items() if fnmatch.fnmatchcase(path, pattern)), None)
        if own is not None and not name.startswith("tests"):
            is_imported = path.endswith(".py") and name in self._closure(self._sources(module))
            return is_imported or bool(words.intersection(own.split()))
        return name in imported

    @functools.cache  # noqa: B019 -- lives as long as the program
    def _imported(self, module: str) -> set[str]:
        """What a module and its scripts import, what any run does, and what its commands do."""
        sources = self._closure(self._sources(module))
        if module.startswith(READ_ALONE):
            return sources
        texts = "".join(text_of(name) for name in self._sources(module) if name != "tests.lab.cli")
        called = {"".join(pair) for pair in re.findall(COMMAND, texts)}
        commands = {place.partition(":")[0] for word, place in COMMANDS.items() if word in called}
        measure = {name for name in commands if name.removeprefix("harness.cli.") in MEASURE}
        of_readers = self._closure(sorted(commands - measure))
        return self.in_a_run | sources | of_readers | self._closure(sorted(measure), without=READERS)

    @functools.cache  # noqa: B019
    def _sources(self, module: str) -> tuple[str, ...]:
        """A test module, and the modules of tests that it imports or has run in the lab."""
        todo, found = [str(module_of(module))], dict[str, None]()
        while todo:
            name = todo.pop()
            if name in found or name not in self.graph.modules:
                continue
            found[name] = None
            imported = self.graph.find_modules_directly_imported_by(name)
            todo += [each for each in imported if each.startswith("tests.")]
            # In the lab: `inside.NAME`, also with a part that a case fills in.
            for start in re.findall(r"\b((?:inside\.|guard_in_)\w*)", text_of(name)):
                todo += [each for each in self.graph.modules if each.startswith(f"tests.lab.{start}")]
        return tuple(found)

    @functools.cache  # noqa: B019
    def _words(self, module: str) -> set[str]:
        """The words of a module and its scripts, but for those of what all have in common."""
        own = (name for name in self._sources(module) if name not in ("tests.lab.cli", "tests.flat"))
        return {word for name in own for word in re.findall(r"\w[\w-]*", text_of(name).replace("--", " "))}

    def _packages(self, packages: Iterable[str]) -> list[str]:
        starts = tuple(f"harness.{package}" for package in packages)
        return [name for name in self.graph.modules if name.startswith(starts)]

    def _closure(self, roots: Iterable[str], without: tuple[str, ...] = ()) -> set[str]:
        """Modules, and all that these import, with the packages that they are in."""
        closed = tuple(f"harness.{package}" for package in without)
        found, todo = set[str](), list(roots)
        while todo:
            name = todo.pop()
            if name in found or (closed and name.startswith(closed)):
                continue
            found.add(name)
            todo += self.graph.find_modules_directly_imported_by(name) if name in self.graph.modules else ()
            if "." in name:
                todo.append(name.rpartition(".")[0])
        return found


def module_of(path: str) -> str | None:
    """The name of a Python file's module; None for another file."""
    if not path.endswith(".py") or path.partition("/")[0] not in PACKAGES:
        return None
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@functools.cache
def text_of(module: str) -> str:
    """The text of one of the tests' modules; "" for a package's."""
    file = (ROOT / module.replace(".", "/")).with_suffix(".py")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


class Green(msgspec.Struct):
    """What is known of this machine's runs: for each test module the commit with which it was green last."""

    modules: dict[str, str] = {}
    commit: str = ""
    """With which no module failed last."""
    everything_unix_s: float = 0.0
    """When all of them ran last, and were green;"""
    since: int = 0
    """and how many green runs of some there were since."""

    @classmethod
    def load(cls) -> Green:
        try:
            return msgspec.json.decode(_file().read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return cls()

    def save(self) -> None:
        _file().parent.mkdir(parents=True, exist_ok=True)
        _file().write_bytes(msgspec.json.encode(self))

    def note(self, ran: Iterable[str], failed: Iterable[str], commit: str, now_s: float) -> None:
        """Note which modules ran, and which of these were not green."""
        failed = {*failed}
        self.modules |= dict.fromkeys({*ran} - failed, commit)
        if not failed:
            has_all = {*ran} >= {*test_modules()}
            self.commit, self.since = commit, 0 if has_all else self.since + 1
            self.everything_unix_s = now_s if has_all else self.everything_unix_s


def to_run(green: Green, now_s: float | None = None) -> tuple[dict[str, str], str]:
    """The modules that have to run, each with the reason, and one for all or none of them."""
    now_s = time.time() if now_s is None else now_s
    modules = test_modules()
    if not green.everything_unix_s:
        return dict.fromkeys(modules, "new"), "everything runs: no green run of it is known on this machine"
    if now_s - green.everything_unix_s > WEEK_S:
        return dict.fromkeys(modules, "age"), "everything runs: it last did more than 7 days ago"
    if green.since >= OFTEN:
        return dict.fromkeys(modules, "count"), f"everything runs: {green.since} green runs since it last did"
    by_commit: dict[str, list[str]] = {}
    for module in modules:
        by_commit.setdefault(green.modules.get(module, ""), []).append(module)
    found, reach = dict[str, str](), Reach()

    @functools.cache
    def reached_since(commit: str) -> dict[str, str] | None:
        changed = changed_since(commit)
        return None if changed is None else reach.by(changed)

    for commit, theirs in by_commit.items():
        reached = reached_since(commit)
        if reached is None:
            found |= dict.fromkeys(theirs, "no commit with which it was green is known here")
        else:
            found |= {module: path for module, path in reached.items() if module in theirs}
    if (new := reached_since(green.commit)) is not None:
        # What an earlier change left waits for the next run of everything, or for a change that reaches it.
        found = {module: new[module] for module in found if module in new}
    why = f"{len(found)} of {len(modules)} modules of the real stack stand on what has changed"
    changed = changed_since(green.commit) or []
    if (package := only_package(changed)) is not None:
        others = reach.by(path for path in changed if not path.startswith(f"harness/{package}/"))
        of_package = reach.nearest_first(found.keys() - others.keys(), package)
        waits = {*of_package} - in_time(of_package, durations_by_module())
        found = {module: path for module, path in found.items() if module not in waits}
        if waits:
            why += f"; a change of one package ({package}) has 20 minutes, so {len(waits)} of them wait"
    if not found:
        why = "no module of the real stack runs besides: nothing that one stands on has changed"
    return found, why


def only_package(changed: Iterable[str]) -> str | None:
    """The package of harness/ in which alone files have changed; None if all stand on what has."""
    changed = [*changed]
    packages = {path.split("/")[1] for path in changed if path.startswith("harness/")}
    packages = {"" if package.endswith(".py") else package for package in packages}
    is_wide = any(fnmatch.fnmatchcase(path, pattern) for path in changed for pattern in EVERYTHING)
    return None if is_wide or len(packages) != 1 or packages & {"", *WIDE} else packages.pop()


def in_time(modules: Iterable[str], seconds: Mapping[str, Mapping[str, float]]) -> set[str]:
    """Of modules, the first ones for which there is time, by the ``seconds`` of each in its lanes."""
    taken, found = Counter[str](), set[str]()
    for module in modules:
        more = Counter(seconds.get(module, {}))
        if (taken + more).total() <= ALL_S and all(taken[lane] + more[lane] <= LANE_S for lane in more):
            taken += more
            found.add(module)
    return found


def durations_by_module() -> dict[str, dict[str, float]]:
    """What each module took in each lane when it was green there last, in seconds."""
    found: dict[str, dict[str, float]] = {}
    for line in durations_file().read_bytes().splitlines() if durations_file().exists() else ():
        ran = msgspec.json.decode(line)
        if ran["status"] == 0 and not ran["lane"].startswith("core"):  # which `make test` has had
            took = Counter[str]()
            for test, test_s in ran["tests"].items():
                took[test.partition("::")[0]] += test_s
            for module, module_s in took.items():
                found.setdefault(module, {})[ran["lane"]] = module_s
    return found


def part_of(lane: str, folder: str, reached: Iterable[str]) -> float:
    """The part of a lane's time that its modules take which are reached, 0 to 1: as long as they took when
    they were green last, and where that is not known by their number. ``folder`` is where its tests are."""
    modules = {module for module in test_modules() if module.startswith(folder)}
    took = {module: seconds.get(lane, 0.0) for module, seconds in durations_by_module().items()}
    if not any(took.values()):
        took = dict.fromkeys(modules, 1.0)
    return sum(took.get(module, 0.0) for module in {*reached} & modules) / sum(took.values())


def changed_since(commit: str) -> list[str] | None:
    """The files that differ from a commit's, new ones too; None if it is not in the clone's history."""
    if _git("merge-base", "--is-ancestor", commit, "HEAD") is None:
        return None
    differ = _git("diff", "--name-only", "--no-renames", commit)
    new = _git("ls-files", "--others", "--exclude-standard")
    return None if differ is None or new is None else [*differ.splitlines(), *new.splitlines()]


def commit_of_clone() -> str:
    """The commit that is checked out; "" if files differ from it, or there is no git."""
    return "" if _git("status", "--porcelain") else (_git("rev-parse", "HEAD") or "").strip()


def _git(*words: str) -> str | None:
    """What git prints; None if it fails."""
    argv = ["git", "-c", "core.quotePath=false", *words]
    try:
        return subprocess.run(argv, cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def folder() -> Path:
    """What is kept between runs of CI."""
    return caches.folder("ci")


def durations_file() -> Path:
    """A line for each attempt at a lane."""
    return folder() / "durations.jsonl"


def _file() -> Path:
    return folder() / "green.json"
