"""From what the user typed to a ``Plan``: everything is looked up and checked before anything is touched."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness import __version__, testbed
from harness import run as runner
from harness.errors import UsageError
from harness.files import TomlFile, read_text
from harness.jobfile import job_file, load_workloads, wall_estimate_s
from harness.model import (
    IPSEC_OFF,
    LINK_LOCAL,
    Backing,
    BackingKind,
    Column,
    IkeAuth,
    IpsecMode,
    LinkProfile,
    Plan,
    Proposal,
    TestbedKind,
    Workload,
)
from harness.profiles import expand_ipsec, load_link, load_proposal
from harness.units import format_size, parse_duration_s, parse_size, unknown_name

MIB = 1 << 20
SMALLEST_BACKING_BYTES = 16 * MIB
LARGEST_RAM_BACKING_BYTES = 8 << 30
MOST_REPEATS = 1000
MOST_COLUMNS = 64

START_S = 2.5
"""Until the first cell: boot, disk."""

COLUMN_S = 1.5
"""To bring up one column: link, charons, target, login."""

CELL_OVERHEAD_S = 0.5
"""Around the measurement of one cell: the start of fio, counters, the record."""


CONFIG_VERSION = 1


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of ``harness run`` as typed; empty means the default.

    It is also the schema of a configuration file, whose ``version`` is ``CONFIG_VERSION``.
    """

    version: int = CONFIG_VERSION
    links: tuple[str, ...] = ()
    ipsec: tuple[str, ...] = ()
    profile: str = "document"
    workloads: tuple[str, ...] = ()
    testbed: str = testbed.AUTO
    repeats: int = 3
    runtime: str | None = None
    seed: int | None = None
    size: str = "128M"
    backing: str = "ramdisk"
    destroy: str | None = None
    ipsec_mode: IpsecMode = IpsecMode.TRANSPORT
    auth: IkeAuth = IkeAuth.PSK
    results: str = "results"


def load_request(path: Path) -> Request:
    """The request that a TOML file holds. UsageError names file, line and key of what is wrong."""
    kind = "configuration"
    file = TomlFile(kind, path, read_text(path, kind))
    # Consent to losing data is typed each time: a file would give it again, for another disk perhaps.
    request = file.load(Request, destroy=None)
    if "version" not in file.parse():
        raise file.refuse("version", "the key is missing", f"add version = {CONFIG_VERSION}")
    if request.version != CONFIG_VERSION:
        raise file.refuse(
            "version",
            f"expected {CONFIG_VERSION}, found {request.version}",
            "the file is of another version of the harness",
        )
    return request


def make_plan(request: Request) -> Plan:
    """Check and resolve a request. Raises UsageError for the first thing that is wrong."""
    if not 1 <= request.repeats <= MOST_REPEATS:
        raise UsageError(
            f"expected 1 to {MOST_REPEATS} repeats, found {request.repeats}", hint="try --repeats 3"
        )
    profile, workloads = load_workloads(request.profile)
    workloads = _pick(workloads, request.workloads)
    runtime_s = None if request.runtime is None else parse_duration_s(request.runtime, what="runtime")
    if runtime_s is not None and not 0.1 <= runtime_s <= 86_400:
        raise UsageError(
            f"expected a runtime of 0.1s to 1 day, found {request.runtime}", hint="try --runtime 5s"
        )
    kind = testbed.choose(request.testbed)
    backing = parse_backing(request.backing, request.size, request.destroy)
    if backing.path is not None and kind is TestbedKind.LAB:
        raise UsageError(
            f"{backing.path} is this machine's, and the lab would measure the machine's page cache instead",
            hint="as root, use --testbed host; or leave the storage to the lab: --backing ramdisk or file",
        )
    columns, links, proposals = _columns(request)
    seed = secrets.randbelow(2**31) if request.seed is None else request.seed
    if not 0 <= seed < 2**63:
        raise UsageError(f"expected a seed from 0 to 2^63-1, found {seed}", hint="try --seed 1")
    _try_job_files(workloads, backing.size_bytes, runtime_s)
    return Plan(
        run_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}",
        testbed=kind,
        columns=columns,
        workloads=workloads,
        repeats=request.repeats,
        seed=seed,
        backing=backing,
        links=links,
        proposals=proposals,
        ipsec_mode=request.ipsec_mode,
        ike_auth=request.auth,
        profile=profile,
        runtime_s=runtime_s,
        created_unix_s=time.time(),
        harness_version=__version__,
    )


def _pick(workloads: tuple[Workload, ...], names: Sequence[str]) -> tuple[Workload, ...]:
    known = {workload.name: workload for workload in workloads}
    for name in names:
        if name not in known:
            raise unknown_name("workload", name, known)
    return tuple(known[name] for name in dict.fromkeys(names)) or workloads


