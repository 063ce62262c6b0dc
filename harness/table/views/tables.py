"""Which figures of which probes each view shows, and which records they come from.

A figure is the median over all ok repeats of all runs given. The probes that ``harness run`` makes beside its
cells count only where there is no probe of ``harness probe``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from harness.analysis import disturbance
from harness.model import (
    PROTECTION_OFF,
    UNENCRYPTED,
    Clock,
    Record,
    TestbedKind,
    is_unencrypted,
)
from harness.model.choices import Choice
from harness.model.probing import Cipher, Forwarding, PacketRate, Ping, Socket, Udp, UdpLatency
from harness.parse.references import PathReference
from harness.results.probe_records import (
    Figures,
    ForwardingFigures,
    PacketRateFigures,
    PingFigures,
    ProbeRecord,
    TcpFigures,
    UdpFigures,
    UdpLatencyFigures,
)
from harness.table.notes import DISTURBED_SIGN, LAB_SIGN
from harness.table.views.grid import NOTHING, Entry, Field, Footnotes, Grid, Row

MS_NS = 1e6
US_NS = 1e3
MBIT = 1e6

SPARSE_S = 0.1
"""Pings at this interval or a longer one are those of people, at a shorter one those at the cadence of
I/O."""


TOLERANCE = disturbance.LOST_OF_TAKEN * disturbance.THRESHOLD
"""Single figures may differ by so much without a cause."""

TOLERANCE_POINTS = 1.0
"""The same for parts that are lost, in percent."""

UNITS = {
    "_mbit_s": "Mbit/s",
    "_per_s": "per second",
    "_ms": "ms",
    "_us": "µs",
    "lost_percent": "%",
}
"""Of figures that can be compared, by how their keys end."""


def unit_of(key: str) -> str | None:
    return next((unit for end, unit in UNITS.items() if key.endswith(end)), None)


def differ(key: str, one: float, other: float, tolerance: float = TOLERANCE) -> bool:
    """Whether two figures differ by more than single measurements may; without ``tolerance``, at all."""
    if unit_of(key) == "%":
        return abs(one - other) > (TOLERANCE_POINTS if tolerance else 0.0)
    return abs(one - other) > tolerance * max(one, other)


class View(Choice):
    """view"""

    LINK = "link"
    PPPOE = "pppoe"
    OPENFLOW = "openflow"
    PPS = "pps"
    UDP_LATENCY = "udp-latency"
    SCALE = "scale"
    COUNTERS = "counters"


Pick = Callable[[ProbeRecord], bool]
Take = Callable[[Figures], float | None]


class _Measure:
    """A column of a view: which records it uses, and which of their figures."""

    def __init__(self, field: Field, pick: Pick, take: Take | None = None) -> None:
        self.field = field
        self.pick = pick
        self.take = take
        """None: how busy the processors were during the probe, in percent."""

    def of(self, record: ProbeRecord) -> float | None:
        if self.take is not None:
            return None if record.figures is None else self.take(record.figures)
        busy = [use.busy for use in record.processors if use.busy is not None]
        return 100 * max(busy) if busy else None


def _any(_record: ProbeRecord) -> bool:
    return True


def _sparse(record: ProbeRecord) -> bool:
    probe = record.probe
    return isinstance(probe, Ping) and not probe.loaded and probe.interval_s >= SPARSE_S


def _dense(record: ProbeRecord) -> bool:
    probe = record.probe
    return isinstance(probe, Ping) and not probe.loaded and probe.interval_s < SPARSE_S


def _loaded(record: ProbeRecord) -> bool:
    return isinstance(record.probe, Ping) and record.probe.loaded


def _tcp(record: ProbeRecord) -> bool:
    return record.probe.name == "tcp"


def _udp(record: ProbeRecord) -> bool:
    return isinstance(record.probe, Udp)


def _ping_time(name: str, unit_ns: float = MS_NS) -> Take:
    def take(figures: Figures) -> float | None:
        value = getattr(figures.round_trips, name) if isinstance(figures, PingFigures) else None
        return None if value is None else value / unit_ns

    return take


def _ping_lost(figures: Figures) -> float | None:
    return figures.round_trips.lost_percent if isinstance(figures, PingFigures) else None


def _figure(of: type[Figures], name: str, unit: float = 1.0) -> Take:
    def take(figures: Figures) -> float | None:
        value = getattr(figures, name) if isinstance(figures, of) else None
        return None if value is None else value / unit

    return take


PING = [
    _Measure(Field(key="ping_min_ms", heading="ping|min|ms", decimals=3), _sparse, _ping_time("min_ns")),
    _Measure(Field(key="ping_mean_ms", heading="ping|mean|ms", decimals=3), _sparse, _ping_time("mean_ns")),
    _Measure(Field(key="ping_max_ms", heading="ping|max|ms", decimals=3), _sparse, _ping_time("max_ns")),
    _Measure(Field(key="ping_mdev_ms", heading="ping|mdev|ms", decimals=3), _sparse, _ping_time("stddev_ns")),
    _Measure(Field(key="ping_lost_percent", heading="ping|lost|%", decimals=1), _sparse, _ping_lost),
]
TCP_RECEIVED = _Measure(
    Field(key="tcp_received_mbit_s", heading="TCP|received|Mbit/s", decimals=1),
    _tcp,
    _figure(TcpFigures, "received_bit_s", MBIT),
)
TCP_SENT = _Measure(
    Field(key="tcp_sent_mbit_s", heading="TCP|sent|Mbit/s", decimals=1),
    _tcp,
    _figure(TcpFigures, "sent_bit_s", MBIT),
)
TCP_RETRANSMITS = _Measure(
    Field(key="tcp_retransmits", heading="TCP|retrans-|mits", decimals=0),
    _tcp,
    _figure(TcpFigures, "retransmits"),
)
TCP_BUSY = _Measure(Field(key="tcp_cpu_percent", heading="CPU|during|TCP %", decimals=0), _tcp)
UDP_SENT = _Measure(
    Field(key="udp_sent_mbit_s", heading="UDP|sent|Mbit/s", decimals=1),
    _udp,
    _figure(UdpFigures, "sent_bit_s", MBIT),
)
UDP_RECEIVED = _Measure(
    Field(key="udp_received_mbit_s", heading="UDP|received|Mbit/s", decimals=1),
    _udp,
    _figure(UdpFigures, "received_bit_s", MBIT),
)
UDP_REST = [
    _Measure(
        Field(key="udp_jitter_ms", heading="jitter|ms", decimals=3),
        _udp,
        _figure(UdpFigures, "jitter_ns", MS_NS),
    ),
    _Measure(Field(key="udp_lost", heading="lost", decimals=0), _udp, _figure(UdpFigures, "lost")),
    _Measure(Field(key="udp_datagrams", heading="of", decimals=0), _udp, _figure(UdpFigures, "datagrams")),
    _Measure(
        Field(key="udp_lost_percent", heading="lost|%", decimals=2), _udp, _figure(UdpFigures, "lost_percent")
    ),
]
UDP_DISORDER = _Measure(
    Field(key="udp_out_of_order", heading="out of|order", decimals=0),
    _udp,
    _figure(UdpFigures, "out_of_order"),
)
IO_PING = _Measure(
    Field(key="ping_io_p50_ms", heading="ping 2 ms|p50|ms", decimals=3), _dense, _ping_time("p50_ns")
)
LOADED_PING = _Measure(
    Field(key="ping_loaded_mean_ms", heading="ping loaded|mean|ms", decimals=3),
    _loaded,
    _ping_time("mean_ns"),
)

VIRTUAL = ", virtual"
"""In the name of a place (``setting_of``) where time is virtual."""

PATHS: dict[View, list[_Measure]] = {
    View.LINK: [
        PING[1],
        IO_PING,
        LOADED_PING,
        PING[4],
        TCP_RECEIVED,
        TCP_RETRANSMITS,
        TCP_BUSY,
        UDP_RECEIVED,
        UDP_REST[0],
        UDP_REST[3],
    ],
    View.PPPOE: [*PING, TCP_SENT, TCP_RECEIVED, TCP_RETRANSMITS, TCP_BUSY, UDP_SENT, *UDP_REST],
    View.OPENFLOW: [PING[1], TCP_RECEIVED, UDP_RECEIVED, *UDP_REST, UDP_DISORDER],
}
"""Views with a row for each path."""

TITLES = {
    View.LINK: "Paths: round trips, TCP and UDP",
    View.PPPOE: "Round trips, TCP and UDP, as document 000 has them",
    View.OPENFLOW: "Round trips, TCP and UDP, as document 001 has them",
    View.PPS: "Packets per second",
    View.UDP_LATENCY: "UDP round trips in microseconds",
    View.SCALE: "Initiators at once: what each further one costs",
    View.COUNTERS: "Measured during the cells",
}


def build(view: View, records: Sequence[ProbeRecord], reference: PathReference | None = None) -> Grid:
    """The table of a view. Without a record that it could show, it has no rows."""
    notes = Footnotes()
    records = [record for record in records if not isinstance(record.probe, Cipher)]
    match view:
        case View.PPS:
            labels, fields, rows = _packets(records, notes)
        case View.UDP_LATENCY:
            labels, fields, rows = _latencies(records, notes)
        case _:
            labels, fields, rows = _paths(PATHS.get(view, []), records, notes)
    rows, labs_own = _signed(rows)
    if reference is not None:
        rows += [
            Row(
                labels=(published.title, *("",) * (len(labels) - 1)),
                entries={key: Entry(value=value) for key, value in published.values.items()},
                is_published=True,
            )
            for published in reference.row
        ]
    return Grid(
        title=TITLES[view],
        view=view,
        labels=labels,
        fields=fields,
        rows=tuple(rows),
        footnotes=tuple(notes.texts),
        notes=(*labs_own, *_notes(records, reference)),
    )


def _signed(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows with a sign at each figure of the lab's that is another one in virtual time, where processors
    cost nothing; and what to say of that."""
    virtual = {row.labels[:-1]: row.entries for row in rows if VIRTUAL in row.labels[-1]}

    def signed(row: Row, key: str, entry: Entry) -> Entry:
        place, other = row.labels[-1], virtual.get(row.labels[:-1], {}).get(key, NOTHING)
        is_labs = place.startswith(TestbedKind.LAB) and VIRTUAL not in place
        if not is_labs or entry.sign or unit_of(key) is None or None in (entry.value, other.value):
            return entry
        is_own = differ(key, entry.value or 0.0, other.value or 0.0)
        return msgspec.structs.replace(entry, sign=LAB_SIGN if is_own else "")

    found = [
        msgspec.structs.replace(row, entries={k: signed(row, k, each) for k, each in row.entries.items()})
        for row in rows
    ]
    note = (
        f"{LAB_SIGN}: the lab's own figure: links and protocols alone have that of the row in virtual time, "
        "so the lab's one processor made the difference."
    )
    is_any = any(entry.sign == LAB_SIGN for row in found for entry in row.entries.values())
    return found, [note] if is_any else []


