"""Virtual time with a priced processor: from a price list to what the lab's own kernel lets time pass for.

Figures of such a run are predicted. ``explain.predicted`` says the same in closed form, from the same prices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from harness.analysis.prices import Operation, Per, Price, PriceList, Whose
from harness.analysis.theory import IoDirection
from harness.explain import path, priced
from harness.explain.predicted import OTHER, Ends
from harness.model import KERNEL_TARGETS, TRANSPORTS, Charges, Column, Job, LinkProfile, Plan
from harness.model.errors import UsageError
from harness.parse.jobfile import described

PLACES = (
    *("read_call", "write_call", "wake_up", "read_byte", "write_byte", "command", "command_wake_up"),
    *("request", "xmit_packet", "xmit_byte", "rcv_packet", "rcv_byte", "packet_bytes", "link_wake_up"),
    "link_delay",
)
"""What ``charge.patch`` charges, in its order."""


LONG_BYTES = 1 << 20
"""Of an I/O so long every second packet is an ACK."""


def charged(plan: Plan, found: PriceList) -> Plan:
    """The plan with these prices. UsageError if the kernel has no place for what it does, or the list no
    price."""
    digest = hashlib.sha256(msgspec.json.encode([(p.at, p.operation, p.ns) for p in found.prices]))
    setting = msgspec.structs.replace(plan.setting, predicted_from=f"{found.name} {digest.hexdigest()[:6]}")
    plan = msgspec.structs.replace(plan, setting=setting)
    if not (setting.is_virtual and setting.is_own and plan.traits.boots_kernels):
        return plan  # which ``rules`` refuse
    lists = Ends(target=found).of_each()
    if (Whose.BOTH in lists) is not plan.traits.shares_kernel:
        is_apart = Whose.BOTH not in lists
        what = "one kernel for each end" if is_apart else "both ends in one kernel"
        raise UsageError(
            f"expected a lab like that of {found.name}, whose prices are those of {what}",
            hint="add --kernels apart" if is_apart else "leave --kernels apart out",
        )
    charges = {
        column.label: {
            f"{at} {job.name}": _charges(plan, column, at, found, job) for at in lists for job in plan.jobs
        }
        for column in plan.columns
    }
    return msgspec.structs.replace(plan, charges=charges)


def _charges(plan: Plan, column: Column, at: Whose, of: PriceList, job: Job) -> Charges:
    if column.is_local and at is Whose.TARGET:
        at = Whose.INITIATOR  # where several kernels are, the disk itself is measured there
    known, link, transport = of.at(at), plan.links.get(column.link), column.transport
    _require(plan, column, at, of.name, known)

    def ns(part: str | None, per: Per, direction: str = "") -> float:
        # Where a list has prices of one direction alone they stand for both, as in ``explain.predicted``.
        for each in (direction, OTHER.get(direction, ""), ""):
            if (price := known.get(Operation(part or "", per, each))) is not None:
                return price.ns
        return 0.0

    # A packet passes one kernel with both ends twice: as it is sent, and as it arrives.
    share = 0.5 if at is Whose.BOTH else 1.0
    shaped = priced.is_shaped(link)
    own = [priced.part_of(each, plan.proposals) for each in column.protection]
    emulated = [priced.EMULATED] * shaped
    packet = share * sum(ns(part, Per.PACKET) for part in (transport, *own, *emulated))
    ciphers = {
        (per, does): sum(ns(each, per, does) for each in column.protection)
        for per in (Per.PACKET, Per.BYTE)
        for does in ("encrypt", "decrypt")
    }
    # Of a mix half is taken for reads.
    direction = described(job).direction
    ways: tuple[IoDirection, ...] = ("read", "write")
    if direction is not None and direction != "both":
        ways = (direction,)
    byte = sum(share * ns(transport, Per.BYTE, way) for way in ways) / len(ways)
    if not column.protection:
        # The kernel charges nothing for an ACK, so bytes pay for theirs.
        waits = shaped and (described(job).in_flight or 1) > 1
        byte += packet * sum(_acks_per_byte(link, transport, of, way, waits) for way in ways) / len(ways)
    per_io = ns(transport, Per.IO) + shaped * ns(priced.EMULATED, Per.IO)
    per_wake_up = ns(transport, Per.WAKE_UP)
    is_target, has_disk = at is not Whose.INITIATOR, at is Whose.BOTH or column.is_local
    idle = of.at(Whose.NONE).get(Operation(priced.EMULATED, Per.ROUND_TRIP))
    found = {
        "read_call": ns(priced.BLOCKS, Per.CALL, "read"),
        "write_call": ns(priced.BLOCKS, Per.CALL, "write"),
        "wake_up": ns(priced.BLOCKS, Per.WAKE_UP) + (0.0 if is_target else per_wake_up),
        "read_byte": has_disk * ns(priced.BLOCKS, Per.BYTE, "read"),
        "write_byte": has_disk * ns(priced.BLOCKS, Per.BYTE, "write"),
        "command": is_target * per_io,
        "command_wake_up": is_target * per_wake_up,
        "request": (not is_target) * per_io,
        "xmit_packet": packet + ciphers[Per.PACKET, "encrypt"],
        "xmit_byte": byte + ciphers[Per.BYTE, "encrypt"],
        "rcv_packet": packet + ciphers[Per.PACKET, "decrypt"],
        "rcv_byte": byte + ciphers[Per.BYTE, "decrypt"],
        # The kernel cuts up what is protected. Of the rest a price is of a super-packet, which virtual time,
        # where each frame is sent by itself, has none of.
        "packet_bytes": 0.0 if column.protection else path.SUPER_PACKET_BYTES / 1000,
        "link_wake_up": share * shaped * ns(priced.EMULATED, Per.WAKE_UP),
        "link_delay": idle.ns / 2 if idle is not None and shaped else 0.0,
    }
    return tuple(min(2**32 - 1, round(1000 * found[place])) for place in PLACES)


def _acks_per_byte(
    link: LinkProfile | None, transport: str | None, of: PriceList, direction: IoDirection, waits: bool
) -> float:
    """How many ACKs there are for each byte of a long I/O, while packets wait for the link or not."""
    if link is None or transport is None:
        return 0.0
    session = {name: str(value) for name, value in of.sessions.get(transport, {}).items()}
    shorter, longer = (
        path.agreed_demands(link, None, transport, session, direction, size)
        for size in (LONG_BYTES, 2 * LONG_BYTES)
    )
    if shorter is None or longer is None:
        return 0.0
    more = longer.full_packets - shorter.full_packets if waits else longer.packets - shorter.packets
    return more / 2 / LONG_BYTES


def _require(plan: Plan, column: Column, at: Whose, name: str, known: Mapping[Operation, Price]) -> None:
    """UsageError for the first thing that a column does and that has no price."""
    if column.transport not in (None, *KERNEL_TARGETS):
        raise UsageError(
            f"expected --transport {' or '.join(KERNEL_TARGETS)} with --priced, found {column.transport}: "
            f"the target of {TRANSPORTS[column.transport]} is a program, and the kernel charges its own work",
            hint="harness predict says it in closed form",
        )
    parts = {(price.part, price.per) for price in known.values()}
    needed = [(priced.BLOCKS, Per.CALL)] * (at is not Whose.TARGET)
    needed += [(column.transport, Per.BYTE)] if column.transport else []
    for each in column.protection:
        needed += [(priced.part_of(each, plan.proposals), Per.PACKET), (each, Per.BYTE)]
    for part, per in needed:
        if (part, per) not in parts:
            raise UsageError(
                f"expected a price of {part} for each {per} in {name}, found none",
                hint=f"harness price measures one (--protect, --transport); or leave {column.label} out",
            )
