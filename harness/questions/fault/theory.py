"""How long I/O should stand still, from settings alone: the program's own check of what it measured.

Only faults whose end no chance decides: random loss has none. ``docs/stalls.md`` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from harness.model import Record, kinds
from harness.model.kinds import Timer, TransportKind
from harness.model.protections import PROTECTIONS, RETRANSMISSION
from harness.model.stalls import Stall
from harness.questions.fault.section import OF_DISKS, REBOOT, WITH_RESET

RTO_MIN_S = 0.2
"""TCP_RTO_MIN of include/net/tcp.h. The round trip is added (tcp_set_rto())."""

PROBE_S = 0.5
"""TCP_RESOURCE_PROBE_INTERVAL: how soon TCP tries again if its own host took nothing from it."""

ARP_S = 1.0
"""How soon a host asks again for its neighbour's address (net.ipv4.neigh.*.retrans_time_ms), three times."""

ASKED_S = 6.0
"""So long after a link went down a host asks without a pause: three times after a try of TCP's, which is then
told that no answer came, and tries again (RFC 6069). Later TCP tries too seldom."""

HZ = 100
"""The clock of the lab's kernels, the slowest that kernels have: all steps are the largest."""

RECONNECT_S = 0.1
"""The most that a new session takes, once its server answers, besides round trips."""

LOGIN_ROUND_TRIPS = 14
"""Of iSCSI's: 12 to 13 were measured over 1 to 50 ms."""

AT_ONCE_S = 0.0005
"""A connection that is up so soon is not waited for (``TransportKind.connect_s``)."""

ACQUIRE_S = 30.0
"""net.core.xfrm_acq_expires, as kernels have it: charon does not change it here."""

IO_TIMEOUT_S = 30.0
"""How long a request may take before an initiator gives it up (SD_TIMEOUT of drivers/scsi/sd.h, and
nvme_core.io_timeout)."""

SESSION_S = 180.0
"""REJECT_AFTER_TIME: so long after a handshake its keys end (the WireGuard paper, section 6.1)."""

HANDSHAKE_S = 5.0 + 1 / 3
"""REKEY_TIMEOUT and its jitter: one that was not answered is sent again (the same)."""

SESSION_BEGAN_S = (3.0, 13.0)
"""So long before a fault: a path's keys are made as it comes up, and the load begins 3 s before the fault."""

MKA_LIFE_S, MKA_HELLO_S = 6.0, 2.0
"""802.1X-2020, table 9-3: an end that was not heard of for so long is gone; each says that often that it is
there, and wpa_supplicant looks that often who is."""

ROUNDING = 1.02

LET_OUT_S = 0.05
"""What waited for an address has been answered by then."""

SHORTER = 8
"""A forecast is for a timer that is so many times as short: 15 s instead of iSCSI's 120 s."""


class StallBounds(NamedTuple):
    """The least and the most, in s; both infinite if I/O never comes back, 0 if no request is late."""

    least_s: float
    most_s: float

    def holds(self, stall: Stall) -> bool:
        lasted_ns = stall.lasted_ns
        return self.least_s <= (math.inf if lasted_ns is None else lasted_ns / 1e9) <= self.most_s

    def __str__(self) -> str:
        if math.isinf(self.least_s):
            return "does not end"
        if self.most_s == 0:
            return "0"
        return f"{self.least_s:.1f} to {self.most_s:.1f}"


NEVER, NONE = StallBounds(math.inf, math.inf), StallBounds(0, 0)


def expected(record: Record, stall: Stall) -> StallBounds | None:
    """None for what has no formula, or if another timer runs out before the fault ends."""
    kind = stall.fault.partition(":")[0]
    lasts_s = round((stall.ended_ns - stall.began_ns) / 1e9, 1)
    transport = record.column.transport or ""
    if kind in OF_SERVERS:
        return _server(record, record.session, lasts_s, UNANSWERED_S.get(kind, 0.0))
    if kind == REBOOT:
        return NEVER if keeps_lost_keys(record) else None
    if kind in OF_DISKS:
        bounds = StallBounds(lasts_s / ROUNDING, lasts_s * ROUNDING + RECONNECT_S)
        return bounds if lasts_s < IO_TIMEOUT_S else None
    formula = OF_LINKS.get(kind)
    is_above = bool(PROTECTIONS.keys() & {*record.column.protection})
    if formula is _link_down and not record.emulated:
        formula = _filtered
    elif formula is _link_down and (is_above or stall.hops):
        formula = _reported
    found = formula(lasts_s) if formula else None
    if found is None or found.most_s > min(_gives_up_s(transport, record.session), _no_peer_s(record)):
        return None
    return found


def _link_down(lasts_s: float) -> StallBounds:
    """What TCP sends waits for the neighbour's address, and leaves when it is known."""
    if lasts_s > ASKED_S:
        return _reported(lasts_s)
    return StallBounds(lasts_s, lasts_s + _late(ARP_S) * ROUNDING + LET_OUT_S)


