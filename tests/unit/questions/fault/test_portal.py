"""Faults of a portal of somebody else's: at the initiator's own end, of the run's connections alone."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from harness.hosts.black_box import BlackBoxHost
from harness.model.errors import RequirementError, UsageError
from harness.network.faults import Blocked
from harness.questions.fault.around import places
from harness.runs.columns import ColumnPath
from harness.runs.measure import ConnectedLun
from harness.storage.transport import Disk
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path
from tests.unit.planning.test_black_box import PORTAL, TWICE, nobody_is_asked
from tests.unit.questions.fault.made import planned

nobody_is_asked = nobody_is_asked  # a fixture


def asked(*faults: str, **more: Any) -> Any:
    return planned(*faults, **{"links": (), "ipsec": (), **PORTAL, **more})


def test_a_portal_is_only_read() -> None:
    plan = asked("initiator-link-down:5s")
    assert [job.name for job in plan.jobs] == ["rand-read-4k-100iops-initiator-link-down-5s"]


@pytest.mark.parametrize(
    ("fault", "more", "said"),
    [
        (
            "link-down:5s",
            {},
            "at the initiator's end, because the target is somebody else's, found link-down",
        ),
        ("initiator-link-down:5s", TWICE, "expected a portal that is only read"),
        ("initiator-link-down:5s", {"portal": None, "volume": "/dev/vdb"}, "found a volume"),
    ],
)
def test_what_is_somebody_else_s_is_left_whole(fault: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(fault, **more)


@pytest.mark.parametrize(("others", "queues"), [(0, "1"), (1, "1"), (0, "2")])
def test_only_the_run_s_connections_are_blocked(others: int, queues: str) -> None:
    """The kernel ends that by itself, 10 s after its time."""
    lines = "".join(
        f"ESTAB 0 0 192.0.2.9:{port} 192.0.2.2:3260\n" for port in range(1 + int(queues) + others)
    )
    path = link_path(World(answers=[(("ss",), (0, lines, ""))]), is_shared=True, target=BlackBoxHost())
    lun = ConnectedLun(
        up=ColumnPath(link=path, path=path, watched=(mock.Mock(layer=None),)),
        disk=Disk(host=path.initiator, sysfs="/sys/block/sda", expected=()),
        session={"queues": queues},
    )
    if others:
        with pytest.raises(RequirementError, match="a fault would break the others too"):
            places("initiator-link-down", lun, 14.5)
        return
    found = [resource for _, resource in places("initiator-link-down", lun, 14.5)]
    assert [each.direction for each in found if isinstance(each, Blocked)] == ["in", "out"]
    world = World()
    for each in found:
        each.acquire(world.host("initiator"))
    added = [command.argv for command in world.commands if "add" in command.argv]
    assert all(argv[-3:] == ("limit", "time-hard", "15") for argv in added) and len(added) == 2
