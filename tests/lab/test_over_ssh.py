"""Runs on "machines": over a real sshd, to a target that is another host as far as the network goes."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


@pytest.mark.core
def test_the_path_is_proved() -> None:
    run_inside("inside.over_ssh", "path")


def test_the_path_is_proved_and_what_is_wrong_is_refused() -> None:
    said = ("refusals: 5", "a device: refused twice, measured once", "swapped: ")
    run_inside("inside.over_ssh", "refusals", said=said)


@pytest.mark.long
def test_an_iscsid_of_the_user_s_logs_us_in_under_our_own_name() -> None:
    done = run_inside("inside.over_ssh", "iscsid")
    assert "the user's iscsid: used under another name, and left" in done.out


@pytest.mark.long
def test_a_router_on_the_way_is_watched_and_may_be_lost() -> None:
    run_inside("inside.over_ssh", "hop", said=["a hop: carried ", "a hop: lost after "])


@pytest.mark.long
def test_ipsec_of_the_user_s_own_between_the_machines_is_left_alone_and_not_measured() -> None:
    run_inside("inside.other_ike_daemon", said=["a run: 4 cells", "a killed run: left alone"])


@pytest.mark.long
def test_the_whole_matrix_is_measured() -> None:
    run_inside("inside.over_ssh", "matrix", said=["cells: 24"])


@pytest.mark.parametrize(
    "how",
    ["cut_the_cable", *(pytest.param(kill, marks=pytest.mark.long) for kill in ("kill_ssh", "kill_harness"))],
)
def test_both_sides_are_as_before_when_the_connection_breaks(how: str) -> None:
    run_inside("inside.over_ssh", how, said=[f"{how}: as before after "])
