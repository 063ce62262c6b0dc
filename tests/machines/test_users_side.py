"""What users have on their machines besides us, and ask of us; nothing is left there, and nothing lost."""

from __future__ import annotations

import json
import re
import signal

import pytest

from harness.model import KERNEL_TARGETS
from harness.protection.ipsec import IKE_PORT
from tests.machines import runs
from tests.machines.conftest import install
from tests.machines.images import STORAGE_NETWORK, UML, address
from tests.machines.runs import ONE, TOGETHER, as_before, cells, good, meanwhile, measured, wait_for, wired
from tests.machines.site import STORAGE, Site, sh
from tests.machines.test_short import each
from tests.machines.test_strangers import lio

pytestmark = pytest.mark.long


# How IPsec is asked for


@pytest.mark.parametrize("mode", ["transport", "tunnel"])
@pytest.mark.parametrize("auth", ["psk", "cert"])
def test_ipsec(installed: Site, mode: str, auth: str) -> None:
    (cell,) = measured(installed, "--ipsec", "on", "--ipsec-mode", mode, "--auth", auth).values()
    assert cell["column"]["mode"] == mode


def test_other_protections(installed: Site) -> None:
    transports, protections = KERNEL_TARGETS, ("macsec", "macsec+aes128gcm16")
    words = (*each("--transport", transports), *each("--protect", protections))
    assert len(measured(installed, *words)) == len(transports) * len(protections)


def test_jumbo_frames(installed: Site) -> None:
    if installed.disks.hardware.name == UML.name:
        pytest.skip("user-mode Linux has no interface beyond 1500 bytes: HARNESS_HARDWARE=qemu has one")

    def mtu(size_bytes: int) -> None:
        for machine in installed.machines.values():
            sh("ip", "link", "set", machine.tap(STORAGE), "mtu", str(size_bytes))
            machine.sh(f"ip link set {installed.wire} mtu {size_bytes}")

    mtu(9000)
    try:
        good(installed, installed.harness(*wired(installed, "--ipsec", "both", *ONE[:2], *ONE[3:])))
    finally:
        mtu(1500)
    # On a real link other ports than the portal's have no IPsec: what TCP says of it there is skipped.
    tcp = json.loads((runs.newest_run(installed) / "probes" / "wired.tcp.r1.json").read_bytes())
    assert tcp["status"] == "ok", tcp["reason"]
    assert tcp["figures"]["pmtu_bytes"] == 9000


def test_two_initiators(installed: Site) -> None:
    words = (*TOGETHER, "--initiator", "ssh://root@client2")
    with installed.plugged_in("client2") as second:
        second.await_ssh()
        install(installed, *words)
        # fio's client, which is here, and its servers there understand each other if they are of one version.
        installed.use_fio_of(second)
        link = ("--link", f"wired={installed.wire}")
        with as_before(installed):
            found = good(installed, installed.harness("run", *words, *link, "--ipsec", "both", *ONE))
        assert {cell["column"]["initiators"] for cell in found.values()} == {1, 2}


# WiFi

RADIOS = """
apt-get install -y --no-install-recommends hostapd wpasupplicant iw >/dev/null 2>&1
modprobe mac80211_hwsim radios=3
ip netns add air
for n in 1 2; do
    iw phy $(cat /sys/class/net/wlan$n/phy80211/name) set netns name air
    cat >/root/ap$n.conf <<END
interface=wlan$n
bridge=br0
ssid=own
channel=$((n * 5 - 4))
hw_mode=g
wpa=2
wpa_key_mgmt=WPA-PSK
rsn_pairwise=CCMP
wpa_passphrase=the user's own
ctrl_interface=/run/hostapd
END
done
ip address flush dev {wire}
ip link set {wire} netns air
ip netns exec air sh -c '
ip link add br0 type bridge; ip link set {wire} master br0; ip link set {wire} up; ip link set br0 up
hostapd -B /root/ap1.conf /root/ap2.conf'
cat >/root/station.conf <<END
ctrl_interface=/run/wpa_supplicant
network={{
    ssid="own"
    psk="the user's own"
    scan_freq=2412 2437
}}
END
wpa_supplicant -B -i wlan0 -c /root/station.conf
ip address add {here}/24 dev wlan0
"""


