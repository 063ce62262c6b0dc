"""The options of ``harness run``, declared once for the command line and for configuration files."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from harness.analysis.stats import REPEATS
from harness.model import (
    DEFAULT_TRANSPORT,
    LINK_LOCAL,
    PRE_EXISTING,
    PROTECTION_OFF,
    SWANCTL,
    TRANSPORTS,
    Ciphers,
    IkeAuth,
    IpsecMode,
    Security,
    TestbedKind,
    renamed,
)
from harness.model.choices import Known
from harness.model.errors import UsageError
from harness.model.protections import MADE, STACK_EXAMPLE
from harness.model.texts import FilePath, TargetName, Typed, UserName
from harness.parse import listed
from harness.parse.files import TomlFile, read_text
from harness.parse.jobfile import shipped
from harness.results.store import RESULTS
from harness.testbeds import testbed

CONFIG_VERSION = 1
AUTO = testbed.AUTO
"""Of testbeds, and of kernels: the lab's own for what Debian's cannot do, if it is built."""

DEFAULT_MAX_REPEATS = 30
"""With --confidence: enough for nine of ten cells to be within 5 %, if repeats vary by 7 %
(bench/stopping.py)."""

DEFAULT_VIRTUAL_DISK = "sata-ssd"
"""The default storage of virtual time: with one that takes no time, a cell would hardly ever end."""

DEFAULT_SIZE = "128M"
"""Of a volume that is made; one that is there is measured whole."""

GOAL = "What to find"
WHAT = "What to measure"
HOW_OFTEN = "Repeats and duration"
STORAGE = "Storage"
SETTINGS = "Links and sessions"
LAB = "The lab"
MACHINES = "Real machines"
THE_RUN = "The run"
PANELS = (GOAL, WHAT, HOW_OFTEN, LAB, STORAGE, MACHINES, SETTINGS, THE_RUN)
"""Headings in ``--help``, in its order."""


class Kernels(enum.StrEnum):
    """Whether the lab's hosts share a kernel, which is faster, or have one each."""

    ONE = "one"
    PER_HOST = "per-host"


class Version(enum.StrEnum):
    """A version of IP, as typed."""

    FOUR = "4"
    SIX = "6"


@dataclass(frozen=True, kw_only=True)
class Option:
    """How a field of a request is typed, and its text in ``--help``.

    ``flag`` is None for ``--`` and the field's name, ``default`` for the field's own default. ``panel`` is
    its heading in ``--help``, ``known`` has the values that completion offers. An option that
    ``touches_real_hardware`` reaches outside the lab: it must be typed again with --resume, whoever made the
    folder.
    """

    help: str
    flag: str | None = None
    metavar: str | None = None
    default: str | None = None
    panel: str | None = None
    known: Known | None = None
    touches_real_hardware: bool = False


# An option below each heading.
goal = functools.partial(Option, panel=GOAL)
what = functools.partial(Option, panel=WHAT)
often = functools.partial(Option, panel=HOW_OFTEN)
storage = functools.partial(Option, panel=STORAGE)
settings = functools.partial(Option, panel=SETTINGS)
lab = functools.partial(Option, panel=LAB)
machines = functools.partial(Option, panel=MACHINES)
run = functools.partial(Option, panel=THE_RUN)


# Not lambdas: in annotations these would not see this module.
def _links() -> list[str]:
    return [LINK_LOCAL, *listed.names("link")]


def _proposals() -> list[str]:
    return [PROTECTION_OFF, "on", "both", *listed.names("proposal")]


def _protections() -> list[str]:
    return [*_proposals(), *MADE]


def _disks() -> list[str]:
    return listed.names("disk")


class PathRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which paths are asked for, and where: what ``harness run`` and ``harness probe`` have in common."""

    links: Annotated[
        tuple[Typed, ...],
        what(
            flag="--link",
            help="See harness list links; with changes: wired:rate=2.5G,rtt=5ms. With --target or "
            "--portal: wired=eth0, wifi=wlan0@ADDRESS.",
            default="local, wired, wifi",
            known=_links,
            touches_real_hardware=True,
        ),
    ] = ()
    ipsec: Annotated[
        tuple[Typed, ...],
        what(help="IPsec: off, on, both, a proposal.", default="both", known=_proposals),
    ] = ()
    testbed: Annotated[
        Typed,
        lab(
            metavar="KIND",
            help="auto, lab, or host (this kernel, as root).",
            known=tuple(TestbedKind),
            touches_real_hardware=True,
        ),
    ] = AUTO
    kernels: Annotated[Kernels, lab(metavar="KIND", help="one (for all hosts), or per-host.")] = Kernels.ONE
    virtual_time: Annotated[bool, lab(help="Simulated clock, no CPU time; custom kernel.")] = False
    lab_kernel: Annotated[Typed, lab(metavar="KERNEL", help="auto, debian, custom, or a build's key.")] = AUTO
    target: Annotated[
        Typed | None,
        machines(
            metavar="HOST",
            help="Linux target: ssh://[USER@]HOST[:PORT], or local.",
            touches_real_hardware=True,
        ),
    ] = None
    initiators: Annotated[
        tuple[Typed, ...],
        machines(
            flag="--initiator",
            metavar="HOST",
            help="Initiator host; several measure at once.",
            default="local",
            touches_real_hardware=True,
        ),
    ] = ()
    hops: Annotated[
        tuple[Typed, ...],
        machines(
            flag="--hop",
            metavar="HOST",
            help="Router or switch on the path, to read its counters.",
            touches_real_hardware=True,
        ),
    ] = ()
    ip: Annotated[
        tuple[Version, ...], settings(help="IP version.", default="4", touches_real_hardware=True)
    ] = ()
    wifi_security: Annotated[
        Security, settings(metavar="KIND", help="wpa2, wpa3, open; simulated radios only.")
    ] = Security.WPA2
    ipsec_mode: Annotated[IpsecMode, settings(metavar="MODE", help="ESP mode: transport, tunnel.")] = (
        IpsecMode.TRANSPORT
    )
    auth: Annotated[IkeAuth, settings(help="IKE authentication.")] = IkeAuth.PSK
    results: Annotated[FilePath, run(metavar="FOLDER", help="Folder for results.")] = RESULTS

    shown_defaults: ClassVar[Mapping[str, str]] = {}
    """In ``--help``, for options whose declaration has another default."""


class RunRequest(PathRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``harness run`` is asked for; empty means the default.

    It is also the schema of a configuration file, whose ``version`` is ``CONFIG_VERSION``.
    """

    version: int = CONFIG_VERSION
    protect: Annotated[
        tuple[Typed, ...],
        what(
            help=f"harness list protections, or {STACK_EXAMPLE}. "
            f"--portal: {PRE_EXISTING} (default), off, {SWANCTL}FILE.",
            known=_protections,
            touches_real_hardware=True,
        ),
    ] = ()
    transports: Annotated[
        tuple[Typed, ...],
        what(
            flag="--transport",
            help=f"Storage protocol: {', '.join(TRANSPORTS)}.",
            default=DEFAULT_TRANSPORT,
            known=tuple(TRANSPORTS),
        ),
    ] = ()
    profile: Annotated[
        Typed,
        what(
            metavar="PROFILE",
            help="Workloads: basic, modern, or a file.",
            known=shipped,
        ),
    ] = "basic"
    workloads: Annotated[
        tuple[Typed, ...],
        what(flag="--workload", help="Only this one: see harness list workloads.", known=listed.workloads),
    ] = ()
    depths: Annotated[
        tuple[Typed, ...], what(flag="--depth", help="fio's iodepth, of each job: 1,4,16. [profile's]")
    ] = ()
    blocks: Annotated[
        tuple[Typed, ...], what(flag="--block", help="Block size: 4K,64K,256K. [profile's]")
    ] = ()
    numjobs: Annotated[
        tuple[Typed, ...], what(flag="--jobs", help="Parallel fio jobs: 1,4. [profile's]")
    ] = ()
    repeats: Annotated[int, often(metavar="N", help="Measurements per cell (minimum with --confidence).")] = (
        REPEATS
    )
    confidence: Annotated[
        Typed | None, often(metavar="PERCENT", help="Repeat until the 95 % interval is within, e.g., 5%.")
    ] = None
    max_repeats: Annotated[
        int | None,
        often(
            metavar="N",
            help="Most measurements per cell with --confidence.",
            default=str(DEFAULT_MAX_REPEATS),
        ),
    ] = None
    max_time: Annotated[Typed | None, often(metavar="TIME", help="Start no measurement later, e.g. 30m.")] = (
        None
    )
    retries: Annotated[int, often(metavar="N", help="Times to measure a disturbed cell again.")] = 2
    runtime: Annotated[
        Typed | None,
        often(metavar="TIME", help="Time of a measurement.", default="profile's; basic: 400ms"),
    ] = None
    backing: Annotated[
        Typed | None,
        storage(
            metavar="STORAGE",
            help="Target's: ramdisk, file, file:/PATH, block:/dev/NAME (overwritten).",
            default="ramdisk; with --target file",
            touches_real_hardware=True,
        ),
    ] = None
    size: Annotated[
        Typed | None,
        storage(metavar="SIZE", help="Volume size, or the part to use: 1G, 1G..2G.", default=DEFAULT_SIZE),
    ] = None
    local_device: Annotated[
        Typed | None,
        storage(
            metavar="STORAGE", help="Initiator's own disk, for the column local.", touches_real_hardware=True
        ),
    ] = None
    destroy: Annotated[
        tuple[Typed, ...],
        storage(
            metavar="DEVICE",
            help="Repeat its name, to overwrite a LUN, a --volume disk, or a device with a "
            "signature (wipefs).",
            touches_real_hardware=True,
        ),
    ] = ()
    shared_lun: Annotated[bool, machines(help="All initiators read one LUN instead of one each.")] = False
    portal: Annotated[
        Typed | None,
        machines(
            metavar="HOST[:PORT]",
            help="A NAS or other target; only reads unless --destroy.",
            touches_real_hardware=True,
        ),
    ] = None
    iqn: Annotated[
        TargetName | None,
        machines(
            metavar="NAME", help="Target name at the portal. [the only one]", touches_real_hardware=True
        ),
    ] = None
    lun: Annotated[
        int | None,
        machines(metavar="N", help="LUN at the portal. [the only one]", touches_real_hardware=True),
    ] = None
    volume: Annotated[
        FilePath | None,
        machines(
            metavar="PATH",
            help="A disk, a file, or a new file, e.g. on an NFS share.",
            touches_real_hardware=True,
        ),
    ] = None
    chap: Annotated[
        UserName | None, machines(metavar="USER", help="CHAP user name.", touches_real_hardware=True)
    ] = None
    chap_secret: Annotated[
        FilePath | None, machines(metavar="FILE", help="File with the CHAP secret; prompts if omitted.")
    ] = None
    cpu_costs: Annotated[
        Typed | None, lab(metavar="FILE", help="Virtual time with CPU costs from FILE: predictions.")
    ] = None
    lab_initiators: Annotated[int, lab(metavar="N", help="Initiators: up to 64 (per-host: 16).")] = 1
    disk: Annotated[
        Typed | None,
        storage(
            metavar="DISK",
            help="Model: see harness list disks.",
            known=_disks,
            default=f"virtual: {DEFAULT_VIRTUAL_DISK}",
        ),
    ] = None
    cipher_driver: Annotated[Ciphers, lab(metavar="KIND", help="accelerated (AES-NI), generic.")] = (
        Ciphers.ACCELERATED
    )
    iscsi: Annotated[
        tuple[Typed, ...], settings(metavar="NAME=VALUE", help="Session parameter: MaxBurstLength=64K.")
    ] = ()
    nvme: Annotated[
        tuple[Typed, ...], settings(metavar="NAME=VALUE", help="Session parameter: queue_size=64.")
    ] = ()
    nbd: Annotated[
        tuple[Typed, ...], settings(metavar="NAME=VALUE", help="Session parameter: timeout=30.")
    ] = ()
    probes: Annotated[
        bool | None,
        run(
            flag="--probes/--no-probes",
            help="Measure paths, too.",
            default="yes; in virtual time no",
        ),
    ] = None
    smoke: Annotated[bool, run(help="Quick try: --runtime 1s --retries 0 --no-probes.")] = False
    seed: Annotated[
        int | None, run(metavar="N", help="Seed for cell order and I/O offsets.", default="random")
    ] = None


