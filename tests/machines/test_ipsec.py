"""IPsec on stock machines: what AppArmor confines there, and strongSwan as Debian starts it."""

from __future__ import annotations

import threading

from harness.charon import PROGRAM
from harness.ipsec import IKE_PORT
from tests.machines.conftest import TOGETHER, differences, snapshots
from tests.machines.site import Machine, Site

SHORT = ("--size", "64M", "--repeats", "1", "--runtime", "0.5s", "--workload", "rand-read-4k")
RUN = ("run", *TOGETHER, "--link", "wired=vec1", "--ipsec", "on", *SHORT)
PROFILE = "/etc/apparmor.d/usr.sbin.charon-systemd"
LOADED = "cat /sys/kernel/security/apparmor/profiles"
ENFORCE = f"sed 's/complain,//' {PROFILE} | apparmor_parser --replace"
AS_IT_WAS = f"apparmor_parser --replace {PROFILE}"
CONFINED = f"""
for process in $(pidof {PROGRAM}); do
    tr '\\0' '\\n' <"/proc/$process/environ" | grep -q ^STRONGSWAN_CONF= && cat "/proc/$process/attr/current"
done
"""
"""By what the run's own charon is confined, which has its configuration by that variable."""


def main_process(machine: Machine) -> str:
    return machine.sh("systemctl show --property=MainPID,ActiveState strongswan")


def test_a_run_beside_strongswan_as_debian_starts_it(installed: Site) -> None:
    machines = installed.machines.values()
    for machine in machines:
        assert "/usr/sbin/swanctl (enforce)" in machine.sh(LOADED)
        assert ":500 " in machine.sh("ss -H -u -l -n")
    processes = [main_process(machine) for machine in machines]
    assert all("ActiveState=active" in text for text in processes), processes
    before = snapshots(installed)
    said = installed.harness(*RUN)
    assert said.status == 0 and "(1 ok)" in said.out, said.text
    assert [main_process(machine) for machine in machines] == processes
    assert not differences(before, installed)


def test_a_run_where_charon_is_confined_too(installed: Site) -> None:
    machines = installed.machines.values()
    seen: set[str] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            seen.update(line for machine in machines for line in machine.run(CONFINED).out.splitlines())

    looking = threading.Thread(target=look)
    for machine in machines:
        machine.sh(ENFORCE)
        assert f"{PROGRAM} (enforce)" in machine.sh(LOADED)
    looking.start()
    try:
        said = installed.harness(*RUN)
    finally:
        ended.set()
        looking.join()
        for machine in machines:
            machine.sh(AS_IT_WAS)
    assert said.status == 0 and "(1 ok)" in said.out, said.text
    assert seen == {f"{PROGRAM} (enforce)"}


def test_a_firewall_that_drops_ike_is_told_of_before_fio(installed: Site) -> None:
    drop = (
        "nft add table inet own && nft 'add chain inet own in { type filter hook input priority 0; }' "
        f"&& nft add rule inet own in udp dport {IKE_PORT} drop"
    )
    target = installed.machine("nas")
    target.sh(drop)
    try:
        said = installed.harness(*RUN)
    finally:
        target.sh("nft delete table inet own")
    assert said.status == 1, said.text
    # The table breaks lines.
    assert f"UDP port {IKE_PORT}: does a firewall drop it?" in " ".join(said.text.split()), said.text
