"""Kernel modules: each kernel is asked once for each, and those that are missing are named."""

from __future__ import annotations

from harness.runs import executor, modules
from tests.unit.fakes import Command, World


def kernel(*has: str) -> World:
    """One that has these modules."""

    def lacks(command: Command) -> bool:
        names = [word for word in command.argv[1:] if not word.startswith("-")]
        return command.argv[0] == "modprobe" and not {*has}.issuperset(names)

    return World(broken=lacks)


def asked(world: World) -> list[str]:
    return [line for line in world.said if line.startswith("modprobe ")]


def test_all_are_loaded_by_one_program() -> None:
    looked_for = modules.ONLY_LOOKED_FOR[0]
    world = kernel("veth", "sch_netem", "esp4", looked_for)
    names = ["veth", "sch_netem", looked_for, "veth", "esp4 of=1"]
    assert executor._absent(world.host("target"), names) == {"esp4 of=1"}
    assert asked(world) == ["modprobe -a veth sch_netem", f"modprobe -n {looked_for}", "modprobe esp4 of=1"]
    # Each is asked for where not all are there.
    world = kernel("veth")
    assert executor._absent(world.host("target"), ["veth", "brd_x", "none"]) == {"brd_x", "none"}
    assert [line.split()[-1] for line in asked(world)[1:]] == ["veth", "brd_x", "none"]