ROAM = """
now=$(iw dev wlan0 link | awk '/Connected/ {print $3}')
wpa_cli -i wlan0 scan
sleep 3
for other in $(wpa_cli -i wlan0 scan_results | awk '/own/ {print $1}'); do
    [ $other = $now ] || wpa_cli -i wlan0 roam $other
done
"""


def test_wifi_and_a_roam(installed: Site) -> None:
    """A station, and two access points on the wire to the target; it changes over in the middle of a cell."""
    client, here = installed.machines["client"], address("client", STORAGE_NETWORK)
    client.sh(RADIOS.format(wire=installed.wire, here=here))
    words = ("run", *TOGETHER, "--link", "wifi=wlan0", "--ipsec", "both")

    def invalid() -> list[str]:
        return [cell["reason"] for cell in cells(installed).values() if cell["status"] == "invalid"]

    def roamed() -> bool:
        client.sh(ROAM)
        return bool(invalid())

    try:
        a_minute = 60 * installed.patience
        associated = "wpa_cli -i wlan0 status | grep COMPLETED"
        wait_for(lambda: bool(client.run(associated).out), "the association", deadline_s=a_minute)
        good(installed, installed.harness(*words, *ONE))
        with runs.measuring(installed, *words[:-2], "--ipsec", "off") as run:
            # Again, if no cell was at work just then.
            wait_for(roamed, "a cell with the roam", deadline_s=3 * a_minute)
            run.send_signal(signal.SIGINT)
            run.wait(a_minute)
        bad = invalid()
        assert bad and all("access point" in reason or "associat" in reason for reason in bad), bad
    finally:
        client.reset()


# Who may log in


def test_a_user_who_may_use_sudo(installed: Site) -> None:
    words = ("--target", "ssh://admin@server", "--initiator", "ssh://admin@client")
    link = ("--link", f"wired={installed.wire}")
    with as_before(installed):
        good(installed, installed.harness("run", *words, *link, "--ipsec", "on", *ONE))


def test_a_user_who_may_not(installed: Site) -> None:
    words = ("--target", "ssh://guest@server", "--initiator", "ssh://root@client")
    with as_before(installed):
        said = installed.harness("run", *words, "--link", f"wired={installed.wire}", *ONE)
    runs.refused(said, "root", "sudo")


def test_a_hop(installed: Site) -> None:
    """A router needs no root and nothing of ours; here the target's own guest plays it."""
    words = wired(installed, "--hop", "ssh://guest@server", "--ipsec", "off", *ONE[:2], *ONE[3:])
    (cell,) = good(installed, installed.harness(*words)).values()
    assert any("hop" in use["hosts"] for use in cell["telemetry"]["processors"]), cell["telemetry"]


# Disks

