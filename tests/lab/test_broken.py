"""The harness on a kernel that has LIO, iSCSI and ESP itself: the lab's, used as a machine of its own.

Each script of `tests.lab.inside` is root there, breaks what it likes, and asserts; an assertion that
fails is its exit status, and its console is shown here.
"""

from __future__ import annotations

import pytest

from tests.lab.cli import COMMAND_DEADLINE_S, run_inside

pytestmark = [pytest.mark.lab, pytest.mark.broken]


def test_a_run_leaves_the_kernel_as_it_was() -> None:
    run_inside("inside.host_testbed")


MOMENTS = ("filling", "negotiating", "logging_in", "measuring", "taking_down")


@pytest.mark.parametrize(
    "moments", [("negotiating", "measuring"), pytest.param(MOMENTS, marks=pytest.mark.long)], ids=len
)
def test_after_a_kill_at_any_moment_clean_restores_everything(moments: tuple[str, ...]) -> None:
    done = run_inside("inside.killed_host_run", *moments)
    assert all(f"{moment}: " in done.out for moment in moments)


def test_ipsec_fails_closed() -> None:
    run_inside("inside.fails_closed", "policy")


@pytest.mark.parametrize(
    "at_once",
    [
        pytest.param("gravest", marks=pytest.mark.core),
        "some",
        *(pytest.param(many, marks=pytest.mark.long) for many in ("one", "three")),
    ],
)
def test_no_cell_is_ok_that_had_cleartext_whatever_breaks_under_it(at_once: str) -> None:
    run_inside("inside.fails_closed", at_once, deadline_s=3 * COMMAND_DEADLINE_S, said=["of which ok: 0"])


@pytest.mark.parametrize(
    ("protection", "at_once"),
    [
        pytest.param("wireguard", "some", marks=[pytest.mark.custom_kernel, pytest.mark.long]),
        pytest.param("wireguard", "one", marks=[pytest.mark.custom_kernel, pytest.mark.long]),
        pytest.param("macsec", "one", marks=pytest.mark.long),
    ],
)
def test_nor_is_one_whose_protecting_interface_goes(protection: str, at_once: str) -> None:
    kernel = "custom" if protection == "wireguard" else "debian"
    run_inside("inside.fails_closed", at_once, protection, kernel=kernel, said=["of which ok: 0"])


def test_captures_tell_every_kind_of_frame() -> None:
    run_inside("inside.captured")


@pytest.mark.core
def test_a_target_that_vanishes_costs_its_cell_alone() -> None:
    run_inside("inside.target_vanishes")


def test_guard_judges_devices_in_real_use() -> None:
    run_inside("guard_in_lab", storage_mib=1024, said=["0 verdicts are wrong"])
