"""The options of ``harness run``, declared once for the command line and for configuration files."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from harness.model import Ciphers, IkeAuth, IpsecMode, Security
from harness.parse.files import TomlFile, read_text
from harness.testbeds import testbed

CONFIG_VERSION = 1

DEFAULT_MAX_REPEATS = 30
"""With --confidence: enough for nine of ten cells to be within 5 %, if repeats vary by 7 %
(bench/stopping.py)."""

DEFAULT_VIRTUAL_DISK = "sata-ssd"
"""The default storage of virtual time: with one that takes no time, a cell would hardly ever end."""

MACHINES = "Real machines"
OWN_KERNEL = "The lab's own kernel (harness kernel build)"


class Kernels(enum.StrEnum):
    """Whether the lab's hosts share a kernel, which is faster, or have one each."""

    ONE = "one"
    APART = "apart"


class KernelChoice(enum.StrEnum):
    """Which kernel the lab boots. ``auto``: its own for what Debian's cannot do, if it is built."""

    AUTO = "auto"
    DEBIAN = "debian"
    OWN = "own"


@dataclass(frozen=True, kw_only=True)
class Option:
    """How a field of a request is typed, and its text in ``--help``.

    ``flag`` is None for ``--`` and the field's name, ``default`` for the field's own default. ``panel`` is
    its heading in ``--help``. An option that ``leads_out`` reaches outside the lab: it must be typed again
    with --resume, whoever made the folder.
    """

    help: str
    flag: str | None = None
    metavar: str | None = None
    default: str | None = None
    panel: str | None = None
    leads_out: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``harness run`` is asked for; empty means the default.

    It is also the schema of a configuration file, whose ``version`` is ``CONFIG_VERSION``.
    """

    version: int = CONFIG_VERSION
    links: Annotated[
        tuple[str, ...],
        Option(
            flag="--link",
            help="A link: local, wired, wifi, another of profiles/links/, or a file. Repeatable. "
            "Modifiers: wired:unshaped, wired:jumbo, wired:mtu=9000. With --target, an interface of the "
            "initiator: wired=eth0, wifi=wlan0@TARGET-ADDRESS. [dim]default: local, wired, wifi[/]",
            leads_out=True,
        ),
    ] = ()
    ipsec: Annotated[
        tuple[str, ...],
        Option(
            help="off, on (aes128gcm16), both, or a proposal of ipsec/. Repeatable. [dim]default: both[/]",
        ),
    ] = ()
    protect: Annotated[
        tuple[str, ...],
        Option(
            help="As --ipsec, with more kinds: off, wireguard, macsec, or a proposal. Join nested ones, the "
            "outermost first: macsec+aes128gcm16. Repeatable.",
        ),
    ] = ()
    transports: Annotated[
        tuple[str, ...],
        Option(
            flag="--transport",
            help="What carries the disk over a link: iscsi, nvme-tcp. Repeatable. [dim]default: iscsi[/]",
        ),
    ] = ()
    profile: Annotated[str, Option(help="Workloads: document, modern, or a fio job file of your own.")] = (
        "document"
    )
    workloads: Annotated[
        tuple[str, ...],
        Option(flag="--workload", help="Only this workload of the profile. Repeatable."),
    ] = ()
    repeats: Annotated[int, Option(help="How often each cell is measured; with --confidence, the least.")] = 3
    confidence: Annotated[
        str | None,
        Option(
            metavar="PERCENT",
            help="Repeat each cell until the 95 % interval of its median is within this of it, e.g. 5%.",
        ),
    ] = None
    max_repeats: Annotated[
        int | None,
        Option(help="With --confidence: the most repeats of a cell.", default=str(DEFAULT_MAX_REPEATS)),
    ] = None
    max_time: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="With --confidence: begin no repeat once all cells together took this long, e.g. 30m.",
        ),
    ] = None
    retries: Annotated[
        int,
        Option(help="How often a cell that other programs disturbed is measured again, once they are calm."),
    ] = 2
    runtime: Annotated[
        str | None, Option(help="How long fio measures each cell, e.g. 5s.", default="profile's")
    ] = None
    testbed: Annotated[
        str, Option(help="auto, lab, or host (this machine's own kernel; needs root).", leads_out=True)
    ] = testbed.AUTO
    backing: Annotated[
        str | None,
        Option(
            help="The target's storage: ramdisk, file, file:/PATH, block:/dev/NAME.",
            default="ramdisk; a file in /var/tmp with --target",
            leads_out=True,
        ),
    ] = None
    size: Annotated[str, Option(help="How much of the storage is used, e.g. 1G.")] = "128M"
    local_device: Annotated[
        str | None,
        Option(
            help="A disk of the initiator's for the column local, instead of the target's storage: "
            "/dev/NAME, file:/PATH.",
            panel=MACHINES,
            leads_out=True,
        ),
    ] = None
    destroy: Annotated[
        tuple[str, ...],
        Option(
            metavar="DEVICE",
            help="Consent to lose what is on a block device: its name again.",
            leads_out=True,
        ),
    ] = ()
    target: Annotated[
        str | None,
        Option(
            help="A real machine as the target: ssh://[USER@]HOST[:PORT], or local.",
            panel=MACHINES,
            leads_out=True,
        ),
    ] = None
    initiators: Annotated[
        tuple[str, ...],
        Option(
            flag="--initiator",
            help="A real machine as an initiator: local, ssh://… Repeatable, for several at once.",
            default="local",
            panel=MACHINES,
            leads_out=True,
        ),
    ] = ()
    hops: Annotated[
        tuple[str, ...],
        Option(
            flag="--hop",
            help="A router or switch between the ends: ssh://[USER@]HOST[:PORT]. The run reads its counters, "
            "which needs no root. Repeatable.",
            panel=MACHINES,
            leads_out=True,
        ),
    ] = ()
    shared_lun: Annotated[
        bool, Option(help="All initiators read one LUN, instead of one each.", panel=MACHINES)
    ] = False
    kernels: Annotated[Kernels, Option(help="Whether the lab's target and initiators share a kernel.")] = (
        Kernels.ONE
    )
    lab_initiators: Annotated[int, Option(help="How many initiators the lab has, with --kernels apart.")] = 1
    virtual_time: Annotated[
        bool,
        Option(
            help="Processor work takes no time, only links and disks do: what the protocols cost. Every run "
            "gives the same figures.",
            panel=OWN_KERNEL,
        ),
    ] = False
    disk: Annotated[
        str | None,
        Option(
            help="The target's disk: hdd-7200, sata-ssd, nvme, ram, another of profiles/disks/, or a file.",
            default=f"none; in virtual time {DEFAULT_VIRTUAL_DISK}",
            panel=OWN_KERNEL,
        ),
    ] = None
    lab_kernel: Annotated[
        KernelChoice,
        Option(
            help="auto takes the lab's own, if it is built, for links with a radio: its WiFi is 802.11, "
            "Debian's is emulated.",
            panel=OWN_KERNEL,
        ),
    ] = KernelChoice.AUTO
    cipher_driver: Annotated[
        Ciphers,
        Option(
            help="machine: the kernel encrypts with the processor's instructions (AES-NI, AVX). portable: as "
            "if the processor had none of them.",
            panel=OWN_KERNEL,
        ),
    ] = Ciphers.MACHINE
    wifi_security: Annotated[
        Security, Option(help="WiFi security, on the lab's own kernel.", panel=OWN_KERNEL)
    ] = Security.WPA2
    ipsec_mode: Annotated[IpsecMode, Option(help="ESP mode.")] = IpsecMode.TRANSPORT
    auth: Annotated[IkeAuth, Option(help="How the two charons authenticate.")] = IkeAuth.PSK
    iscsi: Annotated[
        tuple[str, ...],
        Option(
            metavar="NAME=VALUE",
            help="A parameter that both ends of iSCSI must agree on: InitialR2T, ImmediateData, "
            "FirstBurstLength, MaxBurstLength, MaxRecvDataSegmentLength. Repeatable.",
            default="what the two ends negotiate",
        ),
    ] = ()
    probes: Annotated[
        bool | None,
        Option(
            flag="--probes/--no-probes",
            help="Measure round trips, processors and interfaces beside each cell, and TCP once per column.",
            default="probes; in virtual time none",
        ),
    ] = None
    seed: Annotated[
        int | None, Option(help="Seed of the order of cells and of offsets.", default="random")
    ] = None
    results: Annotated[str, Option(metavar="FOLDER", help="Where results go.")] = "results"


def load_request(path: Path) -> Request:
    """The request in a TOML file. UsageError names file, line and key of what is wrong."""
    kind = "configuration"
    file = TomlFile(kind, path, read_text(path, kind))
    # Consent to lose data must be typed each time: a file would give it again, perhaps for another disk.
    request = file.load(Request, destroy=())
    if "version" not in file.parse():
        raise file.refuse("version", "the key is missing", f"add version = {CONFIG_VERSION}")
    if request.version != CONFIG_VERSION:
        raise file.refuse(
            "version",
            f"expected {CONFIG_VERSION}, found {request.version}",
            "the file is of another version of the harness",
        )
    return request
