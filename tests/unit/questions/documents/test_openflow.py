"""What the OpenFlow article asked, and what figures answer."""

from __future__ import annotations

import functools

import pytest

from harness.model import Status
from harness.model.probing import Udp, UdpFigures
from harness.results.probe_records import ProbeRecord
from tests.unit.probes.test_probes import blank
from tests.unit.questions.documents.probed import OWN, answers, on, rates

pytestmark = pytest.mark.thorough

FAST, SLOW = "openflow:controller", "openflow:controller=fast-ethernet"

controllers = functools.partial(rates, (FAST, SLOW))


def test_whom_to_complain_to_explains_the_article_s_loss_whatever_the_lab_made_of_it() -> None:
    for slower, whom in (
        (80.4, "the cause is the protocol and its links, not a machine. "),
        (86.0, "the cause is the processors and the software, and the protocol as well. "),
        (91.6, "the cause is the processors and the software, not the protocol. "),
    ):
        virtual = controllers(91.7, slower, **OWN)
        found = answers("openflow", *controllers(25, 20), *virtual)[0]
        assert found.whom.startswith(whom), slower
        assert found.whom.endswith(", 80.5 instead of 94.1 Mbit/s (-14 %) in the OpenFlow article")
        assert "account for" in found.conclusion and "of what the OpenFlow article lost" in found.conclusion
        without = answers("openflow", *virtual)[0]
        assert without.whom == found.whom and without.conclusion.startswith("No answer of our own")


def test_what_was_measured_at_a_tenth_of_each_rate_answers_and_says_so() -> None:
    """Next to full rates, which the lab limits; round trips are those of the full rates."""
    tenth = rates(("openflow-ethernet:controller", "openflow-ethernet:controller=ethernet"), 9.4, 8.08)
    full, virtual = controllers(32.4, 32.9), controllers(94.0, 80.8, **OWN)
    found = answers("openflow", *full, *tenth, *virtual)[0]
    assert dict(found.figures)["measured"] == "80.8 instead of 94 Mbit/s (-14 %)"
    assert "at 1/10 of each rate" in found.conclusion and "shown 10 times as high" in found.conclusion
    assert "limited by the lab" not in found.conclusion
    found = answers("openflow", *full, *virtual)[0]
    assert "1/10" not in found.conclusion and "limited by the lab" in found.conclusion


def test_lost_datagrams_are_reported_in_percent() -> None:
    def lost(percent: float, link: str) -> ProbeRecord:
        known = dict.fromkeys(("sent_bit_s", "received_bit_s", "jitter_ns", "lost", "out_of_order"), 1)
        figures = UdpFigures(**known, datagrams=2, lost_percent=percent)
        return on(blank(Udp()), link, status=Status.OK, figures=figures)

    found = answers("openflow", lost(0.5, FAST), lost(40, SLOW))[2]
    assert dict(found.figures)["measured"] == "40 instead of 0.5 %"
    assert "It costs something here, as in the OpenFlow article" in found.conclusion
    assert "show no cost" in answers("openflow", lost(0.5, FAST), lost(0.9, SLOW))[2].conclusion