def _groups(records: Iterable[ProbeRecord]) -> dict[tuple[str, ...], list[ProbeRecord]]:
    """The records of each path. Figures of different testbeds, clocks and kernels are never mixed."""
    found: dict[tuple[str, ...], list[ProbeRecord]] = {}
    for record in records:
        emulated = " (emulated)" if record.emulated else ""
        key = (f"{record.column.link}{emulated}", _protection(record), setting_of(record))
        found.setdefault(key, []).append(record)
    places = {key[2] for key in found}
    # If all are of one place, only the notes name it.
    return found if len(places) > 1 else {key[:2]: group for key, group in found.items()}


def setting_of(record: ProbeRecord) -> str:
    """Where a probe was made: testbed, clock and kernel."""
    place = record.setting.testbed + ("" if record.setting.clock is Clock.REAL else VIRTUAL)
    place += ", own kernel" if record.setting.is_own else ""
    return place + (f" {record.setting.release}" if record.setting.release else "")


def _protection(record: ProbeRecord) -> str:
    if not record.column.protection:
        return PROTECTION_OFF
    parts = [
        record.column.title.removeprefix("IPsec "),
        *([record.column.mode] if record.column.mode not in (None, "transport") else []),
    ]
    return ", ".join([*parts, *([UNENCRYPTED] if is_unencrypted(record.encrypts, record.agreed) else [])])


