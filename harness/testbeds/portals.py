"""Looks behind a portal before a run is planned: discovery, a login, and the logical units.

Nothing is written, and the session ends with the look.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from harness.analysis import sanity
from harness.hosts import PRIVATE, Host, programs
from harness.hosts.black_box import BlackBoxHost
from harness.hosts.journal import Journal
from harness.model import AttachedVolume, BackingKind, BlackBoxTarget, LinkProfile, addresses, temporary
from harness.model.errors import HarnessError, RequirementError, UsageError
from harness.model.escape import printable
from harness.model.units import format_size
from harness.network import interfaces
from harness.parse.hosts import PortalAddress
from harness.parse.profiles import DEFAULT_PROPOSAL
from harness.protection import kinds, pre_existing
from harness.protection.pre_existing import FoundProtection
from harness.storage import attached, chap, guard, reservations, transports
from harness.storage.transport import SECTOR_BYTES, Export, Lun, NoAnswer, Shared, Sides
from harness.testbeds import doctor, participants
from harness.testbeds.doctor import Finding
from harness.testbeds.requirements import Asked

TRY_CONNECT = (
    *(programs.PYTHON, "-I", "-S", "-c"),
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)",
)
"""Succeeds if a TCP connection is made; its arguments are the address and the port."""


@dataclass(frozen=True, kw_only=True)
class FoundUnit:
    """A logical unit behind a portal: what the initiator's kernel says of it, and by which of its interfaces
    the portal is reached. ``rate_bit_s`` is that interface's, None unless it is an Ethernet card."""

    portal: BlackBoxTarget
    iface: str
    size_bytes: int
    title: str
    found_on_it: str = ""
    """By the guard: signatures, and who uses it."""
    device: guard.Device | None = None
    """As the guard found it."""
    rate_bit_s: int | None = None


@contextlib.contextmanager
def _reached(initiator: str, option: str) -> Iterator[tuple[Host, Path]]:
    """The initiator, for a look before a run with that option; and a folder for its logs, as long."""
    (machine,) = participants.machines(None, [initiator])
    with (
        temporary.folder() as folder,
        machine.reached(f"harness run {option}", folder / "log") as host,
    ):
        yield host, folder


def look(
    asked: PortalAddress,
    *,
    name: str,
    lun: int | None,
    chap_user: str,
    iface: str | None,
    initiator: str,
    swanctl: str = "",
) -> FoundUnit:
    """The logical unit that is meant: the only one if ``lun`` is None, of the only target if ``name`` is "".
    ``swanctl`` is a connection of the user's, by which the target may have to be asked.

    UsageError lists those there are, if there are several. RequirementError or CommandFailed if the initiator
    or the portal cannot be reached, or the target lets nobody in.
    """
    transport = transports.named(asked.transport)
    with _reached(initiator, "--portal") as (host, folder):
        ipsec = (DEFAULT_PROPOSAL,) if swanctl else ()
        doctor.require_all(host, "initiator", Asked(transports=(asked.transport,), protections=ipsec))
        for module in transport.initiator_modules:
            host.run(["modprobe", *module.split()])
        address, port = _resolved(host, asked.host), asked.port or transport.port
        portal = BlackBoxTarget(
            transport=asked.transport,
            typed=asked.typed,
            address=address,
            port=port,
            name=name or asked.name,
            lun=lun or 0,
            chap_user=chap_user,
            swanctl=swanctl,
        )
        wanted = Export(
            name="look",
            number=0,
            lun=Lun(serial="", kind=BackingKind.BLOCK, path="", size_bytes=0),
            target=BlackBoxHost(),
            address=address,
            port=port,
            bound_to=iface,
            read_only=True,
            parameters={},
        )
        sides = Sides(
            journal=Journal(folder / "journal.jsonl"),
            tag=secrets.token_hex(2),
            target=BlackBoxHost(),
            initiators=(host,),
            luns=(),
            logs=folder,
            black_box=portal,
            secrets=chap.known(),
        )
        try:
            with (
                _connected(host, folder, swanctl, [(address, port, iface or "")]),
                transport.shared(sides) as up,
            ):
                return _look(up, portal, wanted, host, lun=lun, iface=iface)
        except NoAnswer as error:
            if host.run([*TRY_CONNECT, address, str(port)], check=False).status == 0:
                raise RequirementError(
                    f"{asked.typed} accepts connections, but no login finished in time",
                    hint="check that it has a target of this name and that its ACL allows this machine's "
                    "initiator name",
                ) from error
            raise RequirementError(
                f"nothing answers at {asked.typed} ({addresses.at_port(address, port)}): "
                f"{error.message.rpartition(': ')[2]}",
                hint="is the target's service on, and does a firewall let that port through?",
            ) from error


