"""What breaks in the middle of a run between stock machines; afterwards they are as before, or it is named.

Each fault comes while cells over IPsec are measured.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time

import pytest

from harness.results import planned
from harness.results.store import RunFolder
from tests.machines import runs
from tests.machines.runs import TOGETHER, UNDONE_S, as_before, cells, ends, interrupted, printed, snapshots
from tests.machines.site import HOME, STORAGE, Site

pytestmark = pytest.mark.long
each_machine = pytest.mark.parametrize("name", ["server", "client"])
each_network = pytest.mark.parametrize("network", [HOME, STORAGE])


def secured(site: Site) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return runs.measuring(site, *runs.wired(site, "--ipsec", "on"))


def resume(site: Site) -> None:
    """The rest of a run that was broken into, cut short by asking for no more than is there."""
    run = runs.newest_run(site)
    typed = [word for option in planned.outside(RunFolder(run).load_plan()) for word in option]
    said = site.harness("run", "--resume", run.name, *typed, "--plan")
    assert said.status == 0, said.text


def kill(site: Site, name: str, *programs: str) -> None:
    """Kill the run's own programs of a name on a machine: those that the machine itself runs are spared."""
    spare = "systemctl show --property MainPID --value strongswan iscsid"
    for program in programs:
        site.machines[name].sh(
            f"own=$({spare} | tr '\\n' ' '); for p in $(pgrep -x {program}); do "
            'case " $own " in *" $p "*) ;; *) kill -KILL $p ;; esac; done'
        )


def clean(site: Site, before: dict[str, runs.Snapshot]) -> str:
    said = site.harness("clean", *TOGETHER)
    assert not (changed := runs.differences(before, site)), changed
    assert said.status == 0, said.text
    return said.text


@each_machine
def test_a_killed_charon(installed: Site, name: str) -> None:
    with as_before(installed), secured(installed) as run:
        kill(installed, name, "charon-systemd")
        time.sleep(6)
        interrupted(installed, run, 1, 130)
    for cell in cells(installed).values():
        assert cell["status"] != "ok" or cell["proof"]["cleartext_segments"] == 0, cell


def test_a_killed_iscsid(installed: Site) -> None:
    with as_before(installed), secured(installed) as run:
        installed.machines["client"].sh("pkill -KILL -x iscsid")
        time.sleep(3)
        interrupted(installed, run, 1, 130)


def test_a_killed_harness(installed: Site) -> None:
    with as_before(installed), secured(installed) as run:
        run.kill()
        run.wait()
        time.sleep(UNDONE_S)
    resume(installed)


@each_machine
def test_a_killed_agent(installed: Site, name: str) -> None:
    """What the agent had written down, `clean` undoes."""
    before = snapshots(installed)
    with secured(installed) as run:
        # Process 1 of its process namespace: killed with all its children.
        installed.machines[name].sh("pkill -KILL -f '^[^ ]*python3 -I -X utf8 -c'")
        ends(installed, run, 1, within_s=180)
    assert "was lost" in printed(installed) and "--resume" in printed(installed), printed(installed)
    clean(installed, before)


@each_machine
def test_a_cut_connection(installed: Site, name: str) -> None:
    """The machine's sshd closes it."""
    with as_before(installed), secured(installed) as run:
        # This very shell's as well.
        installed.machines[name].run("pkill -KILL -f 'sshd(-session)?: root@notty'")
        ends(installed, run, 1, within_s=180)
        assert "was lost" in printed(installed), printed(installed)


@each_network
def test_a_cable_that_is_out_for_five_seconds(installed: Site, network: int) -> None:
    with as_before(installed), secured(installed) as run:
        nas = installed.machines["server"]
        nas.unplug(network)
        time.sleep(5)
        nas.plug_in(network)
        time.sleep(15)
        assert run.poll() is None, printed(installed)
        interrupted(installed, run, 130)
    assert any(cell["status"] == "ok" for cell in cells(installed).values())


@each_network
def test_a_cable_that_stays_out(installed: Site, network: int) -> None:
    """Over it nothing can be undone from here: the machine does it, and the rest is named."""
    before = snapshots(installed)
    nas = installed.machines["server"]
    with secured(installed) as run:
        nas.unplug(network)
        try:
            time.sleep(40)
            run.send_signal(signal.SIGINT)
            ends(installed, run, 1, 130, within_s=240)
        finally:
            nas.plug_in(network)
    installed.harness("clean", *TOGETHER)
    assert not (changed := runs.differences(before, installed)), changed


RESETS = {"target": ("server",), "initiator": ("client",), "both": ("server", "client")}
OF_A_BOOT = re.compile(r"addresses|routes|configfs|mounts|files in /run|sysctls|modules")
"""What a machine makes anew when it boots, and not the same each time: MAC addresses, sizes by its memory."""


@pytest.mark.parametrize("which", RESETS)
def test_a_reset(installed: Site, which: str) -> None:
    """The power fails: what was on the disk is found by `clean`, and the run can be gone on with."""
    machines = [installed.machines[name] for name in RESETS[which]]
    for machine in machines:
        # As it is after a power failure without a run: the first boot of all does what later ones do not.
        machine.sh("sync")
        machine.reset()
    before = snapshots(installed)
    with secured(installed) as run:
        for machine in machines:
            machine.cut_the_power()
        ends(installed, run, 1, within_s=240)
        for machine in machines:
            machine.switch_on()
        for machine in machines:
            machine.await_ssh()
    for name in RESETS[which]:
        before[name] = {what: lines for what, lines in before[name].items() if not OF_A_BOOT.match(what)}
    if "server" in RESETS[which]:
        assert installed.machines["server"].sh("ls /var/tmp | grep harness").strip()
    said = clean(installed, before)
    assert "server" not in RESETS[which] or "/var/tmp/" in said, said
    resume(installed)


def test_after_all_that(installed: Site) -> None:
    runs.good(installed, installed.harness(*runs.wired(installed, "--ipsec", "both", *runs.ONE)))
