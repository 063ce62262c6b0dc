"""Kernel modules: each kernel is asked once for each, and those that are missing are named."""

from __future__ import annotations

from collections.abc import Sequence

from harness.hosts.runner import Completed
from harness.runs import executor, modules
from tests.unit.fakes import Command, FakeHost, World


class Kernel(World):
    """A kernel that has these modules."""

    def __init__(self, *has: str) -> None:
        super().__init__()
        self.has = {*has}

    def run(self, host: FakeHost, command: Command, timeout_s: float) -> tuple[int, str, str]:
        del host, timeout_s
        self.commands.append(command)
        if command.argv[0] != "modprobe":
            return (0, "", "")
        names = [word for word in command.argv[1:] if not word.startswith("-")]
        return (0 if self.has.issuperset(names) else 1, "", "")


def asked(kernel: Kernel) -> list[Sequence[str]]:
    return [command.argv for command in kernel.commands if command.argv[0] == "modprobe"]


def test_all_are_loaded_by_one_program() -> None:
    looked_for = modules.ONLY_LOOKED_FOR[0]
    kernel = Kernel("veth", "sch_netem", "esp4", looked_for)
    names = ["veth", "sch_netem", looked_for, "veth", "esp4 of=1"]
    assert executor._absent(kernel.host("target"), names) == {"esp4 of=1"}
    assert asked(kernel) == [
        ("modprobe", "-a", "veth", "sch_netem"),
        ("modprobe", "-n", looked_for),
        ("modprobe", "esp4", "of=1"),
    ]
    # Each is asked for where not all are there.
    kernel = Kernel("veth")
    assert executor._absent(kernel.host("target"), ["veth", "brd_x", "none"]) == {"brd_x", "none"}
    assert [argv[-1] for argv in asked(kernel)[1:]] == ["veth", "brd_x", "none"]
    assert isinstance(kernel.host("target").run(["modprobe", "veth"]), Completed)
