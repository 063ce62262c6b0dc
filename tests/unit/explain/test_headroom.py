"""What a slow link hides: up to which load a protection's cost does not show, and how to find out."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.interval import exact, within
from harness.analysis.limit import Limit
from harness.explain import headroom
from harness.explain.evidence import Baselines, Evidence
from harness.explain.text import Explained, as_json
from harness.explain.verdict import judge
from harness.model import Clock
from harness.results import sections
from tests.unit.explain.test_explain import GCM_ESP, US, asked, key, known, protected

CIPHER_US = 500


def hidden(**changes: Any) -> Evidence:
    """A 256K read with GCM that the link limits: 2.6 ms, of which the core works 1.3 and the cipher 0.5."""
    times: dict[str, Any] = {"time_ns": exact(2600 * US), "plain": Baselines(time_ns=exact(2500 * US))}
    times |= {"least_work_ns": within(1300 * US, 0.1), "cipher_ns": within(CIPHER_US * US, 0.1)}
    return protected(**{"null": None, "busy": exact(0.5)} | times | changes)


def test_a_core_has_room_for_as_much_as_it_works() -> None:
    evidence = hidden()
    found = known(headroom.of(evidence, Limit.LINK))
    # 262144 bytes in 1.3 ms are 202 MB/s; the work for one of many is 0.85 to 1.18 of that.
    load = known(found.load_mb_s)
    assert load.low == pytest.approx(262144 / 1430e3 * 1e3 / 1.18)
    assert load.high == pytest.approx(262144 / 1170e3 * 1e3 / 0.85)
    assert load.low < load.mid < load.high
    assert found.cipher_mb_s == pytest.approx(262144 / (0.9 * CIPHER_US))
    assert headroom.room(found) == "155-264 MB/s"
    # It is no less than what was measured.
    full = known(headroom.of(hidden(least_work_ns=exact(2600 * US)), Limit.LINK))
    assert known(full.load_mb_s).low == pytest.approx(262144 / 2600)
    verdict = judge(evidence)
    assert verdict.limited_by is Limit.LINK and verdict.headroom == found
    assert '"headroom": {' in as_json([Explained.of(evidence)])
    assert judge(protected()).headroom is None


def test_what_is_not_known_has_no_range_and_a_command_that_finds_out() -> None:
    evidence = hidden(least_work_ns=None, is_emulated=True)
    found = known(headroom.of(evidence, Limit.LINK))
    assert found == headroom.Headroom(cipher_mb_s=262144 / (0.9 * CIPHER_US))
    assert headroom.room(found) == ""
    assert headroom.remedy(evidence, Limit.LINK, found) == sections.over("rate", "1G", "16G")
    evidence = hidden(least_work_ns=None, cipher_ns=None)
    found = known(headroom.of(evidence, Limit.ROUND_TRIP))
    assert found == headroom.Headroom()
    assert headroom.remedy(evidence, Limit.ROUND_TRIP, found) == sections.over("depth", "1", "32")


def test_a_cost_that_shows_or_is_not_known_is_not_hidden() -> None:
    for limit in (Limit.CRYPTO, Limit.CPU, Limit.FRAMING, Limit.LAB, Limit.UNKNOWN):
        assert headroom.of(hidden(), limit) is None, limit
    # It costs 12 %, there is nothing to compare with, or time is virtual.
    virtual = key("aes128gcm16", clock=Clock.VIRTUAL)
    changes: list[dict[str, Any]] = [{"time_ns": exact(2800 * US)}, {"plain": None}, {"key": virtual}]
    for change in changes:
        assert headroom.of(hidden(**change), Limit.LINK) is None, change
    # 2.75 ms are a tenth more than without, and twice as much on the wire is framing.
    path = asked(framing=GCM_ESP)
    assert path.framing_ns > 50 * US
    assert headroom.of(hidden(time_ns=exact(2630 * US + path.framing_ns), path=path), Limit.LINK) is not None
