"""IPsec on stock machines: what AppArmor confines there, and strongSwan as Debian starts it."""

from __future__ import annotations

import threading

import pytest

from harness.protection.ipsec.charon import PROGRAM
from tests.machines.runs import ONE, good, measured, wired
from tests.machines.site import Machine, Site

pytestmark = pytest.mark.long
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


def test_a_run_with_strongswan_as_debian_starts_it(installed: Site) -> None:
    machines = installed.machines.values()
    for machine in machines:
        assert "/usr/sbin/swanctl (enforce)" in machine.sh(LOADED)
        assert ":500 " in machine.sh("ss -H -u -l -n")
    processes = [main_process(machine) for machine in machines]
    assert all("ActiveState=active" in text for text in processes), processes
    measured(installed, "--ipsec", "on")
    assert [main_process(machine) for machine in machines] == processes


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
        said = installed.harness(*wired(installed, "--ipsec", "on", *ONE))
    finally:
        ended.set()
        looking.join()
        for machine in machines:
            machine.sh(AS_IT_WAS)
    good(installed, said)
    assert seen == {f"{PROGRAM} (enforce)"}
