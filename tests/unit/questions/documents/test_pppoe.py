"""What the PPPoE article asked, and what figures answer."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from harness.model import Status
from harness.model.probing import Tcp
from tests.unit.probes.test_probes import blank
from tests.unit.questions.documents.probed import DISTURBED, OWN, answers, on, rates
from tests.unit.questions.documents.test_articles import articles, run_of_probes
from tests.unit.table.test_views import ping, tcp

pytestmark = pytest.mark.thorough

pppoe = functools.partial(rates, ("routed", "pppoe"))


def test_a_cost_is_reported_with_what_links_have_of_it() -> None:
    found = answers("pppoe", *pppoe(400, 200), *pppoe(1000, 800, **OWN))[1]
    assert dict(found.figures) == {
        "measured": "200 instead of 400 Mbit/s (-50 %)",
        "in virtual time": "800 instead of 1000 Mbit/s (-20 %)",
        "in the PPPoE article": "only 918 Mbit/s of pppoe",
    }
    # 5 ns for a bit instead of 2.5, and 1.25 instead of 1: a tenth of what is lost.
    cost = "It costs something here; links and protocols account for 10 % of ours, "
    assert found.conclusion.startswith(cost) and "figures are limited by the lab" in found.conclusion
    assert found.whom == (
        "the cause is the processors and the software, not the protocol. TCP over PPPoE compared with "
        "plain routing: 800 instead of 1000 Mbit/s (-20 %) where processors cost nothing, 200 instead of "
        "400 Mbit/s (-50 %) as measured"
    )
    # Without a loss there is nobody to complain to.
    found = answers("pppoe", *pppoe(400, 390), *pppoe(400, 400, **OWN))[1]
    assert found.whom == "" and found.is_free
    assert not answers("pppoe")[1].is_free, "there are no figures"


SKIPPED = on(blank(Tcp()), "pppoe", status=Status.SKIPPED, reason="pppd is missing")
NO_ANSWER = "^No answer of our own: "


def test_what_is_concluded_of_a_path_depends_on_the_figures_that_count() -> None:
    for records, conclusion in (
        (pppoe(400, 200), "without a run in virtual time"),
        (pppoe(400, 390), "show no cost"),
        (pppoe(400, 800), "show no cost"),
        (pppoe(400, 200, **DISTURBED), f"{NO_ANSWER}other programs disturbed that of "),
        ([*pppoe(1, 1)[:1], SKIPPED], f"{NO_ANSWER}there is no figure of pppoe: pppd is missing.$"),
        ([*pppoe(400, 200), *pppoe(9e3, 8e3, testbed="host")], "come from several testbeds"),
    ):
        found = answers("pppoe", *records)[1]
        assert re.search(conclusion, found.conclusion)
        is_disturbed = "disturbed" in conclusion
        assert ("disturbed" in dict(found.figures).get("measured", "")) is is_disturbed, conclusion
    # The article's own figure is set next to ours.
    for routed_ns, word in ((2e5, "as"), (4e5, "unlike")):
        found = answers("pppoe", on(ping(routed_ns), "routed"), on(ping(4e5), "pppoe"))[0]
        assert dict(found.figures)["in the PPPoE article"] == "0.467 instead of 0.287 ms (+63 %)"
        assert f" {word} in the PPPoE article" in found.conclusion


def test_the_page_has_its_figures(tmp_path: Path) -> None:
    run_of_probes(tmp_path, "pppoe", lambda link: tcp(4e8 if "routed" in link else 2e8))
    said = articles(tmp_path, str(tmp_path), "--article", "pppoe").stdout
    for words in ("measured 200 instead of 400 Mbit/s (-50 %)", "918.0", "iperf3 <b>is missing</b>"):
        assert words in said