def _labels(groups: dict[tuple[str, ...], list[ProbeRecord]]) -> tuple[str, ...]:
    return ("Link", "IPsec", "Testbed")[: max((len(key) for key in groups), default=2)]


def _entry(
    records: Iterable[ProbeRecord], value: Callable[[ProbeRecord], float | None], notes: Footnotes
) -> Entry | None:
    """The median of the records that count; else the status of the first, with its reason."""
    asked = list(records)
    chosen = [record for record in asked if not record.is_beside] or asked
    if not chosen:
        return None
    good = disturbance.counting(chosen)
    values = [number for record in good if (number := value(record)) is not None]
    if values:
        doubts = {warning for record in good for warning in record.warnings}
        disturbed = disturbance.summary(good)
        texts = sorted({*doubts, f"{DISTURBED_SIGN}: {disturbed}"} if disturbed else doubts)
        return Entry(
            value=statistics.median(values),
            mark=notes.mark("; ".join(texts)) if texts else None,
            disturbed=max((part for r in good if (part := disturbance.share(r)) is not None), default=None),
            sign=DISTURBED_SIGN if disturbed else "",
        )
    if good:
        return Entry()
    first = chosen[0]
    return notes.without_figure(first.status, first.reason)


def _marked_once(entries: dict[str, Entry]) -> dict[str, Entry]:
    """The entries of a row, with each footnote's mark only at the first entry that has it."""
    seen: set[int] = set()
    found = {}
    for key, entry in entries.items():
        is_known = entry.mark in seen
        if entry.mark is not None:
            seen.add(entry.mark)
        found[key] = msgspec.structs.replace(entry, mark=None) if is_known else entry
    return found


