"""Targets of somebody else, on a machine that is not logged in to: they are read, and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.machines.conftest import install
from tests.machines.images import STORAGE_NETWORK, address
from tests.machines.runs import ONE, SHORT, TOGETHER, as_before, good, meanwhile
from tests.machines.site import Machine, Site

pytestmark = pytest.mark.short
PORTAL = address("server", STORAGE_NETWORK)
DISK = "/srv/lun.img"
MAKE_DISK = f"test -e {DISK} || dd if=/dev/urandom of={DISK} bs=1M count=64 2>/dev/null"
NQN = "nqn.2003-01.org.example:nas"
USER, SECRET, BACK_USER, BACK_SECRET = "reader", "reader-secret-1", "target", "target-secret-2"


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """A target: how it is installed, made and removed on ``server``, and the words that reach it."""

    packages: str = ""
    make: str
    remove: str
    transport: str = "iscsi"
    words: tuple[str, ...] = ()
    has_chap: bool = False

    @property
    def portal(self) -> str:
        return PORTAL if self.transport == "iscsi" else f"{self.transport}://{PORTAL}"


def lio(file: str, size_mib: int, names: Sequence[str], *settings: str) -> tuple[str, str]:
    """Commands that make targets of LIO with one disk at every address, and that remove them."""
    python = "python3 - <<'END'\nimport rtslib_fb as lio"
    target = 'lio.Target(lio.FabricModule("iscsi"), name'
    iqns = [f"iqn.2003-01.org.example:{name}" for name in names]
    lines = "\n    ".join(settings)
    make = f"""
{python}
store = lio.FileIOStorageObject("own", dev="{file}", size={size_mib} << 20, wwn="own-serial")
for name in {iqns}:
    group = lio.TPG({target}, mode="create"), 1, mode="create")
    lio.LUN(group, 0, store)
    lio.NetworkPortal(group, "0.0.0.0", 3260, mode="create")
    group.set_attribute("generate_node_acls", "1")
    {lines}
    group.enable = True
END
"""
    remove = f"""
{python}
for name in {iqns}:
    {target}, mode="lookup").delete()
lio.FileIOStorageObject("own").delete()
END
"""
    return make, remove


CHAP = (
    'group.set_attribute("authentication", "1")',
    f'group.chap_userid, group.chap_password = "{USER}", "{SECRET}"',
    f'group.chap_mutual_userid, group.chap_mutual_password = "{BACK_USER}", "{BACK_SECRET}"',
)
MAKE_LIO, REMOVE_LIO = lio(DISK, 64, ("own", "other"), *CHAP)
STRANGERS = {
    "tgt": Stranger(
        packages="tgt",
        make=f"""
systemctl start tgt
tgtadm --lld iscsi --mode target --op new --tid 1 --targetname iqn.2001-04.org.example:tgt
tgtadm --lld iscsi --mode logicalunit --op new --tid 1 --lun 1 --backing-store {DISK}
tgtadm --lld iscsi --mode target --op bind --tid 1 --initiator-address ALL
""",
        remove="tgtadm --lld iscsi --mode target --op delete --force --tid 1; systemctl stop tgt",
    ),
    "LIO with CHAP in both directions, and another target": Stranger(
        packages="targetcli-fb",
        make=MAKE_LIO,
        remove=REMOVE_LIO,
        words=("--iqn", "iqn.2003-01.org.example:own", "--chap", USER),
        has_chap=True,
    ),
    "nvmet": Stranger(
        transport="nvme-tcp",
        make=f"""
