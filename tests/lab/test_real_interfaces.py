"""Real links, on a kernel where NICs, a switch, a router and the target's machine can be made up."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


def test_named_interfaces_carry_the_traffic_and_are_left_as_they_were() -> None:
    done = run_inside("inside.real_interfaces")
    assert "without it: sent by nic0 and answered by tnic0" in done.out
    assert "nic1 to 10.7.0.10 by address: carried by nic1 and tnic1 alone" in done.out
    assert "a killed run: Sysctl" in done.out
    assert "an agent that was cut off: left as it was" in done.out
