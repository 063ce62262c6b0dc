"""Turns what the user typed into a ``Plan`` of probes: names and files of probes, and the paths to probe."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from harness.model import LINK_LOCAL, Backing, BackingKind, LinkProfile, Plan, Storage
from harness.model.errors import UsageError
from harness.model.probing import NAMED, Probe, check
from harness.model.texts import Name, Prose, Typed
from harness.model.units import parse_duration_s, shown, unknown_name
from harness.parse.files import TomlFile, read_text
from harness.parse.profiles import data_folder, find
from harness.planning import plan as plans
from harness.planning.request import PathRequest, RunRequest, often, what
from harness.results.rules import MIB

DEFAULT_PROBES = ("ping", "ping-io", "ping-loaded", "tcp", "udp")

NO_PROFILE = "probes"
"""``Plan.profile`` of probes that were named one by one."""

DEFAULT_LINKS = ("wired", "wifi")

VIRTUAL_DURATION_S, VIRTUAL_RATE_BIT_S = 1, 1_000_000_000
"""How long, and how fast over UDP, a named probe is in virtual time: one second gives as much information as
ten there."""

VIRTUAL_PACKETS_PER_S = 7000
"""Each packet is simulated, whatever the virtual clock says: this many per real second. A core did 6 000 (TCP
through PPPoE) to 10 000 (UDP over a cable)."""

MOST_VIRTUAL_PACKETS = 2_000_000
"""Limit for one probe: five minutes."""


class ProbeProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``profiles/probes/*.toml``: paths and probes of one experiment, and how to show it.

    ``view`` and ``reference`` are for ``harness table`` afterwards.
    """

    title: Prose
    source: Prose = ""
    links: tuple[Typed, ...] = ()
    ipsec: tuple[Typed, ...] = ("off",)
    repeats: int = 1
    view: Name = "link"
    reference: Name | None = None
    probe: tuple[Probe, ...] = ()


def _folder() -> Path:
    return data_folder() / "profiles" / "probes"


def names() -> list[str]:
    """The profiles that the project ships."""
    return sorted(file.stem for file in _folder().glob("*.toml"))


class ProbeRequest(PathRequest, frozen=True, kw_only=True):
    """The options of ``harness probe`` as typed; empty means the profile's value, or the default."""

    probes: Annotated[
        tuple[str, ...],
        what(flag="--probe", help=f"Probes: {', '.join(NAMED)}.", default=", ".join(DEFAULT_PROBES)),
    ] = ()
    profile: Annotated[
        str | None,
        what(
            metavar="PROFILE",
            help=f"Paths and probes from one file: {', '.join(names())}, or yours.",
            known=names,
        ),
    ] = None
    count: Annotated[
        int | None,
        often(metavar="N", help="Pings or round trips of each probe.", default="the probe's own"),
    ] = None
    duration: Annotated[
        str | None,
        often(
            metavar="TIME",
            help="Duration of tcp, udp and floods, e.g. 3s.",
            default=f"10s; floods 3s; in virtual time {VIRTUAL_DURATION_S}s",
        ),
    ] = None
    udp_rate: Annotated[
        str | None,
        often(metavar="RATE", help="UDP send rate in bit/s, e.g. 100M.", default="10G; in virtual time 1G"),
    ] = None
    repeats: Annotated[int | None, often(metavar="N", help="Measurements per probe.", default="1")] = None

    shown_defaults: ClassVar[Mapping[str, str]] = {"links": ", ".join(DEFAULT_LINKS), "ipsec": "off"}

    def on(self, profile: ProbeProfile | None) -> RunRequest:
        """The request of a run on these paths, or else on those of ``profile``."""
        paths = profile or ProbeProfile(title="", ipsec=())
        shared = {name: getattr(self, name) for name in PathRequest.__struct_fields__}
        return RunRequest(
            **shared | {"links": self.links or paths.links, "ipsec": self.ipsec or paths.ipsec},
            repeats=paths.repeats if self.repeats is None else self.repeats,
        )

    def asked(self, profile: ProbeProfile | None) -> list[Probe]:
        """The probes that are asked for, by name or by ``profile``, with their count, duration or rate if
        they have one. UsageError for what is not possible."""
        usual_s, usual_bit_s = (VIRTUAL_DURATION_S, VIRTUAL_RATE_BIT_S) if self.virtual_time else (None, None)
        if profile is not None:
            usual_s = usual_bit_s = None
        given = {
            "count": self.count,
            "duration_s": usual_s if self.duration is None else _whole_seconds(self.duration),
            "rate_bit_s": usual_bit_s if self.udp_rate is None else parse_rate(self.udp_rate),
        }
        given = {name: value for name, value in given.items() if value is not None}
        found = []
        for probe in named(self.probes or DEFAULT_PROBES) if profile is None else profile.probe:
            changes = {name: value for name, value in given.items() if name in probe.__struct_fields__}
            found.append(msgspec.structs.replace(probe, **changes))
            check(found[-1])
        return found


