"""A protection that neither encrypts nor computes check values, as its data say: crypto is no part of it."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from harness import model
from harness.analysis.cpu_costs import Operation, Per
from harness.analysis.interval import exact
from harness.analysis.limit import Limit
from harness.analysis.wire import framing_of
from harness.explain import waterfall
from harness.explain.evidence import Evidence, collect
from harness.explain.predicted import Ends
from harness.explain.text import Explained, sentence, text
from harness.explain.verdict import Confidence
from harness.model import IpsecMode
from harness.model.protections import PROTECTIONS, Encapsulation, StackPlace, has_cipher
from tests.unit.analysis.test_cpu_costs import cost
from tests.unit.explain.test_explain import known, measured, plan_of_them, used
from tests.unit.explain.test_predicted import costs_of, job, network_path, one

BARE = Encapsulation(
    name="bare",
    title="BARE",
    order=9,
    place=StackPlace.INTERFACE,
    around_bytes=4,
    has_ip=True,
    takes_bytes=24,
    encrypts=False,
)
PLAN = {"r1": plan_of_them()}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROTECTIONS, BARE.name, BARE)


def test_only_what_neither_encrypts_nor_authenticates_has_none() -> None:
    assert all(has_cipher(name) for name, each in PROTECTIONS.items() if each.encrypts)
    assert not has_cipher(BARE.name)
    assert has_cipher("null-sha256") and replace(BARE, algorithms=("gcm(aes)",)).has_cipher
    found = [model.Column("wired", names).has_cipher for names in ((), ("bare",), ("bare", "null-sha256"))]
    assert found == [False, False, True]
    framing = known(framing_of((BARE.name,), {}, IpsecMode.TRANSPORT, 1500))
    assert (framing.packet_bytes(1000), framing.sealed_bytes(1000)) == (1024, 0)


def evidence(time_us: float, busy: float | None) -> Evidence:
    """A read of 256K that takes 2.5 ms without it."""
    cells = {"local": 60.0, "off": 2500.0, BARE.name: time_us}
    records = [
        each
        for name, us in cells.items()
        for each in measured(*(("local", "off") if name == "local" else ("wired", name)), us)
    ]
    if busy is not None:
        of_core = used(wall_ns=10**9, target=busy)
        records = [replace(each, telemetry=of_core, fio_ns=10**9) for each in records]
    return next(each for each in collect(records, PLAN) if each.column.protection == (BARE.name,))


@pytest.mark.parametrize(
    ("time_us", "busy"), [*itertools.product((2300, 2600, 4000, 12500), (None, 0.1, 0.5, 0.95))]
)
def test_its_verdict_never_says_crypto(time_us: float, busy: float | None) -> None:
    found = evidence(time_us, busy)
    assert found.cipher_ns == exact(0.0) and found.plain is not None
    whole = Explained.of(found)
    assert "crypto" not in whole.verdict.waterfall_ns and not waterfall.excess_ns(found)
    said = " ".join((sentence(whole), text([whole]), whole.verdict.reason, whole.verdict.doubt)).lower()
    assert not [word for word in ("crypto", "cipher", "null-sha256") if word in said], said
    assert sum(whole.verdict.waterfall_ns.values()) == whole.verdict.whole_ns


def test_what_it_takes_beyond_its_bytes_is_processor_work() -> None:
    verdict = Explained.of(evidence(12500, 0.95)).verdict
    assert (verdict.limited_by, verdict.confidence) == (Limit.CPU, Confidence.HIGH)
    assert verdict.detail == "core 100% busy", "fio's start and end are not the cell's"


def test_a_prediction_asks_for_the_cost_of_its_packets_alone() -> None:
    costs = costs_of()
    packet = cost(Operation(BARE.title, Per.PACKET), 3000.0, 300.0)
    ends = Ends(target=replace(costs, costs=(*costs.costs, packet)))
    path = network_path("wired", BARE.name)
    assert one(Ends(target=costs), path, job("4k")).why_not == "no CPU cost of BARE for each packet"
    found, plain = (known(one(ends, each, job("4k")).mb_s) for each in (path, network_path()))
    within = known(one(ends, network_path("wired", BARE.name, "aes128gcm16"), job("4k")).mb_s)
    assert within < found < plain
