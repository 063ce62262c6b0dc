"""What a new user does with two stock machines: doctor, install what it names, run, read the table."""

from __future__ import annotations

import json

from tests.machines.runs import SHORT, TOGETHER, as_before, good, refused, wired
from tests.machines.site import Site


def test_bare_machines(stock: Site) -> None:
    """One command for each machine, and a run that says the same."""
    said = stock.harness("doctor", *TOGETHER)
    assert said.status == 2, said.text
    assert "the machines are not ready" in said.out
    assert said.out.count("mend it: apt-get install") <= 4, said.out
    refused(stock.harness(*wired(stock, *SHORT)), "fio", "apt-get install")
    assert not list((stock.folder / "results").glob("*")), "an empty folder of a run"


def test_ready_machines(installed: Site) -> None:
    with as_before(installed):
        said = installed.harness("doctor", *TOGETHER)
    assert said.status == 0, said.text
    assert "the machines are ready" in said.out


def test_the_whole_matrix(installed: Site) -> None:
    with as_before(installed):
        said = installed.harness(*wired(installed, "--link", "local", "--ipsec", "both", *SHORT))
    assert len(good(installed, said)) == 24
    table = json.loads(installed.harness("table", "results", "--format", "json").out)
    assert len(table["cells"]) == 24