def _columns(
    request: Request,
) -> tuple[tuple[Column, ...], dict[str, LinkProfile], dict[str, Proposal]]:
    """The matrix's columns, in the order of the document: without IPsec first, then with."""
    links: dict[str, LinkProfile] = {}
    local = False
    for spec in request.links or (LINK_LOCAL, "wired", "wifi"):
        if spec == LINK_LOCAL:
            local = True
            continue
        profile = load_link(spec)
        if links.get(profile.name, profile) != profile:
            raise UsageError(
                f"two different links are called {profile.name}", hint="rename the file of one of them"
            )
        links[profile.name] = profile
    protections = expand_ipsec(request.ipsec or "both")
    proposals = {name: load_proposal(name) for name in protections if name != IPSEC_OFF}
    columns = [Column(LINK_LOCAL)] if local else []
    columns += [Column(link, protection) for protection in protections for link in links]
    if len(columns) > MOST_COLUMNS:
        raise UsageError(
            f"expected at most {MOST_COLUMNS} columns, found {len(columns)}",
            hint="use fewer links or proposals",
        )
    if request.ipsec and proposals and not links:
        raise UsageError(
            f"IPsec protects a network, and the only link asked for is {LINK_LOCAL}",
            hint="add --link wired, or leave --ipsec out",
        )
    used = {column.link for column in columns}
    return tuple(columns), {name: link for name, link in links.items() if name in used}, proposals


def parse_backing(text: str, size: str, destroy: str | None = None) -> Backing:
    """``ramdisk``, ``file``, ``file:PATH`` or ``block:PATH`` (or just the path of a device), and its size."""
    if destroy is not None and BackingKind.BLOCK not in text and not text.startswith("/dev/"):
        raise UsageError(
            f"--destroy {destroy} is consent for a block backing, found --backing {text}",
            hint="leave --destroy out",
        )
    kind, _, path = text.partition(":")
    if text.startswith("/dev/"):
        kind, path = "block", text
    if kind not in list(BackingKind):
        raise unknown_name("backing", text, [*BackingKind, "file:PATH", "block:/dev/NAME"])
    size_bytes = parse_size(size)
    if size_bytes % MIB or size_bytes < SMALLEST_BACKING_BYTES:
        raise UsageError(
            f"expected a size in whole MiB from {format_size(SMALLEST_BACKING_BYTES)} on, found {size}",
            hint="try --size 128M",
        )
    in_memory = kind == BackingKind.RAMDISK or (kind == BackingKind.FILE and not path)
    if in_memory and size_bytes > LARGEST_RAM_BACKING_BYTES:
        raise UsageError(
            f"expected at most {format_size(LARGEST_RAM_BACKING_BYTES)} for storage in memory, found {size}",
            hint="try --size 1G",
        )
    if (kind == BackingKind.BLOCK or path) and not path.startswith("/"):
        raise UsageError(
            f"expected the absolute path of a {kind} backing, found {text}",
            hint="try --backing block:/dev/NAME or --backing file:/var/tmp/bench.img",
        )
    if kind == BackingKind.RAMDISK and path:
        raise UsageError(f"a ramdisk has no path, found {text}", hint="try --backing ramdisk")
    return Backing(kind=BackingKind(kind), size_bytes=size_bytes, path=path or None, destroy=destroy)


def _try_job_files(workloads: Sequence[Workload], size_bytes: int, runtime_s: float | None) -> None:
    """Have fio itself read every job file, so that a mistake shows now and not in the middle of a run."""
    for workload in workloads:
        text = job_file(workload, device="/dev/harness", size_bytes=size_bytes, seed=1, runtime_s=runtime_s)
        done = runner.run(["fio", "--parse-only", "-"], input=text, check=False)
        if done.status != 0:
            words = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise UsageError(
                f"fio does not accept the workload {workload.name}: {(words or ['it gave no reason'])[-1]}",
                hint="`fio --cmdhelp=OPTION` explains an option",
            )


def cell_s(plan: Plan, workload: Workload) -> float:
    """How long fio measures one cell of a workload, estimated."""
    return wall_estimate_s(workload, plan.runtime_s)


def estimate_s(plan: Plan) -> float:
    """How long a whole run takes, estimated from its runtimes and the usual cost of the rest."""
    block_s = sum(cell_s(plan, workload) + CELL_OVERHEAD_S for workload in plan.workloads)
    networked = sum(column.link != LINK_LOCAL for column in plan.columns)
    return START_S + COLUMN_S * networked + block_s * len(plan.columns) * plan.repeats
