"""What a new user does with two stock machines: doctor, install what it names, run, read the table."""

from __future__ import annotations

import json

from tests.machines.conftest import TOGETHER, differences, snapshots
from tests.machines.site import Site

RUN = (*TOGETHER, "--link", "local", "--link", "wired=vec1", "--ipsec", "both")
SHORT = ("--size", "64M", "--repeats", "1", "--runtime", "0.3s")


def test_doctor_of_bare_machines(stock: Site) -> None:
    said = stock.harness("doctor", *TOGETHER)
    assert said.status == 2, said.text
    assert "the machines are not ready" in said.out
    assert said.out.count("apt-get install") <= 4, said.out


def test_doctor_of_ready_machines(installed: Site) -> None:
    before = snapshots(installed)
    said = installed.harness("doctor", *TOGETHER)
    assert said.status == 0, said.text
    assert "the machines are ready" in said.out
    assert not differences(before, installed)


def test_the_whole_matrix(installed: Site) -> None:
    before = snapshots(installed)
    said = installed.harness("run", *RUN, *SHORT)
    assert said.status == 0, said.text
    cells = json.loads(installed.harness("table", "results", "--format", "json").out)["cells"]
    assert len(cells) == 24, cells
    assert {cell["status"] for cell in cells} == {"ok"}, cells
    assert not differences(before, installed)
