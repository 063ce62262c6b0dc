"""Columns over NVMe/TCP on hosts that only record: what they make, lack, and find to be another."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Status
from harness.model.errors import RequirementError
from harness.storage.nvme.transport import NAME
from tests import flat
from tests.unit.fakes import World
from tests.unit.runs.test_teardown import measure
from tests.unit.runs.test_transports import columns_of, lacking, plain, plan_of, prepared, secured

COLUMNS = columns_of(NAME)
ALONE = plan_of(plain(NAME))


def test_what_was_agreed_on_is_recorded(tmp_path: Path) -> None:
    (record,) = measure(World(), tmp_path / "run", ALONE).records
    assert record.session["in_capsule_bytes"] == "16384"


def test_each_has_its_own_and_only_iscsi_its_daemon(tmp_path: Path) -> None:
    outcome = measure(World(), tmp_path / "run", ALONE)
    made, gone = ([thing.split()[0] for thing in things] for things in (outcome.made, outcome.gone))
    assert {"subsystem", "connection"} <= {*made}
    assert not {*made} & {"session", "node", "target", "backstore", "discovery-login"}
    assert not any(thing.startswith("daemon iscsid") for _, thing in outcome.world.history)
    assert gone.index("connection") < gone.index("subsystem") < gone.index("link")


def test_a_disk_that_is_another_makes_the_cell_invalid(tmp_path: Path) -> None:
    class Swapped(World):
        def text_of(self, path: str) -> str:
            is_late = any(command.argv[0] == "tc" for command in self.commands)
            return "another\n" if is_late and path.endswith("device/serial") else super().text_of(path)

    (bad,) = measure(Swapped(), tmp_path / "run", ALONE).records
    why = "expected the serial number of /dev/nvme0n1 to be harness-beef-0, found another"
    assert bad.status is Status.INVALID and (bad.reason or "").startswith(why)


def test_columns_whose_transport_the_kernel_lacks_are_skipped_with_the_reason(tmp_path: Path) -> None:
    plan = flat.changed(plan_of(*COLUMNS), lab_kernel="debian")
    unavailable = prepared(lacking("nvme_fabrics", "nvme_tcp"), plan)
    assert list(unavailable) == ["nvme-tcp"]
    outcome = measure(World(), tmp_path / "run", plan, unavailable=unavailable)
    why = "the initiator's kernel lacks nvme_fabrics, nvme_tcp for NVMe/TCP "
    why += "(the custom kernel has them: harness kernel build, then --lab-kernel custom)"
    skipped = dict.fromkeys((plain(NAME), secured(NAME)), (Status.SKIPPED, why))
    found = {record.column: (record.status, record.reason) for record in outcome.records}
    assert found == dict.fromkeys(COLUMNS, (Status.OK, None)) | skipped
    assert not any(thing.startswith("subsystem") for _, thing in outcome.world.history)


def test_a_run_that_needs_modules_is_refused_without_them() -> None:
    with pytest.raises(RequirementError, match="the target's kernel lacks nvmet, nvmet_tcp for NVMe/TCP"):
        prepared(lacking("nvmet", "nvmet_tcp"), ALONE)
