"""Stock machines with nothing installed: it is said at once, with the commands that mend it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.machines.images import ROOT
from tests.machines.runs import ONE, TOGETHER, refused, wired
from tests.machines.site import Site
from tests.machines.test_strangers import DISK, MAKE_DISK, STRANGERS, checksum

ALL_CELLS = """
import glob, json
print(json.dumps([json.load(open(name)) for name in glob.glob("results/*/cells/*.json")]))
"""


def test_bare_machines(stock: Site) -> None:
    """One command for each machine, and a run that says the same."""
    said = stock.harness("doctor", *TOGETHER)
    assert said.status == 2, said.text
    assert "the machines are not ready" in said.out
    assert said.out.count("fix: apt-get update && apt-get install") == 2, said.out
    refused(stock.harness(*wired(stock, *ONE)), "fio", "apt-get install")
    assert not list((stock.folder / "results").glob("*")), "an empty folder of a run"


@pytest.mark.short
@pytest.mark.long
def test_the_two_commands_of_who_owns_a_nas(stock: Site, tmp_path: Path) -> None:
    """A fresh clone on a machine, a target that nobody logs in to: the first lines of the README."""
    nas, client = stock.machines["server"], stock.machines["client"]
    tgt = STRANGERS["tgt"]
    install, run = _of_an_owner(ROOT / "README.md")
    bundle = tmp_path / "harness.bundle"
    subprocess.run(["git", "-C", ROOT, "bundle", "create", "--quiet", bundle, "HEAD"], check=True)
    try:
        nas.sh(f"apt-get install -y {tgt.packages} >/dev/null 2>&1; {MAKE_DISK}; {tgt.make}")
        before = checksum(nas)
        client.sh("apt-get install -y git make python3-venv >/dev/null 2>&1")
        subprocess.run(["scp", "-q", bundle, "root@client:"], check=True)
        client.sh("git clone --quiet harness.bundle harness")
        client.sh(f"cd harness && {install}", timeout_s=900)
        said = client.sh(f"cd harness && {run.replace('nas.lan', 'server')}", timeout_s=1800)
        # Either what limits, or that it is not known.
        assert "limit" in said and "MB/s" in said, said
        found = json.loads(client.sh(f"cd harness && python3 -c '{ALL_CELLS}'"))
        assert found and {cell["status"] for cell in found} == {"ok"}, said
        assert not any(cell.get("write") for cell in found)
        assert checksum(nas) == before, f"{DISK} was written to"
        assert not client.sh("iscsiadm --mode session 2>/dev/null || true")
    finally:
        nas.renew()
        client.renew()


def _of_an_owner(readme: Path) -> tuple[str, str]:
    """The two commands for who owns a NAS, without their comments."""
    lines = readme.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("make install"))
    install, run = (line.partition("#")[0].strip() for line in lines[first : first + 2])
    return install, run
