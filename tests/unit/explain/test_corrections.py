"""What an old answer said wrongly is reported for the runs that it was said of, and of no other."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from harness.explain.corrections import corrections
from harness.model import Backing, BackingKind, Column
from harness.version import __version__
from tests import flat
from tests.unit.command import harness
from tests.unit.results_folder import made_plan, write
from tests.unit.table.test_table import matrix

OLD = made_plan(harness_version="0.1.0")


def test_a_run_of_before_is_reported_with_the_sentences_that_were_wrong() -> None:
    (line,) = corrections([OLD])
    assert line.startswith("Run r1 was explained by version 0.1.0 when measured; ")
    for said in ('"beside the local disk", which is memory', '"no difference shown"', '"would lift ... to '):
        assert said in line
    # Only what could have been said of a run is reported.
    disk = Backing(kind=BackingKind.BLOCK, size_bytes=1 << 30, path="/dev/sdz")
    (of_disk,) = corrections([flat.changed(OLD, backing=disk)])
    assert "memory" not in of_disk and "would lift" in of_disk
    (plain,) = corrections([replace(OLD, columns=(Column("wired"),))])
    assert "memory" not in plain and "no difference" not in plain
    assert corrections([replace(OLD, columns=(Column("local"),))]) == []
    assert corrections([replace(OLD, harness_version=__version__)]) == []
    # Runs of one version share a line, and an unknown one is early.
    runs = [OLD, replace(OLD, run_id="r2"), made_plan("r3", harness_version="")]
    first, second = corrections(runs)
    assert first.startswith("2 runs (r1, ...) were explained by version 0.1.0 ")
    assert second.startswith("Run r3 was explained by an earlier version ")


def test_every_form_of_explaining_says_so(tmp_path: Path) -> None:
    found = [flat.changed(record, block_bytes=4096) for record in matrix()]
    write(tmp_path, found, OLD)
    for options in ([], ["--summary"], ["--format", "json"]):
        reported = harness("explain", str(tmp_path), *options, cwd=tmp_path).stdout
        assert "explained by version 0.1.0 when" in " ".join(reported.split())
    assert len(json.loads(reported)["corrections"]) == 1
    harness("report", str(tmp_path), "-o", str(tmp_path / "page.html"), cwd=tmp_path)
    assert "explained by version 0.1.0 when" in (tmp_path / "page.html").read_text(encoding="utf-8")
    write(tmp_path, found, replace(OLD, harness_version=__version__))
    assert "explained by" not in harness("explain", str(tmp_path), cwd=tmp_path).stdout