LOOP = "truncate -s 96M /var/tmp/disk.img && losetup /dev/loop7 /var/tmp/disk.img"
NO_LOOP = "losetup -d /dev/loop7; rm /var/tmp/disk.img"
MKFS = "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/loop7"
MDADM = "mdadm --create /dev/md7 --run --level=1 --raid-devices=2 --metadata=1.2"
USES = {
    # Whole at once: the kernel would write the rest of it by and by.
    "mounted": (f"{MKFS} && mount /dev/loop7 /mnt", "umount /mnt", "mounted"),
    "ext4": ("mkfs.ext4 -q /dev/loop7", "true", "ext4"),
    "lvm": ("pvcreate -q /dev/loop7 && vgcreate -q own /dev/loop7", "vgremove -qf own", "LVM"),
    "md": (f"{MDADM} /dev/loop7 missing", "mdadm --stop /dev/md7", "md"),
    "swap": ("mkswap -q /dev/loop7 && swapon /dev/loop7", "swapoff /dev/loop7", "swap"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("end", ["target", "initiator"])
def test_a_disk_that_is_in_use(installed: Site, end: str, use: str) -> None:
    """Refused on either end, in a sentence, before anything is made; not a byte of it is another."""
    machine = installed.machines["server" if end == "target" else "client"]
    do, undo, word = USES[use]
    option = "--backing" if end == "target" else "--local-device"
    with meanwhile(machine, f"modprobe loop; {LOOP}", NO_LOOP), meanwhile(machine, do, undo):
        checksum = "sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum /dev/loop7"
        digest = machine.sh(checksum)
        said = installed.harness(*wired(installed, "--link", "local", option, "/dev/loop7", *ONE))
        assert "making and filling" not in runs.refused(said, "/dev/loop7", word)
        assert machine.sh(checksum) == digest


def test_a_free_disk(installed: Site) -> None:
    nas = installed.machines["server"]
    with meanwhile(nas, f"modprobe loop; {LOOP}", NO_LOOP):
        words = wired(installed, "--backing", "/dev/loop7", "--ipsec", "on", *ONE)
        good(installed, installed.harness(*words))


def test_a_full_disk(installed: Site) -> None:
    nas = installed.machines["server"]
    mounted = f"{MKFS} && mount /dev/loop7 /mnt && fallocate -l 60M /mnt/of-the-user"
    with meanwhile(nas, f"modprobe loop; {LOOP}", NO_LOOP), meanwhile(nas, mounted, "umount /mnt"):
        with as_before(installed):
            said = installed.harness(*wired(installed, "--backing", "file:/mnt/new", *ONE))
        found = re.search(r"64 MiB for the backing file /mnt/new, found ([0-9.]+) MiB free", said.text)
        assert said.status != 0 and found and 5 <= float(found[1]) <= 36, said.text
        assert nas.sh("ls /mnt").split() == ["lost+found", "of-the-user"]


# Firewalls

FIREWALL = """nft -f - <<'END'
table inet own {{
    chain input {{
        type filter hook input priority filter; policy accept;
        {rule} drop
    }}
}}
END
"""


@pytest.mark.parametrize(
    ("rule", "what", "ipsec"),
    [
        ("ip protocol esp", "ESP", "on"),
        ("tcp dport 3260-3400", "TCP", "off"),
        (f"udp dport {IKE_PORT}", f"UDP port {IKE_PORT}", "on"),
    ],
)
def test_a_firewall(installed: Site, rule: str, what: str, ipsec: str) -> None:
    """What it drops is said before fio, in a sentence."""
    firewall = (FIREWALL.format(rule=rule), "nft delete table inet own")
    with as_before(installed), meanwhile(installed.machines["server"], *firewall):
        said = installed.harness(*wired(installed, "--ipsec", ipsec, *ONE))
    (cell,) = cells(installed).values()
    assert said.status == 1 and cell["status"] != "ok", said.text
    assert what in cell["reason"] and "firewall" in cell["reason"], cell["reason"]


# The user's own

OWN_STRONGSWAN = """
cat >/etc/swanctl/conf.d/own.conf <<'END'
connections {{
    own {{
        local_addrs = {local}
        remote_addrs = {remote}
        version = 2
        local {{ auth = psk }}
        remote {{ auth = psk }}
        children {{
            own {{
                local_ts = dynamic[icmp]
                remote_ts = dynamic[icmp]
                mode = transport
            }}
        }}
    }}
}}
secrets {{
    ike-own {{ secret = "the user's own" }}
}}
END
systemctl restart strongswan && swanctl --load-all
"""
OWN_IMAGE = "/var/tmp/own.img"
OWN_TARGET, NO_TARGET = lio(OWN_IMAGE, 16, ("own",), 'group.set_attribute("authentication", "0")')


def associations(site: Site) -> dict[str, list[str]]:
    found = runs.snapshots(site)
    return {name: [line for line in found[name]["xfrm states"] if "spi" in line] for name in found}


def test_the_user_s_own_ipsec(installed: Site) -> None:
    """A connection between the same machines, up before and after, that encrypts their pings."""
    nas, client = installed.machines["server"], installed.machines["client"]
    ends = {name: address(name, STORAGE_NETWORK) for name in ("server", "client")}
    remove = "rm /etc/swanctl/conf.d/own.conf; systemctl restart strongswan"
    with (
        meanwhile(nas, OWN_STRONGSWAN.format(local=ends["server"], remote=ends["client"]), remove),
        meanwhile(client, OWN_STRONGSWAN.format(local=ends["client"], remote=ends["server"]), remove),
    ):
        client.sh("swanctl --initiate --child own --timeout 10")
        list_own, before = "swanctl --list-sas --raw", associations(installed)
        assert client.sh(list_own).count("ESTABLISHED") == 1
        good(installed, installed.harness(*wired(installed, "--ipsec", "both", *ONE)))
        client.sh(f"ping -c 2 -W 2 {ends['server']}")
        assert client.sh(list_own).count("ESTABLISHED") == 1
        assert associations(installed) == before


def test_the_user_s_own_target_and_session(installed: Site) -> None:
    """On port 3260 of every address, and logged in to; both are the same afterwards."""
    nas, client = installed.machines["server"], installed.machines["client"]
    there = address("server", STORAGE_NETWORK)
    node = f"iscsiadm -m node -T iqn.2003-01.org.example:own -p {there}"
    login = f"iscsiadm -m discovery -t st -p {there} && {node} --login"
    logout = f"{node} --logout; {node} --op delete; rm -rf /etc/iscsi/send_targets/*; systemctl stop iscsid"
    nas.sh("apt-get install --quiet=2 --yes targetcli-fb >/dev/null")  # which the harness does without
    make, remove = f"truncate -s 16M {OWN_IMAGE}\n{OWN_TARGET}", f"{NO_TARGET}rm {OWN_IMAGE}"
    with meanwhile(nas, make, remove), meanwhile(client, login, logout):
        measured(installed, "--ipsec", "both")
        assert "LOGGED_IN" in client.sh("cat /sys/class/iscsi_session/*/state")


RESTART = "systemctl restart multipathd"


def test_multipathd_that_takes_every_disk(installed: Site) -> None:
    """`find_multipaths no` would put a map over our disks; it is kept away or said."""
    client = installed.machines["client"]
    write = "printf 'defaults {\\n    find_multipaths no\\n}\\n' >/etc/multipath.conf; " + RESTART
    remove = "rm /etc/multipath.conf; " + RESTART
    with meanwhile(client, write, remove):
        said = installed.harness(*wired(installed, "--ipsec", "off", *ONE))
        (cell,) = cells(installed).values()
        assert cell["status"] == "ok" or "multipath" in cell["reason"], said.text
        client.sh("multipath -F; true")


# Who configures the network

NETWORKD = "/etc/systemd/network/own.network"


@pytest.mark.parametrize("manager", ["NetworkManager", "systemd-networkd"])
def test_who_configures_the_network(installed: Site, manager: str) -> None:
    """An interface that another program has configured keeps its address, and the run its link."""
    client, wire = installed.machines["client"], installed.wire
    here = address("client", STORAGE_NETWORK)
    take = f"ifdown --force {wire}; ip address flush dev {wire}; ip link set {wire} down"
    give = f"ip address flush dev {wire}; ifup --force {wire}"
    ways = {
        "NetworkManager": (
            "apt-get install -y --no-install-recommends network-manager >/dev/null 2>&1; "
            "sed -i 's/managed=false/managed=true/' /etc/NetworkManager/NetworkManager.conf; "
            f"cp /etc/network/interfaces /root/interfaces; sed -i '/{wire}/,$d' /etc/network/interfaces; "
            "systemctl restart NetworkManager; "
            f"nmcli connection add type ethernet ifname {wire} con-name own ipv4.method manual "
            f"ipv4.addresses {here}/24; nmcli connection up own",
            "nmcli connection delete own; systemctl disable --now NetworkManager; "
            "mv /root/interfaces /etc/network/interfaces",
        ),
        "systemd-networkd": (
            f"printf '[Match]\\nName={wire}\\n[Network]\\nAddress={here}/24\\n' >{NETWORKD}; "
            "systemctl start systemd-networkd",
            f"systemctl stop systemd-networkd systemd-networkd.socket; rm {NETWORKD}",
        ),
    }
    do, undo = ways[manager]
    with meanwhile(client, f"{take}; {do}", f"{undo}; {give}"):
        look, a_minute = f"ip address show {wire}", 60 * installed.patience
        wait_for(lambda: here in client.sh(look), f"the address by {manager}", deadline_s=a_minute)
        measured(installed, "--ipsec", "both")