def look_at(path: str, *, initiator: str) -> tuple[AttachedVolume, BackingKind, int]:
    """A volume that is attached to the initiator already, its kind, and its size in bytes. UsageError if it
    is none."""
    with _reached(initiator, "--volume") as (host, _):
        found = attached.look(host, path)
    words = [path if path == found.node else f"{path} ({found.node})", f"({found.by})", found.makers]
    volume = AttachedVolume(
        path=path,
        title=printable(" ".join(filter(None, words))),
        identity=printable(found.identity),
        is_new=found.kind == "new",
        filesystem=found.filesystem,
    )
    return volume, BackingKind.BLOCK if found.kind == "device" else BackingKind.FILE, found.size_bytes


def require_unit(path: str, *, initiator: str, needed_bytes: int) -> None:
    """DeviceRefused unless that much of an attached device may be overwritten: ``guard.judge_unit``."""
    with _reached(initiator, "--volume") as (host, _):
        guard.require_unit(host, path, needed_bytes=needed_bytes)


def findings(asked: PortalAddress, **meant: Any) -> Iterator[Finding]:
    """Whether a run finds its LUN there, and what protects the path, by ``look`` with the same arguments."""
    try:
        found = look(asked, **meant)
        portal = found.portal
        (protection,) = protections(
            meant["initiator"], {"portal": (portal.address, found.iface)}, portal.port
        ).values()
    except HarnessError as error:
        yield Finding("portal", doctor.MISSING, error.message, error.hint or "")
        return
    login = f"as {portal.chap_user}" if portal.chap_user else "without CHAP"
    text = f"LUN {portal.lun} of {portal.name}: {found.title}; logged in {login}, and out again"
    yield Finding("portal", doctor.OK, text, tried=True)
    at = addresses.at_port(portal.address, portal.port)
    text = f"{' + '.join(protection.names) or 'nothing'} protects the path to {at}, by {found.iface}"
    yield Finding("portal", doctor.NOTE, "; ".join((text, *protection.notes)))


@contextlib.contextmanager
def _connected(
    host: Host, folder: Path, swanctl: str, ends: Iterable[tuple[str, int, str]]
) -> Iterator[None]:
    """Have a connection of the user's up, if one is named: over ways that have no IPsec yet, each to an
    address and a port by an interface."""
    if not swanctl:
        yield
        return
    for address, port, iface in ends:
        if _has_ipsec(pre_existing.protection_to(host, address, port, iface)):
            raise RequirementError(
                f"IPsec protects the path to {addresses.at_port(address, port)} already",
                hint="measure that with --protect pre-existing, or take it down first",
            )
    place, log = PRIVATE / "ike-look", folder / "ike.log"
    journal = Journal(folder / "connection.jsonl")
    with kinds.connected(host, swanctl, index=0, journal=journal, folder=place, log=log):
        yield


def _has_ipsec(protection: FoundProtection) -> bool:
    return any(step.found.proposal is not None for step in protection.steps)


def protections(
    initiator: str, links: Mapping[str, tuple[str, str]], port: int, *, swanctl: str = ""
) -> dict[str, FoundProtection]:
    """The protections on each link's path to a portal, by the link's name, with the portal's address and the
    initiator's interface. With ``swanctl`` it is that connection of the user's.

    RequirementError if that cannot be watched, or a link leads nowhere; CommandFailed if it cannot be read.
    """
    ends = [(address, port, iface) for address, iface in links.values()]
    with _reached(initiator, "--portal") as (host, folder), _connected(host, folder, swanctl, ends):
        found = {name: pre_existing.protection_to(host, *end) for name, end in zip(links, ends, strict=True)}
    for name, protection in found.items():
        if swanctl and not _has_ipsec(protection):
            at = addresses.at_port(links[name][0], port)
            raise RequirementError(
                "; ".join(
                    [
                        f"link {name}: {swanctl} comes up, but its traffic selectors do not cover {at}",
                        *protection.notes,
                    ]
                ),
                hint="its local_ts and remote_ts must cover TCP from this machine's address on that link",
            )
        if blind := [step.found.name for step in protection.steps if step.below is None]:
            raise RequirementError(
                f"link {name}: the interface that {' and '.join(blind)} sends by is "
                "unknown, so it cannot be captured",
                hint="give it a default route, or one to its peer",
            )
    return found