def require_not_given(request: RunRequest, options: Mapping[str, str], *, found: str, hint: str) -> None:
    """UsageError if one of ``options`` of ``harness run``, by their fields, is not at its default."""
    default = type(request)()
    for name, option in options.items():
        if getattr(request, name) != getattr(default, name):
            raise UsageError(f"{option} is for harness run, found it with {found}", hint=hint)


def load_request(path: Path, notes: list[str] | None = None) -> RunRequest:
    """The request in a TOML file. UsageError names file, line and key of what is wrong.

    Old names work (``model.renamed``): each adds a sentence to ``notes``.
    """
    kind = "configuration"
    old: list[str] = []

    def updated(settings: dict[str, object]) -> dict[str, object]:
        found, old[:] = renamed.current_settings(settings)
        return found

    file = TomlFile(kind, path, read_text(path, kind), updated)
    # Consent to lose data must be typed each time: a file would give it again, perhaps for another disk.
    request = file.load(RunRequest, destroy=())
    if "version" not in file.parse():
        raise file.refuse("version", "the key is missing", f"add version = {CONFIG_VERSION}")
    if request.version != CONFIG_VERSION:
        raise file.refuse(
            "version",
            f"expected {CONFIG_VERSION}, found {request.version}",
            "the file is of another version of the harness",
        )
    if notes is not None:
        notes += old
    return request