def _reported(lasts_s: float) -> StallBounds:
    """Behind a hop, within a protection's interface, or later than that. What a router or the host itself
    reports (ICMP) lets TCP send again sooner (RFC 6069), so that its next timeout may begin just before the
    end; but none is longer than it would be if nothing was reported."""
    timeout_s = all_s = RTO_MIN_S + 2 / HZ
    while all_s < lasts_s:
        timeout_s *= 2
        all_s += timeout_s
    return StallBounds(lasts_s, max(lasts_s + _late(timeout_s) * ROUNDING, _nothing_arrives(lasts_s).most_s))


def _filtered(lasts_s: float) -> StallBounds:
    """As ``faults.OF_PORTALS`` do it: nothing is reported but that a packet may not leave."""
    return StallBounds(lasts_s, _nothing_arrives(lasts_s).most_s)


def _late(timer_s: float) -> float:
    """When a timer runs out at the latest: the wheel has levels of 64 slots, each an eighth as fine, and a
    level begins with 63 of the slots below (kernel/time/timer.c)."""
    ticks, step = math.ceil(timer_s * HZ) + 1, 1
    while ticks >= 63 * step:
        step *= 8
    return (ticks + step) / HZ


def _nothing_arrives(lasts_s: float) -> StallBounds:
    """TCP sends again after one timeout, then after two, four: the first time that is after the fault."""
    least_s = most_s = 0.0
    wait_s, longer_s = RTO_MIN_S, RTO_MIN_S + 2 / HZ
    while least_s < lasts_s:
        if lasts_s <= most_s:
            # Whether the last was before the end of the fault or after it depends on the clock.
            return StallBounds(lasts_s, (most_s + _late(longer_s)) * ROUNDING)
        least_s, most_s = least_s + wait_s, most_s + _late(longer_s)
        wait_s, longer_s = 2 * wait_s, 2 * longer_s
    return StallBounds(least_s, most_s * ROUNDING)


def _lost_keys(_lasts_s: float) -> StallBounds:
    """The kernel waits for new keys, and then charon makes some."""
    return _nothing_arrives(ACQUIRE_S)


def _other_endpoint(lasts_s: float) -> StallBounds:
    """The target sends its last answer again, whose acknowledgement went astray. Then its peer knows where it
    is, and sends again by its own timeout, which may have run out just before."""
    return _nothing_arrives(min(lasts_s, RTO_MIN_S + 1 / HZ))


def _no_handshake(lasts_s: float) -> StallBounds:
    """The present keys end some time, and I/O goes on with the first handshake that succeeds. Packets wait
    for it in the kernel, so TCP does not count them as lost."""
    newest_s, oldest_s = SESSION_BEGAN_S
    most_s = lasts_s + _late(HANDSHAKE_S) + PROBE_S - (SESSION_S - oldest_s)
    return StallBounds(max(0.0, lasts_s - (SESSION_S - newest_s)), max(0.0, most_s))


def _no_key_server(lasts_s: float) -> StallBounds:
    """Who misses the key server deletes the keys, a hello sooner or later; two hellos after it is back, there
    are new ones. Then TCP sends again."""
    least_s = lasts_s - (MKA_LIFE_S + MKA_HELLO_S)
    most_s = lasts_s + 2 * MKA_HELLO_S - (MKA_LIFE_S - MKA_HELLO_S)
    if lasts_s <= MKA_LIFE_S - MKA_HELLO_S:
        return NONE
    return StallBounds(_nothing_arrives(least_s).least_s, _nothing_arrives(most_s).most_s)


def _no_request_is_late(_lasts_s: float) -> StallBounds:
    return NONE


OF_LINKS: Mapping[str, Callable[[float], StallBounds]] = {
    "link-down": _link_down,
    "initiator-link-down": _link_down,
    "hop-down": _reported,
    "loss-100": _nothing_arrives,
    "loss-100-to-target": _nothing_arrives,
    "loss-100-to-initiator": _nothing_arrives,
    "sa-deleted": _lost_keys,
    "rekey-ike": _no_request_is_late,
    "rekey-child": _no_request_is_late,
    # The kernel has the keys.
    "ike-daemon-killed": _no_request_is_late,
    "ike-daemon-stopped": _no_request_is_late,
    "endpoint-changed": _other_endpoint,
    "handshakes-blocked": _no_handshake,
    "key-server-gone": _no_key_server,
}

OF_SERVERS = ("target-down", "connection-reset", *WITH_RESET)

UNANSWERED_S = {"handshake-daemon-stopped": 10.0}
"""How long each try waits where nothing refuses it: tls_handshake_timeout of drivers/nvme/host/tcp.c."""