def _look(
    up: Shared, portal: BlackBoxTarget, wanted: Export, host: Host, *, lun: int | None, iface: str | None
) -> FoundUnit:
    if not portal.name:
        portal = msgspec.structs.replace(portal, name=_only(up.discover(wanted), portal))
    up = replace(up, sides=replace(up.sides, black_box=portal))
    with up.connection(wanted):
        found = up.luns(wanted)
        unit = _unit(found["luns"], lun, portal)
        held = reservations.of(host, unit["node"])
        if held.keeps_readers_out:
            raise RequirementError(
                f"LUN {unit['lun']} of {printable(portal.name)} does not let "
                f"other initiators read: {held.in_use}",
                hint="name another LUN, or free this one there",
            )
        on_it = guard.inspect(host, unit["node"])
    at = addresses.at_port(portal.address, portal.port)
    where = (found["address"], found["port"])
    if where != (portal.address, portal.port):
        portal = msgspec.structs.replace(portal, address=where[0], port=where[1], login=at)
    iface = iface or interfaces.towards(host, portal.address)
    bare = LinkProfile(name=iface, title=iface, emulated=False)
    return FoundUnit(
        portal=msgspec.structs.replace(portal, lun=unit["lun"], wwid=unit.get("wwid", "")),
        iface=iface,
        size_bytes=int(unit["sectors"]) * SECTOR_BYTES,
        title=_title(unit),
        found_on_it=", ".join(
            dict.fromkeys(
                (*on_it.signatures, *(use.what for use in on_it.uses), *filter(None, [held.in_use]))
            )
        ),
        device=msgspec.structs.replace(on_it, reserved=held.in_use),
        rate_bit_s=sanity.pre_existing(bare, [interfaces.describe(host, iface)]).rate_bit_s,
    )


def _only(targets: Mapping[str, Sequence[str]], portal: BlackBoxTarget) -> str:
    """The target's name, if there is one alone."""
    if len(targets) == 1:
        return next(iter(targets))
    names = "; ".join(printable(name) for name in targets) or "none"
    hint = "check that its ACL allows this machine's initiator name"
    if targets:
        hint = f"name one: --iqn {printable(next(iter(targets)))}"
    raise UsageError(f"expected one target at {portal.typed}, found {len(targets)}: {names}", hint=hint)


def _unit(units: Sequence[dict[str, Any]], lun: int | None, portal: BlackBoxTarget) -> dict[str, Any]:
    """The logical unit that is meant."""
    found = [unit for unit in units if lun is None or unit["lun"] == lun]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"LUN {unit['lun']}, {_title(unit)}" for unit in units) or "none"
    wanted = "one logical unit" if lun is None else f"LUN {lun}"
    hint = f"name one: --lun {units[0]['lun']}" if units else "create one there, or let this machine see it"
    raise UsageError(f"expected {wanted} of {printable(portal.name)}, found {listed}", hint=hint)


def _title(unit: Mapping[str, str]) -> str:
    """Size and maker (INQUIRY's vendor and product: SPC-4, section 6.6.2) for people."""
    makers = " ".join(word for key in ("vendor", "model") if (word := unit.get(key, "").strip()))
    return printable(f"{format_size(int(unit['sectors']) * SECTOR_BYTES)} {makers}".strip())


def _resolved(host: Host, name: str) -> str:
    """The address of a portal, as its initiator knows it."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        said = host.run(["getent", "ahosts", name], check=False).stdout.split()
    if not said:
        raise RequirementError(
            f"the {host.name} knows no address of {printable(name)}",
            hint="check the name, or give an address: --portal 192.168.1.10",
        )
    return said[0]
