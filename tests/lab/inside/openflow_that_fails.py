"""An OpenFlow switch that does not reach its controller: what is said of it."""

from __future__ import annotations

import pytest

from harness.network.paths.openflow import kind as openflow
from harness.runs import executor
from tests.lab.inside.kernel import modprobe
from tests.lab.inside.paths_that_fail import refusal


def no_controller() -> None:
    """It listens at another port than the switch has been told."""
    configuration = openflow._configuration

    def elsewhere(address: str) -> list[str]:
        return [word.replace(f":{openflow.PORT}", ":1") for word in configuration(address)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openflow, "_configuration", elsewhere)
        patch.setattr(openflow, "DEADLINE_S", 6.0)
        said = refusal("openflow:flows", 3)
    assert "the switch to reach its controller" in said and "6 s" in said, said
    assert "connection" in said, said


def main() -> None:
    executor.mount_private()
    modprobe("veth", "sch_netem", *openflow.MODULES)
    no_controller()
    print("it failed as it should")


if __name__ == "__main__":
    main()
