"""ESP's segmentation offload: who asks for it, what it loads and sets, what keeps it from other columns."""

from __future__ import annotations

from typing import Any

import pytest

from harness.model import ENDS, Plan, TestbedKind
from harness.model.errors import UsageError
from harness.planning.plan import make_plan
from harness.planning.request import Kernels, RunRequest
from harness.protection.ipsec import offload
from harness.runs import modules
from harness.testbeds import testbed
from tests.unit.fakes import World
from tests.unit.fakes.paths import link_path

OFFLOADED = "aes128gcm16-gso"


def plan(*proposals: str, **more: Any) -> Plan:
    return make_plan(RunRequest(links=("wired",), ipsec=proposals, **more))


def test_its_module_is_loaded_where_a_proposal_asks_for_it() -> None:
    with_it, without = modules.of(plan("on", OFFLOADED)), modules.of(plan("both", "aes256gcm16"))
    for role in ENDS:
        assert "esp4_offload" in with_it[role] and "esp6_offload" not in with_it[role]
        assert not {"esp4_offload", "esp6_offload"} & set(without[role])


def test_the_machine_s_custom_kernel_is_not_given_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would serve the security associations of others as well."""
    monkeypatch.setattr(testbed, "choose", lambda word: TestbedKind("lab" if word == "auto" else word))
    for option, value in (("testbed", "host"), ("kernels", Kernels.PER_HOST)):
        with pytest.raises(UsageError, match=f"--{option} {value}") as refused:
            plan(OFFLOADED, **{option: value})
        assert "modprobe esp4_offload" in (refused.value.hint or "")


@pytest.mark.parametrize("wanted", [True, False])
def test_both_ends_are_settled(wanted: bool) -> None:
    world = World()
    offload.settle(link_path(world, 0), wanted=wanted)
    reported = [" ".join(command.argv) for command in world.commands]
    # Two ends of a veth pair pass super-packets whole unless their sender may not.
    words = "ethtool -K {} gro on tso off" if wanted else "ip link set dev {} gso_max_segs 1"
    ends = [words.format(iface) for iface in ("hbeefi0", "hbeeft0")]
    assert [line[line.index(words.split()[0]) :] for line in reported] == ends
