"""A transport or protection is named where it is at home, and where all of them are listed.

ESP is what proposals are for (``ipsec/``), whose option and column everybody knows. So of IPsec only its
modules and programs are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.model import PROTECTION_OFF, TRANSPORTS
from harness.model.protections import MADE, NESTING, PROTECTIONS, RECORDED
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import kinds
from harness.storage import transports
from harness.terminal.console import print_plan
from tests.lanes.changes import BY_NAME
from tests.unit import sources

HARNESS = Path(__file__).parents[2] / "harness"

HOMES = (
    *("storage/iscsi/", "storage/nvme/", "storage/nbd/", "analysis/wire/"),
    *(f"protection/{name}/" for name in ("ipsec", "macsec", "tls", "wireguard", "tunnel")),
    "questions/share/",  # the words of ciphers, tools and sessions that others may read
)
LISTS = {"model/__init__.py", "model/protections.py", "protection/kinds.py"}

ALLOWED = {
    "cli/__init__.py": {"iscsi", "open-iscsi", "lio", "strongswan", "wireguard"},  # what the help begins with
    "cli/listing.py": {"strongswan"},  # who serves the connection of a swanctl file
    "cli/explain.py": {"iscsi"},  # the name of a published article
    "explain/published.py": {"iscsi"},  # published figures are those of iSCSI
    "explain/volumes.py": {"nvme"},  # a disk of profiles/disks/
    "observe/environment.py": {"strongswan"},  # versions that each record has
    "parse/profiles.py": {"charon", "strongswan"},  # a proposal is in strongSwan's words
    "model/renamed.py": {"iscsi"},  # the same
    "parse/references.py": {"iscsi"},  # the name of a published article
    "report/page.py": {"iscsi"},  # a sentence of pages that are kept
    "results/upgrade.py": {"iscsi", "nvme"},  # the only one of schema 1, and fields of plans up to schema 5
    "testbeds/lab/boot/stubs.py": {"iscsi", "nbd"},  # libraries that fio loads
    "storage/programs/attached.py": {"iscsi", "iscsi_connection", "iscsi_session", "nbd", "nvme"},  # sysfs's
    "storage/disks.py": {"nbd", "nbd0", "nbds_max"},  # a modelled hard disk is served over a socket pair
    "storage/programs/harddisk.py": {"nbd0"},
    "planning/plan.py": {"iscsi"},  # LIO reads files through the page cache
    "testbeds/lab/kernels/ciphers.py": {"macsec"},  # kernel modules that use ciphers
    "testbeds/lab/kernels/source.py": {"nvme_tcp_tls", "nvme_target_tcp_tls", "nvme", "tls"},  # its options
}

WORD = re.compile(
    r"(?<![a-z])(?:open-iscsi|iscsi\w*|nvme\w*|nbd\w*|lio|wireguard|macsec|mka|tls\w*|charon|strongswan)(?![a-z])",
    re.IGNORECASE,
)
MODULE = re.compile(rf"harness\.(?:storage|protection)\.({'|'.join(each.split('/')[1] for each in HOMES)})\b")
CONSTANT = {"ISCSI", "NBD", "MACSEC", "MACSEC_MKA", "TLS", "WIREGUARD"}


def named(module: sources.Source) -> Iterator[str]:
    """The kinds that a module names: in its strings but for docstrings, by constants, by what it imports."""
    for _, text in module.strings:
        yield from map(str.lower, WORD.findall(text))
    yield from (name.lower() for name in module.names if name in CONSTANT)
    for found in filter(None, map(MODULE.match, module.imports)):
        yield next(filter(None, found.groups()))


def test_no_kind_is_named_away_from_its_home_and_each_is_listed() -> None:
    text = "'''iscsi'''\nfrom harness.protection import tls\nuse(MACSEC, 'by NVMe/TCP', settle)\n"
    assert sorted(named(sources.parse(text))) == ["macsec", "nvme", "tls"]
    files = ((str(file.relative_to(HARNESS)), file) for file in HARNESS.rglob("*.py"))
    looked_at = {place: file for place, file in files if place not in LISTS and not place.startswith(HOMES)}
    found = {place: set(named(sources.read(file))) for place, file in looked_at.items()}
    assert {place: names for place, names in found.items() if names} == ALLOWED
    assert [each.name for each in transports.every()] == list(TRANSPORTS)
    here = {name for name, each in PROTECTIONS.items() if not each.is_missing}
    assert {each.name for each in kinds.every()} == {"", *here}
    assert {name for names in NESTING for name in names} == here


def test_each_protection_is_in_the_lists_outside_its_folder() -> None:
    folders = {name: each.folder for name, each in PROTECTIONS.items() if each.folder}
    assert not {*folders} - {*RECORDED}, "RECORDED in model/protections.py lacks it"
    places = {f"protection/{folder}/" for folder in folders.values()}
    assert not places - {*HOMES}, "HOMES above lacks it"
    assert not {f"harness/{place}*" for place in places} - {*BY_NAME}, "BY_NAME in tests/lanes/ lacks it"
    assert not [name for name in (*MADE, *TRANSPORTS) if not WORD.search(name)], "WORD above lacks it"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_kind_can_be_planned_and_shown(transport: str) -> None:
    """All that a run can bring up beside IPsec, as columns of one plan."""
    asked = RunRequest(links=("wired",), protect=(PROTECTION_OFF, *MADE), transports=(transport,))
    plan, lines = make_plan(asked), list[str]()
    print_plan(plan, lines.append)
    words = " ".join(" ".join(lines).split())
    for column in plan.columns:
        encrypts = [PROTECTIONS[name].encrypts for name in column.protection]
        assert plan.encrypts(column) is (encrypts[0] if encrypts else None)
        assert plan.shown(column) in words
    assert {name for column in plan.columns for name in column.protection} == {*MADE}