def _server(
    record: Record, session: Mapping[str, str], lasts_s: float, unanswered_s: float = 0.0
) -> StallBounds | None:
    """A connection that the target has ended is made anew after a wait, and again after the same wait. A try
    that is ``unanswered_s`` long succeeds if the fault ends meanwhile."""
    kind = kinds.transport(record.column.transport or "")
    waits = [name for timer in kind.timers if timer.begins for name in timer.parameters]
    retry_s = most_s = kind.retry_s
    if waits:
        retry_s = _seconds(kind, session, waits)
        most_s = _late(retry_s)
    elif not retry_s:
        return NEVER
    if not retry_s:
        return None
    tries = max(1, math.ceil(lasts_s / retry_s))
    # The fastest write took a round trip.
    round_trip_s = ((record.write and record.write.latency.min_ns) or 0) / 1e9
    connect_s = RECONNECT_S + LOGIN_ROUND_TRIPS * round_trip_s
    connect_s += kind.connect_s if round_trip_s > AT_ONCE_S else 0
    if unanswered_s:
        least_s, longest_s = retry_s + unanswered_s, most_s + _late(unanswered_s)
        begins_s = lasts_s // longest_s * least_s + retry_s
        latest_s = lasts_s // least_s * longest_s + most_s
        return StallBounds(max(lasts_s, begins_s) / ROUNDING, max(lasts_s, latest_s) * ROUNDING + connect_s)
    return StallBounds(tries * retry_s / ROUNDING, tries * most_s * ROUNDING + connect_s)


def _gives_up_s(transport: str, session: Mapping[str, str]) -> float:
    """When a transport ends a connection by itself on which nothing arrives: its first timer."""
    kind = kinds.transport(transport)
    return _seconds(kind, session, kind.timers[0].parameters) or math.inf


def _no_peer_s(record: Record) -> float:
    """When charon gives up a peer that answers nothing, and deletes the keys."""
    return min(
        (
            float(agreed["dpd_delay"]) + retransmissions_s(agreed)
            for agreed in record.agreed.values()
            if float(agreed.get("dpd_delay", "0"))
        ),
        default=math.inf,
    )


def retransmissions_s(settings: Mapping[str, str]) -> float:
    """How long IKE waits for an answer before it gives its peer up (strongswan.conf(5), IKEv2
    RETRANSMISSION)."""
    timeout_s, base, tries = (float(settings.get(name, usual)) for name, usual in RETRANSMISSION.items())
    return sum(timeout_s * base**n for n in range(round(tries) + 1))


def keeps_lost_keys(record: Record) -> bool:
    """Whether an initiator with IPsec does not notice that its peer has no keys any more, until it rekeys:
    strongSwan asks its peer for a sign of life if ``dpd_delay`` says so."""
    has_esp = any(name not in PROTECTIONS for name in record.column.protection)
    return has_esp and math.isinf(_no_peer_s(record))


def _seconds(kind: TransportKind, session: Mapping[str, str], names: Iterable[str]) -> float:
    """0 for a timer that is off."""
    values = (session.get(kind.parameters[name].sysfs, "") for name in names)
    return sum(float(value) for value in values if value.isdecimal())


class Shorter(NamedTuple):
    """A forecast: if the timer of the parameter ``name`` were ``value_s``, the stall would be so long, or the
    first error of ``are_errors`` come so late."""

    name: str
    value_s: float
    bounds: StallBounds
    are_errors: bool

    def __str__(self) -> str:
        would = "errors would come after" if self.are_errors else "it would be"
        return f"With {self.name}={self.value_s:g} {would} {self.bounds} s"


def shorter(record: Record, stall: Stall, timer: Timer, events_ns: Iterable[int]) -> Shorter | None:
    """What would be if a timer that decided were ``SHORTER``. It began with the fault, or at one of
    ``events_ns``.

    None if not just one parameter sets it, if it cannot be shorter, if that would not help, or if it is not
    known when it began.
    """
    kind = kinds.transport(record.column.transport or "")
    if len(timer.parameters) != 1:
        return None
    (name,) = timer.parameters
    value_s = _seconds(kind, record.session, [name])
    less_s = max(1.0, value_s // SHORTER)
    lasts_s = round((stall.ended_ns - stall.began_ns) / 1e9, 1)
    fault = stall.fault.partition(":")[0]
    if timer.begins and fault in OF_SERVERS:
        session = {**record.session, kind.parameters[name].sysfs: f"{less_s:g}"}
        bounds = _server(record, session, lasts_s, UNANSWERED_S.get(fault, 0.0))
        now_s = (stall.stall_ns or 0) / 1e9
    elif not timer.begins and stall.first_error_ns is not None:
        after_s = (stall.first_error_ns - stall.began_ns) / 1e9
        least_s, most_s = after_s - _late(value_s) - RECONNECT_S, after_s - value_s
        began_s = [0.0, *((at_ns - stall.began_ns) / 1e9 for at_ns in events_ns)]
        if not any(least_s <= at_s <= most_s for at_s in began_s):
            return None
        bounds = StallBounds(least_s + less_s, most_s + _late(less_s))
        now_s = min(after_s, lasts_s)  # after the fault the path is back
    else:
        return None
    helps = less_s < value_s and bounds is not None and bounds.most_s < now_s
    return Shorter(name, less_s, bounds, not timer.begins) if bounds is not None and helps else None
