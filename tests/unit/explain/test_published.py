"""A published matrix: its own noise, and what it lets conclude."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.analysis.limit import Limit
from harness.explain import published
from harness.model.escape import as_json
from harness.parse.profiles import load_link
from harness.parse.references import load_reference
from tests.unit.command import harness
from tests.unit.explain.test_explain import known

LINKS = {name: load_link(name) for name in ("wired", "wifi")}
DOCUMENT = load_reference("iscsi-ipsec")
FOUND = published.conclude(DOCUMENT, LINKS)
CELLS = {(one.workload, one.column.link, one.column.protection): one for one in FOUND.cells}


def test_the_iscsi_article_tells_its_own_noise_and_what_it_lets_conclude() -> None:
    assert FOUND.noise["wired"] == pytest.approx(1.36 / 1.25)
    assert FOUND.noise["wifi"] == pytest.approx(4.90 / 3.39)
    faster = CELLS["seq-read-256k", "wifi", ("on",)]
    assert "only chance" in faster.sentence and "shows nothing about IPsec" in faster.sentence
    assert any("WiFi with IPsec" in words and "only a hint" in words for words in FOUND.sentences)
    # Over gigabit it is the implementation, and not its bytes.
    found = CELLS["seq-read-256k", "wired", ("on",)]
    added_ns = known(found.added_ns)
    assert added_ns == pytest.approx(262144 / 15.86 * 1e3 - 262144 / 28.86 * 1e3)
    assert 0 < known(found.framing_ns) < 0.02 * added_ns
    assert "the implementation's work" in found.sentence and found.limited_by is Limit.UNKNOWN
    (words,) = [each for each in FOUND.sentences if "GigE with IPsec" in each]
    assert "6 of 8" in words and "2% of it" in words
    for workload in ("rand-write-4k", "rand-read-4k"):
        assert CELLS[workload, "wired", ()].limited_by is Limit.DEVICE
    rows = {"seq-read-4k": (10.0, 5.0, 4.0, 3.0, 2.0)}  # Without an impossible figure noise is unknown.
    unknown = published.conclude(replace(DOCUMENT, rows=rows), LINKS)
    assert set(unknown.noise.values()) == {1.0} and "noise is unknown" in unknown.sentences[0]
    assert "seq-write-4k, 13.15 MB/s: 0.22 of the figure without IPsec" in published.text(FOUND)
    assert len(json.loads(as_json(FOUND))["cells"]) == 32


def test_the_command_says_it(tmp_path: Path) -> None:
    done = harness("explain", "--reference", "iscsi-ipsec", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["noise"]["wifi"] == pytest.approx(4.90 / 3.39)
    as_text = harness("explain", "--reference", "iscsi-ipsec", cwd=tmp_path)
    assert "only a hint" in as_text.stdout
    unknown, both = ("--reference", "switchesx"), ("x", "--reference", "iscsi-ipsec")
    for words in (unknown, both, ("--format", "html")):
        refused = harness("explain", *words, cwd=tmp_path)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
