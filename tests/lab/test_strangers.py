"""Targets that the harness did not make, of which only the portal is known: read, and left as they were."""

from __future__ import annotations

import pytest

from tests.lab.cli import harness, python_inside, run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


@pytest.mark.core
def test_a_lun_behind_a_portal_is_only_read() -> None:
    done = run_inside("inside.strangers", "discovered")
    assert done.status == 0, done
    assert "one target, discovered: 1 cells, not written to, nothing left" in done.out


def test_a_lun_behind_a_portal_is_read_and_proved_at_one_end() -> None:
    done = run_inside("inside.strangers", "plain")
    assert done.status == 0, done
    assert "one target, discovered: 1 cells, not written to, nothing left" in done.out
    assert "read back: table, explain, export, report" in done.out
    assert "refusals: 5" in done.out


@pytest.mark.long
def test_chap_in_both_directions() -> None:
    done = run_inside("inside.strangers", "chap")
    assert done.status == 0, done
    assert "CHAP, 1 of 2 directions: " in done.out and "CHAP, 2 of 2 directions: " in done.out


@pytest.mark.long
def test_a_read_only_lun_blocks_of_4_kib_and_ipv6_alone() -> None:
    done = run_inside("inside.strangers", "unusual")
    assert done.status == 0, done
    for what in ("a read-only LUN", "blocks of 4 KiB", "IPv6 alone"):
        assert f"{what}: 1 cells, not written to, nothing left" in done.out


@pytest.mark.long
def test_another_target_and_one_that_redirects() -> None:
    done = run_inside("inside.strangers", "tgt")
    assert done.status == 0, done
    for what in ("tgt", "a portal that redirects"):
        assert f"{what}: 1 cells, not written to, nothing left" in done.out


@pytest.mark.long
def test_a_disk_of_the_user_s_is_read_as_a_volume_and_by_its_portal() -> None:
    done = run_inside("inside.strangers", "volume")
    assert done.status == 0, done
    assert "a volume: only read" in done.out


def test_ipsec_with_a_responder_of_the_user_s() -> None:
    done = run_inside("inside.users_connection", "transport", "killed")
    assert done.status == 0, done
    assert "transport: off and " in done.out and "a killed run: nothing left" in done.out
    assert "the LUN is the same" in done.out


@pytest.mark.long
def test_what_of_the_user_s_ipsec_cannot_be_had_is_told_in_a_sentence() -> None:
    done = run_inside("inside.users_connection", "refusals", "tunnel")
    assert done.status == 0, done
    assert "tunnel: off and " in done.out and done.out.count("refused: ") == 5


@pytest.mark.long
def test_a_map_of_multipath_is_read_and_its_paths_are_not_written_to() -> None:
    done = run_inside("inside.strangers", "multipath")
    assert done.status == 0, done
    assert "a multipath map: only read" in done.out


@pytest.mark.long
def test_two_initiators_read_a_lun_behind_a_portal() -> None:
    command = ("lab", "exec", "--memory", "256", "--apart", "2", "--")
    done = harness(*command, *python_inside("inside.portal_apart"))
    assert done.status == 0, done
    assert "1 and 2 initiators: proved at one end, nothing written, nothing left" in done.out


@pytest.mark.long
def test_files_mounted_by_nfs_and_smb_are_volumes() -> None:
    done = run_inside("inside.shares", "nfs", "smb")
    assert done.status == 0, done
    for kind in ("nfs", "smb"):
        assert f"{kind}: read, and a new file written and removed" in done.out


@pytest.mark.long
@pytest.mark.own_kernel
def test_nvme_tcp_and_nbd() -> None:
    done = run_inside("inside.strangers", "nvme", "nbd", kernel="own")
    assert done.status == 0, done
    for what in ("NVMe/TCP", "NBD"):
        assert f"{what}: 1 cells, not written to, nothing left" in done.out


def test_a_lun_is_written_to_in_its_part_if_it_is_named_twice_and_nobody_else_has_it() -> None:
    done = run_inside("inside.strangers", "write")
    assert done.status == 0, done
    assert "32 of 64 MiB: written to" in done.out and "refused: registered" in done.out


@pytest.mark.long
def test_reservations_other_paths_and_what_is_on_a_lun() -> None:
    done = run_inside("inside.strangers", "held")
    assert done.status == 0, done
    for what in ("somebody has registered", "reserved: Write Exclusive", "another initiator has a session"):
        assert f"{what}: 1 cells, not written to, nothing left" in done.out
    assert "released: written to" in done.out and "refused: 7" in done.out


@pytest.mark.long
def test_a_thin_lun_and_a_portal_behind_a_nat() -> None:
    done = run_inside("inside.strangers", "thin", "nat")
    assert done.status == 0, done
    for what in ("a thin LUN", "behind a NAT"):
        assert f"{what}: 1 cells, not written to, nothing left" in done.out


@pytest.mark.long
def test_file_systems_that_are_mounted_and_a_machine_without_systemd() -> None:
    done = run_inside("inside.strangers", "mounted", "minimal")
    assert done.status == 0, done
    assert "tmpfs: as it should be" in done.out and "ext4: as it should be" in done.out
    assert "without systemd: 1 cells, not written to, nothing left" in done.out
    assert "a volume: only read" in done.out


@pytest.mark.long
@pytest.mark.own_kernel
def test_nvme_tcp_and_nbd_are_written_to() -> None:
    done = run_inside("inside.strangers", "write-others", kernel="own")
    assert done.status == 0, done
    assert "NVMe/TCP: written to" in done.out and "NBD: written to" in done.out
