"""What breaks in the middle of a run between stock machines; afterwards they are as before, or it is named.

Each fault comes while cells over IPsec are measured.
"""

from __future__ import annotations

import re
import signal
import time

import pytest

from harness.results import planned
from harness.results.store import RunFolder
from tests.machines.runs import (
    LONG,
    ONE,
    TOGETHER,
    UNDONE_S,
    as_before,
    cells,
    differences,
    good,
    measuring,
    newest_run,
    printed,
    snapshots,
    wired,
)
from tests.machines.site import HOME, STORAGE, Site

pytestmark = pytest.mark.long


def resume(site: Site) -> None:
    """The rest of a run that was broken into, cut short by asking for no more than is there."""
    run = newest_run(site)
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


@pytest.mark.parametrize("name", ["nas", "client"])
def test_a_killed_charon(installed: Site, name: str) -> None:
    with as_before(installed), measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        kill(installed, name, "charon-systemd")
        time.sleep(6)
        run.send_signal(signal.SIGINT)
        assert run.wait(120 * installed.patience) in (1, 130), printed(installed)
    for cell in cells(installed).values():
        assert cell["status"] != "ok" or cell["proof"]["cleartext_segments"] == 0, cell


def test_a_killed_iscsid(installed: Site) -> None:
    with as_before(installed), measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        installed.machines["client"].sh("pkill -KILL -x iscsid")
        time.sleep(3)
        run.send_signal(signal.SIGINT)
        assert run.wait(120 * installed.patience) in (1, 130), printed(installed)


def test_a_killed_harness(installed: Site) -> None:
    with as_before(installed), measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        run.kill()
        run.wait()
        time.sleep(UNDONE_S)
    resume(installed)


@pytest.mark.parametrize("name", ["nas", "client"])
def test_a_killed_agent(installed: Site, name: str) -> None:
    """What the agent had written down, `clean` undoes."""
    before = snapshots(installed)
    with measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        # Process 1 of its process namespace: killed with all its children.
        installed.machines[name].sh("pkill -KILL -f '^[^ ]*python3 -I -X utf8 -c'")
        assert run.wait(180 * installed.patience) == 1, printed(installed)
    assert "was lost" in printed(installed) and "--resume" in printed(installed), printed(installed)
    said = installed.harness("clean", *TOGETHER)
    assert said.status == 0, said.text
    changed = differences(before, installed)
    assert not changed, changed


@pytest.mark.parametrize("name", ["nas", "client"])
def test_a_cut_connection(installed: Site, name: str) -> None:
    """The machine's sshd closes it."""
    with as_before(installed), measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        installed.machines[name].run(
            "pkill -KILL -f 'sshd(-session)?: root@notty'"  # this very shell's as well
        )
        assert run.wait(180 * installed.patience) == 1, printed(installed)
        assert "was lost" in printed(installed), printed(installed)


@pytest.mark.parametrize("network", [HOME, STORAGE])
def test_a_cable_that_is_out_for_five_seconds(installed: Site, network: int) -> None:
    with as_before(installed), measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        nas = installed.machines["nas"]
        nas.unplug(network)
        time.sleep(5)
        nas.plug_in(network)
        time.sleep(15)
        assert run.poll() is None, printed(installed)
        run.send_signal(signal.SIGINT)
        assert run.wait(120 * installed.patience) == 130, printed(installed)
    assert any(cell["status"] == "ok" for cell in cells(installed).values())


@pytest.mark.parametrize("network", [HOME, STORAGE])
def test_a_cable_that_stays_out(installed: Site, network: int) -> None:
    """Over it nothing can be undone from here: the machine does it, and the rest is named."""
    before = snapshots(installed)
    nas = installed.machines["nas"]
    with measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        nas.unplug(network)
        try:
            time.sleep(40)
            run.send_signal(signal.SIGINT)
            run.wait(240 * installed.patience)
        finally:
            nas.plug_in(network)
    assert run.returncode in (1, 130), printed(installed)
    installed.harness("clean", *TOGETHER)
    changed = differences(before, installed)
    assert not changed, changed


RESETS: dict[str, tuple[str, ...]] = {
    "target": ("nas",),
    "initiator": ("client",),
    "both": ("nas", "client"),
}


OF_A_BOOT = re.compile(r"addresses|routes|configfs|mounts|files in /run|sysctls|modules")
"""What a machine makes anew when it boots, and not the same each time: MAC addresses, sizes by its memory."""


@pytest.mark.parametrize("which", RESETS)
def test_a_reset(installed: Site, which: str) -> None:
    """The power fails: what was on the disk is found by `clean`, and the run can be gone on with."""
    for name in RESETS[which]:
        # As it is after a power failure without a run: the first boot of all does what later ones do not.
        installed.machines[name].sh("sync")
        installed.machines[name].reset()
    before = snapshots(installed)
    with measuring(installed, *wired(installed, "--ipsec", "on", *LONG)) as run:
        for name in RESETS[which]:
            installed.machines[name].cut_the_power()
        assert run.wait(240 * installed.patience) == 1, printed(installed)
        for name in RESETS[which]:
            installed.machines[name].switch_on()
        for name in RESETS[which]:
            installed.machines[name].await_ssh()
    if "nas" in RESETS[which]:
        assert installed.machines["nas"].sh("ls /var/tmp | grep harness").strip()
    said = installed.harness("clean", *TOGETHER)
    assert said.status == 0, said.text
    if "nas" in RESETS[which]:
        assert "/var/tmp/" in said.text, said.text
    for name in RESETS[which]:
        before[name] = {what: lines for what, lines in before[name].items() if not OF_A_BOOT.match(what)}
    changed = differences(before, installed)
    assert not changed, changed
    resume(installed)


def test_after_all_that(installed: Site) -> None:
    """They are still machines that measure."""
    good(installed, installed.harness(*wired(installed, "--ipsec", "both", *ONE)))
