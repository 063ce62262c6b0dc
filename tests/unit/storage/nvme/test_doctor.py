"""NVMe/TCP: what a machine needs for it, and how doctor tries it there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.model.errors import RequirementError
from harness.storage import transports
from harness.storage.nvme import transport
from harness.storage.nvme.transport import NAME
from harness.testbeds.requirements import Asked
from harness.testbeds.selftest import SelftestOutcome
from tests.unit.fakes import Command, World
from tests.unit.testbeds.test_doctor import judged, require
from tests.unit.testbeds.test_selftest import made, problems, tried

NVME = Asked(transports=(NAME,), protections=())
LACKS = "absent module:nvmet_tcp\n"


def test_a_run_is_held_to_what_it_needs() -> None:
    no_lio = "absent module:iscsi_target_mod\n"
    require(no_lio, by=(NAME,))
    require(LACKS, by=("iscsi", NAME))  # the kernel may lack one of several
    with pytest.raises(RequirementError, match="lacks nvmet_tcp"):
        require(LACKS, by=(NAME,))


def test_what_is_asked_for_has_to_be_there_and_is_noted_otherwise() -> None:
    (note,) = judged(LACKS, [], [])
    assert note.startswith("note: ")
    assert note.endswith("without the kernel modules nvmet_tcp, --transport nvme-tcp is not possible")
    (line,) = judged(LACKS, [NAME], ["off"])
    assert line.startswith("missing: its kernel 6.1.0-28-amd64 lacks nvmet_tcp -> ")
    no_charon = "absent program:/usr/sbin/charon-systemd\nlistener 812 pluto\n"
    assert judged(no_charon, [NAME], ["off"]) == []
    assert len(judged(no_charon, [NAME], ["both"])) == 2


def test_each_transport_and_protection_that_is_asked_for_is_tried(tmp_path: Path) -> None:
    both = Asked(transports=("iscsi", NAME), protections=())
    for role, nvme in (
        ("target", "an NVMe/TCP subsystem"),
        ("initiator", "an NVMe/TCP connection to itself, which appeared as /dev/nvme0n1"),
    ):
        world = World()
        outcomes = tried(world, role, tmp_path, both)
        assert problems(outcomes) == {}
        _, *others = (outcome.what for outcome in outcomes)
        assert others == [nvme]
        assert "subsystem" in made(world) and ("connection" in made(world)) is (role == "initiator")
        assert not [c for c in world.commands if c.argv[0] == "daemon" and "charon" in c.argv[-1]]
        assert not world.left


def test_without_nvmet_nobody_is_connected_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = (
        "NVMe/TCP, to a port where nothing listens (a complete NVMe/TCP connection would need nvmet here)"
    )
    no_nvmet = World(answers=[(("modprobe", "--dry-run"), (1, "", ""))])
    assert tried(no_nvmet, "initiator", tmp_path, NVME) == [SelftestOutcome(what=nobody)]

    def missing(command: Command) -> bool:
        if command.argv == ("nobody's",):
            raise RequirementError("there is no such program")
        return False

    # As of a target that is no kernel's; this one has a program that nobody has.
    changed = dataclasses.replace(transports.named(NAME), target_software=("nobody's",))
    monkeypatch.setattr(transport, "OFFERED", (changed,))
    assert tried(World(broken=missing), "initiator", tmp_path, NVME) == [SelftestOutcome(what=nobody)]


def test_what_the_kernel_says_of_nvme_is_reported(tmp_path: Path) -> None:
    """As where the program that reads a connection failed, and doctor said that all was ready."""
    world = World(broken=lambda command: '"tell"' in (command.input or ""))
    ((what, message),) = problems(tried(world, "initiator", tmp_path, NVME)).items()
    assert what == "an NVMe/TCP connection" and not world.left
    assert message == "the NVMe/TCP connection cannot be read: it was made to fail"
