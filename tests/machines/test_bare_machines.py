"""Stock machines with nothing installed: it is said at once, with the commands that mend it."""

from __future__ import annotations

from tests.machines.runs import ONE, TOGETHER, refused, wired
from tests.machines.site import Site


def test_bare_machines(stock: Site) -> None:
    """One command for each machine, and a run that says the same."""
    said = stock.harness("doctor", *TOGETHER)
    assert said.status == 2, said.text
    assert "the machines are not ready" in said.out
    assert said.out.count("fix: apt-get update && apt-get install") == 2, said.out
    refused(stock.harness(*wired(stock, *ONE)), "fio", "apt-get install")
    assert not list((stock.folder / "results").glob("*")), "an empty folder of a run"
