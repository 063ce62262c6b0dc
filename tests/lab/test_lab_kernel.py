"""The lab's own kernel, where `make lab-kernel` has built it; on CI, where it must have been built."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.model import Ciphers, Status
from harness.testbeds.lab.kernels import building, kernel
from tests.lab.cli import Done, harness, measure, python_inside

pytestmark = [pytest.mark.lab, pytest.mark.own_kernel]

BUILT_IN = (
    "veth sch_netem target_core_iblock target_core_file iscsi_target_mod iscsi_tcp sd_mod bridge ifb "
    "sch_ingress cls_matchall act_mirred xfrm_user esp4 8021q macvlan pppoe openvswitch dummy tun"
)
LOADED = "brd null_blk nbd mac80211_hwsim wireguard macsec tls nvme_tcp nvmet_tcp"


def own(*words: str, virtual_time: bool = False) -> Done:
    """A command on the lab's own kernel."""
    clock = ["--virtual-time"] if virtual_time else []
    return harness("lab", "exec", "--kernel", "own", *clock, "--", *words)


def test_it_boots_and_says_which_one_it_is() -> None:
    done = own("uname", "-rv")
    assert done.status == 0, done
    recipe = kernel.recipe()
    version, _, _ = recipe.source_version.partition("-")
    assert done.out == f"{version}-harness #{recipe.key} {building.TIMESTAMP}\n"


def test_modprobe_knows_what_is_built_in_and_loads_the_rest() -> None:
    done = own("sh", "-euc", f"for m in {BUILT_IN}; do modprobe $m; done; cat /proc/modules")
    assert (done.status, done.out) == (0, ""), done
    script = f"for m in {LOADED}; do modprobe --first-time $m; done; cut -d' ' -f1 /proc/modules"
    done = own("sh", "-euc", script)
    assert done.status == 0 and set(LOADED.split()) <= set(done.out.split()), done


@pytest.mark.long
def test_the_whole_stack_runs_on_it() -> None:
    done = harness(
        "lab", "exec", "--kernel", "own", "--memory", "512", "--", *python_inside("inside.host_testbed")
    )
    assert done.status == 0, done


with_instructions = pytest.mark.skipif(
    bool(kernel.lacking_instructions()), reason="this processor has no instructions for ciphers"
)


@with_instructions
def test_ciphers_give_what_the_portable_ones_give() -> None:
    done = own(*python_inside("inside.same_ciphers"))
    assert done.status == 0, done


@with_instructions
def test_nobody_loses_vector_registers_while_the_kernel_encrypts() -> None:
    done = own(*python_inside("inside.vector_registers"))
    assert done.status == 0, done


@with_instructions
@pytest.mark.parametrize(
    ("ciphers", "driver", "of_macsec"),
    [
        pytest.param("machine", "rfc4106-gcm-aesni", "generic-gcm-aesni", marks=pytest.mark.long),
        pytest.param(
            "portable",
            "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))",
            "gcm_base(ctr(aes-generic),ghash-generic)",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_run_encrypts_as_it_was_asked_to(tmp_path: Path, ciphers: str, driver: str, of_macsec: str) -> None:
    ran = measure(
        tmp_path,
        *(
            "--lab-kernel",
            "own",
            "--cipher-driver",
            ciphers,
            "--link",
            "wired",
            "--workload",
            "seq-read-256k",
        ),
        *("--link", "wired", "--protect", "aes128gcm16", "--protect", "wireguard", "--protect", "macsec"),
    )
    assert ran.done.status == 0, ran.done
    found = {record.column.protection: record for record in ran.records.values()}
    assert {record.status for record in found.values()} == {Status.OK} and len(found) == 3
    assert {record.setting.ciphers for record in found.values()} == {Ciphers(ciphers)}
    assert found["aes128gcm16",].agreed["aes128gcm16"]["drivers"] == driver
    assert found["macsec",].agreed["macsec"]["drivers"] == of_macsec
    titled = {cell["setting"]["ciphers"] for cell in ran.table()["cells"]}
    assert titled == {"portable" if ciphers == "portable" else None}


def test_virtual_time_waits_for_nobody() -> None:
    done = own("sh", "-c", "date +%s; sleep 3600; date +%s", virtual_time=True)
    assert done.status == 0, done
    first, last = map(int, done.out.split())
    assert 3600 <= last - first <= 3601


@pytest.mark.parametrize(
    ("pair", "virtual_time"),
    [
        ("802.11ax wpa3", False),
        ("802.11n wpa2", True),
        pytest.param("802.11n wpa2", False, marks=pytest.mark.long),
        pytest.param("802.11ac open", False, marks=pytest.mark.long),
        pytest.param("802.11ac open", True, marks=pytest.mark.long),
        pytest.param("802.11ax wpa3", True, marks=pytest.mark.long),
    ],
)
def test_stations_associate_encrypt_and_share_the_air(pair: str, virtual_time: bool) -> None:
    done = own(*python_inside("inside.on_the_air", *pair.split()), virtual_time=virtual_time)
    assert done.status == 0, done
    sys.stdout.write(done.out)


@pytest.mark.long
def test_disks_take_the_time_of_their_profiles() -> None:
    done = own(*python_inside("inside.modelled_disks"), virtual_time=True)
    assert done.status == 0, done
    again = own(*python_inside("inside.modelled_disks"), virtual_time=True)
    assert again.out == done.out, "virtual time repeats to the last digit"