def _paths(
    measures: Sequence[_Measure], records: Sequence[ProbeRecord], notes: Footnotes
) -> tuple[tuple[str, ...], tuple[Field, ...], list[Row]]:
    groups = _groups(records)
    rows = []
    for labels, group in groups.items():
        fastest = max((r.probe.rate_bit_s for r in group if isinstance(r.probe, Udp)), default=0)
        entries = {
            measure.field.key: entry
            for measure in measures
            if (
                entry := _entry(
                    (
                        r
                        for r in group
                        if measure.pick(r) and not (isinstance(r.probe, Udp) and r.probe.rate_bit_s < fastest)
                    ),
                    measure.of,
                    notes,
                )
            )
        }
        if entries:
            rows.append(Row(labels=labels, entries=_marked_once(entries)))
    return _labels(groups), tuple(measure.field for measure in measures), rows


PPS_FIELDS = {
    "at_once": Field(key="at_once", heading="at once", decimals=0),
    "lost_percent": Field(key="lost_percent", heading="lost|%", decimals=1),
    "replies_per_s": Field(key="replies_per_s", heading="replies|per s", decimals=0),
    "packets_per_s": Field(key="packets_per_s", heading="packets|per s", decimals=0),
    "counted_per_s": Field(key="counted_per_s", heading="counted|per s", decimals=0),
}


