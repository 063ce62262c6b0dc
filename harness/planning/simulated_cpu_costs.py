"""Virtual time with simulated CPU costs: turns a CPU cost file into the time that the custom kernel
charges for each operation.

Figures of such a run are predicted. ``explain.predicted`` says the same in closed form, from the same CPU
costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from harness.analysis import path_demands
from harness.analysis.cpu_costs import CpuCost, CpuCosts, Operation, Per, WhichEnd
from harness.analysis.theory import IoDirection
from harness.explain import demand
from harness.explain.predicted import OTHER, Ends
from harness.model import KERNEL_TARGETS, TRANSPORTS, Column, Job, LinkProfile, Plan, SimulatedCpuCosts
from harness.model.errors import UsageError
from harness.parse.cpu_costs import load_cpu_costs
from harness.parse.jobfile import described

PLACES = (
    *("read_call", "write_call", "wake_up", "read_byte", "write_byte", "command", "command_wake_up"),
    *("request", "xmit_packet", "xmit_byte", "rcv_packet", "rcv_byte", "packet_bytes", "link_wake_up"),
    "link_delay",
)
"""What ``charge.patch`` charges, in its order."""


LONG_BYTES = 1 << 20
"""Of an I/O so long every second packet is an ACK."""


def charged(plan: Plan, file: str) -> Plan:
    """The plan with the CPU costs of a file. UsageError if the kernel cannot charge something that it does,
    or the file has no cost for it."""
    found = load_cpu_costs(file)
    digest = hashlib.sha256(msgspec.json.encode([(p.at, p.operation, p.ns) for p in found.costs]))
    setting = msgspec.structs.replace(plan.setting, predicted_from=f"{found.name} {digest.hexdigest()[:6]}")
    plan = msgspec.structs.replace(plan, setting=setting)
    if not (setting.is_virtual and setting.is_custom and plan.capabilities.boots_kernels):
        return plan  # which ``rules`` refuse
    lists = Ends(target=found).of_each()
    if (WhichEnd.BOTH in lists) is not plan.capabilities.shares_kernel:
        is_per_host = WhichEnd.BOTH not in lists
        what = "one kernel for each end" if is_per_host else "both ends in one kernel"
        raise UsageError(
            f"the CPU costs of {found.name} were measured with {what}, expected the same of this lab",
            hint="add --kernels per-host" if is_per_host else "leave --kernels per-host out",
        )
    simulated_cpu_costs = {
        column.label: {
            f"{at} {job.name}": _costs_of(plan, column, at, found, job) for at in lists for job in plan.jobs
        }
        for column in plan.columns
    }
    return msgspec.structs.replace(plan, simulated_cpu_costs=simulated_cpu_costs)


def _costs_of(plan: Plan, column: Column, at: WhichEnd, of: CpuCosts, job: Job) -> SimulatedCpuCosts:
    if column.is_local and at is WhichEnd.TARGET:
        at = WhichEnd.INITIATOR  # where several kernels are, the disk itself is measured there
    known, link, transport = of.at(at), plan.links.get(column.link), column.transport
    _require(plan, column, at, of.name, known)

    def ns(part: str | None, per: Per, direction: str = "") -> float:
        # If a file has CPU costs for one direction only, they are used for both, as in ``explain.predicted``.
        for each in (direction, OTHER.get(direction, ""), ""):
            if (cost := known.get(Operation(part or "", per, each))) is not None:
                return cost.ns
        return 0.0

    # A packet passes one kernel with both ends twice: as it is sent, and as it arrives.
    share = 0.5 if at is WhichEnd.BOTH else 1.0
    shaped = demand.is_shaped(link)
    own = [demand.part_of(each, plan.proposals) for each in column.protection]
    emulated = [demand.EMULATED] * shaped
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
    per_io = ns(transport, Per.IO) + shaped * ns(demand.EMULATED, Per.IO)
    per_wake_up = ns(transport, Per.WAKE_UP)
    is_target, has_disk = at is not WhichEnd.INITIATOR, at is WhichEnd.BOTH or column.is_local
    idle = of.at(WhichEnd.NONE).get(Operation(demand.EMULATED, Per.ROUND_TRIP))
    found = {
        "read_call": ns(demand.BLOCKS, Per.CALL, "read"),
        "write_call": ns(demand.BLOCKS, Per.CALL, "write"),
        "wake_up": ns(demand.BLOCKS, Per.WAKE_UP) + (0.0 if is_target else per_wake_up),
        "read_byte": has_disk * ns(demand.BLOCKS, Per.BYTE, "read"),
        "write_byte": has_disk * ns(demand.BLOCKS, Per.BYTE, "write"),
        "command": is_target * per_io,
        "command_wake_up": is_target * per_wake_up,
        "request": (not is_target) * per_io,
        "xmit_packet": packet + ciphers[Per.PACKET, "encrypt"],
        "xmit_byte": byte + ciphers[Per.BYTE, "encrypt"],
        "rcv_packet": packet + ciphers[Per.PACKET, "decrypt"],
        "rcv_byte": byte + ciphers[Per.BYTE, "decrypt"],
        # The kernel splits protected traffic. For the rest a CPU cost is per super-packet, which virtual
        # time, where each frame is sent by itself, has none of.
        "packet_bytes": 0.0 if column.protection else path_demands.SUPER_PACKET_BYTES / 1000,
        "link_wake_up": share * shaped * ns(demand.EMULATED, Per.WAKE_UP),
        "link_delay": idle.ns / 2 if idle is not None and shaped else 0.0,
    }
    return tuple(min(2**32 - 1, round(1000 * found[place])) for place in PLACES)


def _acks_per_byte(
    link: LinkProfile | None, transport: str | None, of: CpuCosts, direction: IoDirection, waits: bool
) -> float:
    """How many ACKs there are for each byte of a long I/O, while packets wait for the link or not."""
    if link is None or transport is None:
        return 0.0
    session = {name: str(value) for name, value in of.sessions.get(transport, {}).items()}
    shorter, longer = (
        path_demands.of_session(link, None, transport, session, direction, size)
        for size in (LONG_BYTES, 2 * LONG_BYTES)
    )
    if shorter is None or longer is None:
        return 0.0
    more = longer.full_packets - shorter.full_packets if waits else longer.packets - shorter.packets
    return more / 2 / LONG_BYTES


def _require(plan: Plan, column: Column, at: WhichEnd, name: str, known: Mapping[Operation, CpuCost]) -> None:
    """UsageError for the first operation of a column without a CPU cost."""
    if column.transport is not None and column.transport not in KERNEL_TARGETS:
        raise UsageError(
            f"expected --transport {' or '.join(KERNEL_TARGETS)} with --cpu-costs, found {column.transport}: "
            f"the target of {TRANSPORTS[column.transport]} is a program, and only the kernel's own work "
            f"has CPU costs",
            hint="leave --cpu-costs out: the target's own work then takes no time",
        )
    parts = {(cost.part, cost.per) for cost in known.values()}
    needed = [(demand.BLOCKS, Per.CALL)] * (at is not WhichEnd.TARGET)
    needed += [(column.transport, Per.BYTE)] if column.transport else []
    for each in column.protection:
        needed += [(demand.part_of(each, plan.proposals), Per.PACKET), (each, Per.BYTE)]
    for part, per in needed:
        if (part, per) not in parts:
            raise UsageError(
                f"expected a CPU cost of {part} for each {per} in {name}, found none",
                hint=f"harness cpu-cost measures one (--protect, --transport); or leave {column.label} out",
            )
