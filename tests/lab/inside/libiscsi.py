"""libiscsi's test suite against the target that the harness makes, and against one made by hand."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import NamespaceHost, programs
from harness.hosts.journal import Journal
from harness.storage.backing import Ramdisk
from harness.storage.iscsi.transport import IscsiSides, backstore, discovery_login, iqn
from harness.storage.transport import Export, Sides
from tests.lab.inside import exports
from tests.lab.inside.kernel import LIO, prepare_lio, sh

TAG = "ab12"
SECRET = "0123456789abcdef"  # noqa: S105 (of no other target)
SIZE_BYTES = 64 << 20
OURS, BY_HAND = iqn(TAG, "wired"), "iqn.2003-01.org.example:by-hand"
FIRST, SECOND = iqn(TAG, "initiator1.x"), "iqn.2003-01.org.example:second"
OUR_URL = f"iscsi://harness%{SECRET}@127.0.0.1:3260/{OURS}/0"
RESERVATIONS = Path("/var/target/pr")

# The suite plays two initiators; a target of the harness has one.
ADMIT = f"""
group = lio.TPG(lio.Target(lio.FabricModule("iscsi"), "{{target}}"), 1)
acl = lio.NodeACL(group, "{SECOND}", mode="create")
acl.chap_userid, acl.chap_password = "harness", "{SECRET}"
lio.MappedLUN(acl, 0, 0)
"""
MADE_BY_HAND = f"""
store = lio.BlockStorageObject("by-hand", dev="/dev/ram1", wwn="by-hand")
target = lio.Target(lio.FabricModule("iscsi"), "{BY_HAND}", mode="create")
group = lio.TPG(target, 1, mode="create")
group.set_attribute("authentication", 0)
lio.LUN(group, 0, store)
lio.NetworkPortal(group, "127.0.0.1", 3261, mode="create")
acl = lio.NodeACL(group, "{FIRST}", mode="create")
lio.MappedLUN(acl, 0, 0)
group.enable = True
"""


def rtslib(text: str) -> None:
    start = "import rtslib_fb as lio\nlio.RTSRoot._preferred_dbroot = '/var/target'\n"
    sh(programs.PYTHON, "-c", start + text)


@contextlib.contextmanager
def targets() -> Iterator[None]:
    """Ours at port 3260 with /dev/ram0, the other at 3261 with /dev/ram1; all gone afterwards."""
    prepare_lio("target_core_iblock")
    sh("ip", "link", "set", "lo", "up")
    host, journal, logs = NamespaceHost("target"), Journal(Path("/run/journal")), Path("/run")
    lun = exports.lun(TAG, "/dev/ram0", SIZE_BYTES)
    sides = Sides(journal=journal, tag=TAG, target=host, initiators=(), luns=(lun,), logs=logs)
    wanted = Export(
        name="wired", number=0, lun=lun, target=host, address="127.0.0.1", port=3260, parameters={}
    )
    with (
        journal.hold(host, Ramdisk(SIZE_BYTES, 2)),
        journal.hold(host, discovery_login(f"harness-{TAG}", SECRET)),
        journal.hold(host, backstore(lun)),
        IscsiSides(sides, secret=SECRET, nonce="x").export(wanted),
    ):
        yield
    assert journal.leaks == []


def discovered(initiator: str, login: str = "") -> str:
    """What discovery answers an initiator of this name: a target a line, or an error."""
    return sh("iscsi-ls", "--initiator-name", initiator, f"iscsi://{login}127.0.0.1:3260", check=False)


def tested(url: str, pattern: str) -> dict[str, list[str]]:
    """The suite's tests of that pattern by outcome; one of several failed assertions has failed."""
    report = Path("CUnitAutomated-Results.xml")
    report.unlink(missing_ok=True)
    said = sh("iscsi-test-cu", "-d", "-n", "-x", "-i", FIRST, "-I", SECOND, "-t", pattern, url, check=False)
    assert report.is_file(), said
    passed, failed = set[str](), set[str]()
    for suite in ElementTree.parse(report).iter("CUNIT_RUN_SUITE_SUCCESS"):  # noqa: S314 (CUnit's own)
        name = (suite.findtext("SUITE_NAME") or "").strip()
        for record in suite.iter("CUNIT_RUN_TEST_RECORD"):
            for outcome in record:
                test = f"{name}.{(outcome.findtext('TEST_NAME') or '').strip()}"
                (failed if outcome.tag == "CUNIT_RUN_TEST_FAILURE" else passed).add(test)
    return {"passed": sorted(passed - failed), "failed": sorted(failed)}


def discovery() -> None:
    """It asks for CHAP, and tells of the target to its initiator alone."""
    login = f"harness-{TAG}%{SECRET}@"
    assert OURS in discovered(FIRST, login)
    for refused in (discovered(FIRST), discovered(FIRST, f"harness-{TAG}%wrongwrongwrong@")):
        assert "failed" in refused and OURS not in refused, refused
    assert OURS not in discovered("iqn.2003-01.org.example:nobody", login)


def reservations() -> None:
    """Those that are to outlive a power loss, and others, of two initiators."""
    rtslib(ADMIT.format(target=OURS))
    for suite in ("ProutRegister", "ProutReserve", "ProutClear", "ProutPreempt"):
        outcomes = tested(OUR_URL, f"ALL.{suite}")
        assert outcomes["passed"] and not outcomes["failed"], outcomes
    kept = sorted(file.name for file in RESERVATIONS.iterdir())
    assert kept == [f"aptpl_harness-{TAG}-0"], kept


def whole_suite() -> dict[str, dict[str, list[str]]]:
    rtslib(MADE_BY_HAND + ADMIT.format(target=BY_HAND))
    try:
        return {
            "ours": tested(OUR_URL, "ALL"),
            "by hand": tested(f"iscsi://127.0.0.1:3261/{BY_HAND}/0", "ALL"),
        }
    finally:
        rtslib(f'lio.Target(lio.FabricModule("iscsi"), "{BY_HAND}").delete()')
        rtslib('lio.BlockStorageObject("by-hand").delete()')
        # It keeps its reservations in the folder that is there for ours.
        (RESERVATIONS / "aptpl_by-hand").unlink(missing_ok=True)


def main() -> None:
    os.chdir("/run")
    with targets():
        discovery()
        reservations()
        if sys.argv[1:] == ["whole"]:
            print(json.dumps(whole_suite()))
    assert list(RESERVATIONS.iterdir()) == []
    assert "harness" not in sh("sh", "-c", f"cat {LIO}/iscsi/discovery_auth/*")


if __name__ == "__main__":
    main()