def _packets(
    records: Sequence[ProbeRecord], notes: Footnotes
) -> tuple[tuple[str, ...], tuple[Field, ...], list[Row]]:
    groups = _groups(records)
    rows = []
    for labels, group in groups.items():
        methods: dict[str, list[ProbeRecord]] = {}
        for record in group:
            if isinstance(record.probe, PacketRate):
                methods.setdefault(f"{record.probe.tool}, echo", []).append(record)
            elif isinstance(record.probe, Forwarding):
                methods.setdefault("flood, one way", []).append(record)
        for method, made in methods.items():
            entries = {
                key: entry
                for key in PPS_FIELDS
                if (entry := _entry(made, partial(_packet_figure, key), notes))
            }
            rows.append(Row(labels=(labels[0], method, *labels[1:]), entries=_marked_once(entries)))
    labels = _labels(groups)
    return (labels[0], "Method", *labels[1:]), tuple(PPS_FIELDS.values()), rows


def _packet_figure(key: str, record: ProbeRecord) -> float | None:
    figures = record.figures
    if isinstance(figures, PacketRateFigures):
        value: float | None = getattr(figures, key)
        return value
    if isinstance(figures, ForwardingFigures):
        return {
            "packets_per_s": figures.arrived_per_s,
            "counted_per_s": figures.arrived_per_s,
            "lost_percent": figures.lost_percent,
            "at_once": 1,
        }.get(key)
    return None


LATENCY_FIELDS = [
    (
        Field(key="reopened_mean_us", heading="reopened|mean", decimals=1),
        Socket.REOPENED,
        "mean_ns",
    ),
    (Field(key="kept_mean_us", heading="kept open|mean", decimals=1), Socket.KEPT, "mean_ns"),
    (Field(key="reopened_p50_us", heading="reopened|p50", decimals=1), Socket.REOPENED, "p50_ns"),
    (Field(key="kept_p50_us", heading="kept open|p50", decimals=1), Socket.KEPT, "p50_ns"),
    (Field(key="kept_p99_us", heading="kept open|p99", decimals=1), Socket.KEPT, "p99_ns"),
]


def _latencies(
    records: Sequence[ProbeRecord], notes: Footnotes
) -> tuple[tuple[str, ...], tuple[Field, ...], list[Row]]:
    groups = _groups(records)
    rows = []
    for labels, group in groups.items():
        made = [(r, r.probe) for r in group if isinstance(r.probe, UdpLatency)]
        for size in sorted({probe.payload_bytes for _, probe in made}):
            entries = {}
            for field, socket, name in LATENCY_FIELDS:
                these = (r for r, probe in made if (probe.payload_bytes, probe.socket) == (size, socket))
                measure = _Measure(field, _any, _figure(UdpLatencyFigures, name, US_NS))
                if (entry := _entry(these, measure.of, notes)) is not None:
                    entries[field.key] = entry
            rows.append(Row(labels=(labels[0], str(size), *labels[1:]), entries=_marked_once(entries)))
    labels = _labels(groups)
    return (labels[0], "Bytes", *labels[1:]), tuple(field for field, _, _ in LATENCY_FIELDS), rows


def runs_note(records: Sequence[Record | ProbeRecord]) -> list[str]:
    """Which runs the records are of; nothing without any."""
    runs = sorted({record.run_id for record in records})
    if not runs:
        return []
    shown = ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")
    testbeds = ", ".join(sorted({record.setting.testbed for record in records}))
    return [f"Testbed {testbeds}: {'run' if len(runs) == 1 else 'runs'} {shown}."]


def _notes(records: Sequence[ProbeRecord], reference: PathReference | None) -> list[str]:
    found = runs_note(records)
    if any(len(record.processors) > 1 for record in records):
        found.append("CPU: of the busiest host, or hop.")
    elif any(len(use.hosts) > 1 for record in records for use in record.processors):
        found.append("CPU: all hosts share one kernel, so each one's own use is unknown.")
    reasons = sorted({reason for record in records for reason in record.unseen.values()})
    found += [f"CPU n/a: {reason}." for reason in reasons]
    if any(record.setting.testbed is TestbedKind.LAB for record in records):
        found.append("The lab runs on one core, so speeds are too low: compare paths (docs/probes.md).")
    if reference is not None:
        found.append(f"Published: {reference.title}, {reference.source}.")
    return found
