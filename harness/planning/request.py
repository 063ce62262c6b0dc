"""The options of ``harness run``, declared once for the command line and for configuration files."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from harness.analysis.stats import REPEATS
from harness.model import (
    DEFAULT_TRANSPORT,
    SWANCTL,
    TRANSPORTS,
    Ciphers,
    IkeAuth,
    IpsecMode,
    Security,
)
from harness.model.errors import UsageError
from harness.model.protections import MADE, NESTING
from harness.model.texts import FilePath, TargetName, Typed, UserName
from harness.parse.files import TomlFile, read_text
from harness.planning import renamed
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

WHAT = "What is measured"
HOW_OFTEN = "How often, and how long"
STORAGE = "Storage"
SETTINGS = "Links and sessions"
LAB = "The lab"
MACHINES = "Real machines"
THE_RUN = "The run"
PANELS = (WHAT, HOW_OFTEN, LAB, STORAGE, MACHINES, SETTINGS, THE_RUN)
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
    its heading in ``--help``. An option that ``touches_real_hardware`` reaches outside the lab: it must be
    typed again with --resume, whoever made the folder.
    """

    help: str
    flag: str | None = None
    metavar: str | None = None
    default: str | None = None
    panel: str | None = None
    touches_real_hardware: bool = False


# An option below each heading.
what = functools.partial(Option, panel=WHAT)
often = functools.partial(Option, panel=HOW_OFTEN)
storage = functools.partial(Option, panel=STORAGE)
settings = functools.partial(Option, panel=SETTINGS)
lab = functools.partial(Option, panel=LAB)
machines = functools.partial(Option, panel=MACHINES)
run = functools.partial(Option, panel=THE_RUN)


class PathRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which paths are asked for, and where: what ``harness run`` and ``harness probe`` have in common."""

    links: Annotated[
        tuple[Typed, ...],
        what(
            flag="--link",
            help="Of profiles/links/, or a file; wired:rate=2.5G,rtt=5ms. With --target "
            "wired=eth0 or wifi=wlan0@ADDRESS.",
            default="local, wired, wifi",
            touches_real_hardware=True,
        ),
    ] = ()
    ipsec: Annotated[
        tuple[Typed, ...], what(help="off, on (aes128gcm16), both, one of ipsec/.", default="both")
    ] = ()
    testbed: Annotated[
        Typed, lab(help="auto, lab, or host (this kernel; as root).", touches_real_hardware=True)
    ] = AUTO
    kernels: Annotated[Kernels, lab(help="One for target and initiators, or one each.")] = Kernels.ONE
    virtual_time: Annotated[bool, lab(help="Simulated clock without processor time; own kernel.")] = False
    lab_kernel: Annotated[
        Typed, lab(help="auto, debian, own (if it is built), or a key.", metavar="KERNEL")
    ] = AUTO
    target: Annotated[
        Typed | None, machines(help="ssh://[USER@]HOST[:PORT], or local.", touches_real_hardware=True)
    ] = None
    initiators: Annotated[
        tuple[Typed, ...],
        machines(
            flag="--initiator",
            help="As --target; several measure at once.",
            default="local",
            touches_real_hardware=True,
        ),
    ] = ()
    hops: Annotated[
        tuple[Typed, ...],
        machines(
            flag="--hop", help="A router or switch between, to read its counters.", touches_real_hardware=True
        ),
    ] = ()
    ip: Annotated[
        tuple[Version, ...],
        settings(help="Version of IP; each makes columns.", default="4", touches_real_hardware=True),
    ] = ()
    wifi_security: Annotated[
        Security, settings(metavar="KIND", help="Of simulated radios: wpa2, wpa3, open.")
    ] = Security.WPA2
    ipsec_mode: Annotated[IpsecMode, settings(metavar="MODE", help="ESP's: transport, tunnel.")] = (
        IpsecMode.TRANSPORT
    )
    auth: Annotated[IkeAuth, settings(help="IKE's.")] = IkeAuth.PSK
    results: Annotated[FilePath, run(metavar="FOLDER", help="Where results go.")] = RESULTS


class RunRequest(PathRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``harness run`` is asked for; empty means the default.

    It is also the schema of a configuration file, whose ``version`` is ``CONFIG_VERSION``.
    """

    version: int = CONFIG_VERSION
    protect: Annotated[
        tuple[Typed, ...],
        what(
            help=f"As --ipsec, and {', '.join(MADE)}; nested: "
            f"{NESTING[0][0]}+aes128gcm16. --portal: {SWANCTL}FILE.",
            touches_real_hardware=True,
        ),
    ] = ()
    transports: Annotated[
        tuple[Typed, ...],
        what(
            flag="--transport",
            help=f"What carries the disk: {', '.join(TRANSPORTS)}.",
            default=DEFAULT_TRANSPORT,
        ),
    ] = ()
    profile: Annotated[Typed, what(help="Workloads: document, modern, a job file.")] = "document"
    workloads: Annotated[
        tuple[Typed, ...], what(flag="--workload", help="Only this workload of the profile.")
    ] = ()
    depths: Annotated[
        tuple[Typed, ...],
        what(flag="--depth", help="I/Os in flight: 1,4,16. [profile's]"),
    ] = ()
    blocks: Annotated[
        tuple[Typed, ...], what(flag="--block", help="Of an I/O: 4K,64K,256K. [profile's]")
    ] = ()
    numjobs: Annotated[tuple[Typed, ...], what(flag="--jobs", help="Of fio, at once: 1,4. [profile's]")] = ()
    repeats: Annotated[int, often(metavar="N", help="Measurements of a cell; --confidence: at least.")] = (
        REPEATS
    )
    confidence: Annotated[
        Typed | None,
        often(metavar="PERCENT", help="Repeat until 95 % intervals are within, e.g., 5%."),
    ] = None
    max_repeats: Annotated[
        int | None, often(help="With --confidence: at most.", default=str(DEFAULT_MAX_REPEATS))
    ] = None
    max_time: Annotated[
        Typed | None, often(metavar="TIME", help="With --confidence: no repeat begins later, e.g. 30m.")
    ] = None
    retries: Annotated[int, often(help="How often a disturbed cell is measured again.")] = 2
    runtime: Annotated[
        Typed | None, often(metavar="TIME", help="Of each cell, e.g. 5s.", default="profile's")
    ] = None
    backing: Annotated[
        Typed | None,
        storage(
            help="The target's: ramdisk, file, file:/PATH, block:/dev/NAME.",
            default="ramdisk; with --target file",
            touches_real_hardware=True,
        ),
    ] = None
    size: Annotated[
        Typed | None, storage(help="Of the volume, or a part: 1G, 1G..2G.", default=DEFAULT_SIZE)
    ] = None
    local_device: Annotated[
        Typed | None, storage(help="The initiator's own, for the column local.", touches_real_hardware=True)
    ] = None
    destroy: Annotated[
        tuple[Typed, ...],
        storage(
            metavar="DEVICE",
            help="Repeat its name: everything on it is overwritten.",
            touches_real_hardware=True,
        ),
    ] = ()
    shared_lun: Annotated[bool, machines(help="All initiators read one LUN, not one each.")] = False
    portal: Annotated[
        Typed | None,
        machines(metavar="HOST[:PORT]", help="A black-box target; reads alone.", touches_real_hardware=True),
    ] = None
    iqn: Annotated[
        TargetName | None,
        machines(metavar="NAME", help="Of its targets, this one. [the only one]", touches_real_hardware=True),
    ] = None
    lun: Annotated[
        int | None,
        machines(metavar="N", help="Of its disks, this one. [the only one]", touches_real_hardware=True),
    ] = None
    volume: Annotated[
        FilePath | None,
        machines(
            metavar="PATH",
            help="Attached already: a disk, a file, or a new file.",
            touches_real_hardware=True,
        ),
    ] = None
    chap: Annotated[
        UserName | None, machines(metavar="USER", help="Log in there so.", touches_real_hardware=True)
    ] = None
    chap_secret: Annotated[
        FilePath | None, machines(metavar="FILE", help="With the secret, else asked for.")
    ] = None
    cpu_costs: Annotated[
        Typed | None, lab(metavar="FILE", help="Virtual time by a CPU cost file: predicted.")
    ] = None
    lab_initiators: Annotated[int, lab(help="How many: up to 64 (per-host: 16).")] = 1
    disk: Annotated[
        Typed | None,
        storage(
            help="A modelled one: hdd-7200, sata-ssd, nvme, ram, or a file; own kernel.",
            default=f"none; in virtual time {DEFAULT_VIRTUAL_DISK}",
        ),
    ] = None
    cipher_driver: Annotated[Ciphers, lab(metavar="KIND", help="machine, portable (no AES-NI).")] = (
        Ciphers.MACHINE
    )
    iscsi: Annotated[
        tuple[Typed, ...],
        settings(
            metavar="NAME=VALUE",
            help="Both ends must agree on it: MaxBurstLength=64K.",
        ),
    ] = ()
    nvme: Annotated[tuple[Typed, ...], settings(metavar="NAME=VALUE", help="The same: queue_size=64.")] = ()
    probes: Annotated[
        bool | None,
        run(
            flag="--probes/--no-probes",
            help="Measure paths, processors.",
            default="yes; in virtual time no",
        ),
    ] = None
    smoke: Annotated[bool, run(help="--runtime 1s --retries 0 --no-probes.")] = False
    seed: Annotated[int | None, run(help="For the order of cells and I/O offsets.", default="random")] = None


def require_not_given(request: RunRequest, options: Mapping[str, str], *, found: str, hint: str) -> None:
    """UsageError if one of ``options`` of ``harness run``, by their fields, is not at its default."""
    default = type(request)()
    for name, option in options.items():
        if getattr(request, name) != getattr(default, name):
            raise UsageError(f"{option} is for harness run, found it with {found}", hint=hint)


def load_request(path: Path, notes: list[str] | None = None) -> RunRequest:
    """The request in a TOML file. UsageError names file, line and key of what is wrong.

    Old names work (``planning.renamed``): each adds a sentence to ``notes``.
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