modprobe nvmet_tcp
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/nvmet
mkdir subsystems/{NQN} subsystems/{NQN}/namespaces/1 ports/1
echo 1 >subsystems/{NQN}/attr_allow_any_host
echo {DISK} >subsystems/{NQN}/namespaces/1/device_path
echo 1 >subsystems/{NQN}/namespaces/1/enable
echo ipv4 >ports/1/addr_adrfam
echo tcp >ports/1/addr_trtype
echo {PORTAL} >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/{NQN} ports/1/subsystems/{NQN}
""",
        remove=f"""
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/{NQN}
rmdir ports/1 subsystems/{NQN}/namespaces/1 subsystems/{NQN}
""",
    ),
    "nbdkit": Stranger(
        packages="nbdkit",
        transport="nbd",
        make=f"nbdkit --ipaddr {PORTAL} --pidfile /run/nbdkit.pid file {DISK}",
        remove="kill $(cat /run/nbdkit.pid); rm -f /run/nbdkit.pid",
    ),
}
IN_CI = ("tgt", "LIO with CHAP in both directions, and another target")
"""The others take minutes too, and CI has them in the lab."""


A_MEMBER = f"""
modprobe loop
losetup /dev/loop7 {DISK}
mdadm --create /dev/md7 --run --force --level=1 --raid-devices=1 --metadata=1.2 /dev/loop7
mdadm --stop /dev/md7
losetup --detach /dev/loop7
"""
"""An array that every machine assembles on which it appears, and writes to."""


CLIENT = ("--initiator", "ssh://root@client")


def place(stranger: Stranger, nas: Machine) -> None:
    nas.sh(f"apt-get install --quiet=2 --yes {stranger.packages} >/dev/null; {MAKE_DISK}")


def checksum(machine: Machine) -> str:
    return machine.sh(f"sync; sha256sum {DISK}")


@pytest.mark.on_ci("trixie")
@pytest.mark.parametrize(
    "name", [name if name in IN_CI else pytest.param(name, marks=pytest.mark.long) for name in STRANGERS]
)
def test_it_is_read_and_nothing_is_written(installed: Site, name: str) -> None:
    stranger, nas = STRANGERS[name], installed.machines["server"]
    place(stranger, nas)
    secret = installed.folder / "secret"
    secret.write_text(f"{SECRET}\n{BACK_USER} {BACK_SECRET}\n", encoding="utf-8")
    words = [*stranger.words, *(("--chap-secret", str(secret)) if stranger.has_chap else ())]
    reached = ("--portal", stranger.portal, *CLIENT, *words)
    if stranger.transport != "iscsi":  # which is installed
        install(installed, *TOGETHER, "--transport", stranger.transport)
    with meanwhile(nas, stranger.make, stranger.remove):
        before = checksum(nas)
        with as_before(installed):
            said = installed.harness("run", *reached, *SHORT)
            found = good(installed, said)
            if stranger.has_chap:
                secret.write_text(f"{SECRET}\n{BACK_USER} not-{BACK_SECRET}\n", encoding="utf-8")
                refused = installed.harness("run", *reached, *ONE)
                assert refused.status != 0 and "Traceback" not in refused.text, refused.text
                assert "could not prove the second secret" in refused.text
                assert not {BACK_SECRET, SECRET} & {*re.findall(r"[\w-]+", refused.text)}
        assert checksum(nas) == before
    assert {cell["workload"]["direction"] for cell in found.values()} == {"read"}
    assert all(cell["proof"]["at_one_end"] for cell in found.values()), said.text
    assert "roved at one end" in said.out, said.text
    assert SECRET not in said.text and BACK_SECRET not in said.text


@pytest.mark.on_ci("trixie")
def test_what_lies_on_it_is_not_woken(installed: Site) -> None:
    """udev(7) assembles arrays, which writes to each member: the disk is read-only before it looks."""
    stranger, nas = STRANGERS["tgt"], installed.machines["server"]
    place(stranger, nas)
    nas.sh(A_MEMBER)
    with meanwhile(nas, stranger.make, stranger.remove):
        before = checksum(nas)
        with as_before(installed):
            good(installed, installed.harness("run", "--portal", PORTAL, *CLIENT, *ONE))
        assert checksum(nas) == before


@pytest.mark.long
def test_a_lun_that_is_named_twice_is_written_to_past_udev(installed: Site) -> None:
    """Its rule has made the disk read-only, and does not do so again when the run has lifted that."""
    stranger, nas, name = STRANGERS["tgt"], installed.machines["server"], "iqn.2001-04.org.example:tgt"
    nas.sh(f"rm -f {DISK}")
    place(stranger, nas)
    words = ("--iqn", name, "--lun", "1", "--destroy", f"{name}:1", "--workload", "rand-write-4k")
    reached = ("--portal", PORTAL, *CLIENT, *words)
    outside = f"sync; head -c 16M {DISK} | sha256sum; tail -c 16M {DISK} | sha256sum"
    with meanwhile(nas, stranger.make, stranger.remove):
        before, was = nas.sh(outside), checksum(nas)
        with as_before(installed):
            found = good(installed, installed.harness("run", *reached, *SHORT, "--size", "16M..48M"))
        assert nas.sh(outside) == before and checksum(nas) != was
    assert {cell["workload"]["direction"] for cell in found.values()} == {"write"}
