"""The custom kernel, where `make lab-kernel` has built it; on CI, where it must have been built."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Ciphers
from harness.testbeds.lab.kernels import building, kernel
from tests.lab.cli import measure, on_custom_kernel, python_inside, run_inside, well

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

BUILT_IN = (
    "veth sch_netem target_core_iblock target_core_file iscsi_target_mod iscsi_tcp sd_mod bridge ifb "
    "sch_ingress cls_matchall act_mirred xfrm_user esp4 8021q macvlan pppoe openvswitch dummy tun"
)
LOADED = "brd null_blk nbd mac80211_hwsim wireguard macsec tls nvme_tcp nvmet_tcp"


def test_it_boots_and_says_which_one_it_is() -> None:
    done = well(on_custom_kernel("uname", "-rv"))
    recipe = kernel.recipe()
    version, _, _ = recipe.source_version.partition("-")
    assert done.out == f"{version}-harness #{recipe.key} {building.TIMESTAMP}\n"


def test_modprobe_knows_what_is_built_in_and_loads_the_rest() -> None:
    done = on_custom_kernel("sh", "-euc", f"for m in {BUILT_IN}; do modprobe $m; done; cat /proc/modules")
    assert (done.status, done.out) == (0, ""), done
    script = f"for m in {LOADED}; do modprobe --first-time $m; done; cut -d' ' -f1 /proc/modules"
    done = well(on_custom_kernel("sh", "-euc", script))
    assert set(LOADED.split()) <= set(done.out.split()), done


@pytest.mark.long
def test_the_whole_stack_runs_on_it() -> None:
    run_inside("inside.host_testbed", kernel="custom")


with_instructions = pytest.mark.skipif(
    bool(kernel.lacking_instructions()), reason="this processor has no instructions for ciphers"
)


@with_instructions
def test_ciphers_give_what_the_portable_ones_give() -> None:
    well(on_custom_kernel(*python_inside("inside.same_ciphers")))


@with_instructions
def test_nobody_loses_vector_registers_while_the_kernel_encrypts() -> None:
    well(on_custom_kernel(*python_inside("inside.vector_registers")))


PORTABLE = "gcm_base(ctr(aes-generic),ghash-generic)"


@pytest.mark.long
@with_instructions
@pytest.mark.parametrize(
    ("ciphers", "driver", "of_macsec"),
    [
        ("accelerated", "rfc4106-gcm-aesni", "generic-gcm-aesni"),
        ("generic", f"rfc4106({PORTABLE})", PORTABLE),
    ],
)
def test_a_run_encrypts_as_it_was_asked_to(tmp_path: Path, ciphers: str, driver: str, of_macsec: str) -> None:
    words = ("--lab-kernel=custom", f"--cipher-driver={ciphers}", "--link=wired", "--workload=seq-read-256k")
    ran = measure(tmp_path, *words, "--protect=aes128gcm16", "--protect=wireguard", "--protect=macsec")
    found = {record.column.protection: record for record in ran.ok().values()}
    assert len(found) == 3
    assert {record.setting.ciphers for record in found.values()} == {Ciphers(ciphers)}
    assert found["aes128gcm16",].agreed["aes128gcm16"]["drivers"] == driver
    assert found["macsec",].agreed["macsec"]["drivers"] == of_macsec
    titled = {cell["setting"]["ciphers"] for cell in ran.table()["cells"]}
    assert titled == {"generic" if ciphers == "generic" else None}


def test_virtual_time_waits_for_nobody() -> None:
    done = well(on_custom_kernel("sh", "-c", "date +%s; sleep 3600; date +%s", virtual_time=True))
    first, last = map(int, done.out.split())
    assert 3600 <= last - first <= 3601


@pytest.mark.long
def test_disks_take_the_time_of_their_profiles() -> None:
    done = well(on_custom_kernel(*python_inside("inside.modelled_disks"), virtual_time=True))
    again = on_custom_kernel(*python_inside("inside.modelled_disks"), virtual_time=True)
    assert again.out == done.out, "virtual time repeats to the last digit"
