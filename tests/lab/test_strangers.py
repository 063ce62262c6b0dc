"""Targets that the harness did not make, of which only the portal is known: read, and left as they were."""

from __future__ import annotations

import pytest

from tests.lab.cli import harness, python_inside, run_inside, well

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]
READ = ": 1 cells, not written to, nothing left"
FOUND = f"one target, discovered{READ}"


def read(*what: str) -> list[str]:
    return [f"{each}{READ}" for each in what]


@pytest.mark.core
def test_a_lun_behind_a_portal_is_only_read() -> None:
    run_inside("inside.strangers", "discovered", said=[FOUND])


def test_a_lun_behind_a_portal_is_read_and_proved_at_one_end() -> None:
    said = (FOUND, "read back: table, explain, export, report", "refusals: 5")
    run_inside("inside.strangers", "plain", said=said)


def test_a_lun_is_written_to_in_its_part_if_it_is_named_twice_and_nobody_else_has_it() -> None:
    run_inside("inside.strangers", "write", said=["32 of 64 MiB: written to", "refused: registered"])


def test_ipsec_with_a_responder_of_the_user_s() -> None:
    said = ("transport: off and ", "a killed run: nothing left", "the LUN is the same")
    run_inside("inside.users_connection", "transport", "killed", said=said)


HELD = ("somebody has registered", "reserved: Write Exclusive", "another initiator has a session")
MOUNTED = ("tmpfs: as it should be", "ext4: as it should be")
RARE = {
    "chap": ("CHAP, 1 of 2 directions: ", "CHAP, 2 of 2 directions: "),
    # A read-only LUN, blocks of 4 KiB, and IPv6 alone.
    "unusual": read("a read-only LUN", "blocks of 4 KiB", "IPv6 alone"),
    # Another target, and one that redirects.
    "tgt": read("tgt", "a portal that redirects"),
    # A disk of the user's is read as a volume and by its portal.
    "volume": ("a volume: only read",),
    # A map of multipath is read, and its paths are not written to.
    "multipath": ("a multipath map: only read",),
    # Reservations, other paths, and what is on a LUN.
    "held": (*read(*HELD), "released: written to", "refused: 7"),
    "thin nat": read("a thin LUN", "behind a NAT"),
    # File systems that are mounted, and a machine without systemd.
    "mounted minimal": (*MOUNTED, "a volume: only read", *read("without systemd")),
}


@pytest.mark.long
@pytest.mark.parametrize("parts", RARE)
def test_what_is_rare(parts: str) -> None:
    run_inside("inside.strangers", *parts.split(), said=RARE[parts])


@pytest.mark.long
def test_what_of_the_user_s_ipsec_cannot_be_had_is_told_in_a_sentence() -> None:
    done = run_inside("inside.users_connection", "refusals", "tunnel", said=["tunnel: off and "])
    assert done.out.count("refused: ") == 5


@pytest.mark.long
def test_two_initiators_read_a_lun_behind_a_portal() -> None:
    command = (
        "lab",
        "exec",
        "--memory",
        "256",
        "--per-host",
        "2",
        "--",
        *python_inside("inside.portal_per_host"),
    )
    well(harness(*command), "1 and 2 initiators: proved at one end, nothing written, nothing left")


@pytest.mark.long
def test_files_mounted_by_nfs_and_smb_are_volumes() -> None:
    said = (f"{kind}: read, and a new file written and removed" for kind in ("nfs", "smb"))
    run_inside("inside.shares", "nfs", "smb", said=[*said])


OTHERS = {
    "nvme": "NVMe/TCP",
    "nbd": "NBD",
}


@pytest.mark.long
@pytest.mark.custom_kernel
def test_other_transports() -> None:
    run_inside("inside.strangers", *OTHERS, said=read(*OTHERS.values()), kernel="custom")


@pytest.mark.long
@pytest.mark.custom_kernel
def test_other_transports_are_written_to() -> None:
    said = [f"{title}: written to" for title in OTHERS.values()]
    run_inside("inside.strangers", "write-others", said=said, kernel="custom")