def load_profile(name: str) -> ProbeProfile:
    """A shipped profile by its name, or a TOML file. UsageError says what is wrong with it."""
    kind, is_file = "profile of probes", "/" in name or name.endswith(".toml")
    path = Path(name) if is_file else find(kind, name, [_folder()], known=())
    profile = TomlFile(kind, path, read_text(path, kind)).load(ProbeProfile)
    for probe in profile.probe:
        check(probe)
    return profile


def named(words: Sequence[str]) -> list[Probe]:
    """The probes that ``--probe`` asks for."""
    for word in words:
        if word not in NAMED:
            raise unknown_name("probe", word, NAMED)
    return [probe for word in words for probe in NAMED[word]]


def parse_rate(text: str) -> int:
    """Bits per second for ``100M``, ``1.5G`` or ``64000``: powers of 1000, as iperf3 reads them."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)([KMG]?)", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise UsageError(f"expected a rate in bit/s, found {shown(text)}", hint="try 100M or 1.5G")
    factor: int = 1000 ** " KMG".index(match[2].upper() or " ")
    return round(float(match[1]) * factor)


def _whole_seconds(text: str) -> int:
    seconds = parse_duration_s(text, what="duration")
    if seconds != int(seconds):
        raise UsageError(f"expected whole seconds for iperf3, found {text}", hint="try --duration 3s")
    return int(seconds)


def make_plan(request: RunRequest, probes: Sequence[Probe], profile: str) -> Plan:
    """A plan of probes from ``profile``, on the links of a request. UsageError as in ``plan``."""
    if LINK_LOCAL in request.links:
        raise UsageError(
            "probes need a network, and the link local has none",
            hint="name another, such as --link wired",
        )
    if request.lab_initiators != 1 or len(request.initiators) > 1:
        raise UsageError("expected one initiator for probes, found more", hint="name one")
    for name, count in Counter(probe.name for probe in probes).items():
        if count > 1:
            raise UsageError(f"two probes have the name {name}", hint="leave one of them out")
    links = request.links or (() if request.target else DEFAULT_LINKS)
    # The smallest workload: a plan without one would be refused. It is never run.
    made = plans.make_plan(
        msgspec.structs.replace(
            request,
            links=links,
            ipsec=request.ipsec or ("off",),
            profile="basic",
            workloads=("seq-read-4k",),
            probes=False,
        )
    )
    made = msgspec.structs.replace(
        made,
        setting=msgspec.structs.replace(made.setting, disk=""),
        jobs=(),
        probing=tuple(probes),
        storage=Storage(backing=Backing(kind=BackingKind.RAMDISK, size_bytes=16 * MIB)),
        profile=profile,
    )
    if made.setting.is_virtual:
        _require_few_packets(made)
    return made


def _require_few_packets(plan: Plan) -> None:
    """Each packet takes real time, although virtual time is free: a probe has to end."""
    for probe in plan.probing:
        for column in plan.columns:
            count = _packets(probe, plan.links[column.link])
            if count > MOST_VIRTUAL_PACKETS:
                minutes = count / VIRTUAL_PACKETS_PER_S / 60
                raise UsageError(
                    f"expected at most {MOST_VIRTUAL_PACKETS / 1e6:g} million packets for a probe in virtual "
                    f"time, where each packet is simulated, found {count / 1e6:.1f} million for {probe.name} "
                    f"over {column.link}: some {minutes:.0f} minutes",
                    hint="try --duration 1s, with --udp-rate at about the link's rate",
                )


def _packets(probe: Probe, link: LinkProfile) -> float:
    """About how many full packets a probe sends over a link; 0 if its rate is unknown."""
    if (load := probe.load) is None:
        return 0
    rate_bit_s = load.rate_bit_s or link.rate_bit_s or 0
    return rate_bit_s * load.seconds / (8 * (load.packet_bytes or link.mtu_bytes))


def estimate_s(plan: Plan) -> float:
    """How long the probes of a plan take, about."""
    each = (
        max(
            probe.estimate_s,
            _packets(probe, plan.links[column.link]) / VIRTUAL_PACKETS_PER_S
            if plan.setting.is_virtual
            else 0,
        )
        for probe in plan.probing
        for column in plan.columns
    )
    return sum(each) * plan.repeats
