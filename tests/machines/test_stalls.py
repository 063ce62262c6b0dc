"""`harness fault` between stock machines: only the portal's packets are lost, and nothing is left, however it
ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from tests.machines import runs
from tests.machines.runs import TOGETHER, UNDONE_S, as_before
from tests.machines.site import Site

FILTER = "ip xfrm policy list | grep -c 'priority 9000' || true"
"""How many policies of a fault a machine has."""

PLANNED_S = 60

REBOOTED = ("--ipsec", "off", "--transport", "iscsi", "--fault", "target-rebooted")


def asked(of: Site, *words: str) -> tuple[str, ...]:
    how = ("--link", f"wired={of.wire}", "--size", "64M", "--no-probes")
    return ("fault", *TOGETHER, *how, *words)


def stalls(
    of: Site, *words: str, but: re.Pattern[str] | None = None
) -> Iterator[tuple[str, float, dict[str, object]]]:
    """Fault, stall in s and all else of each cell; each is ok, and came back without a lost write. ``but`` is
    as for ``differences``."""
    with as_before(of, but):
        found = runs.good(of, of.harness(*asked(of, *words)))
    for name, cell in found.items():
        stall = cell["stall"]
        assert stall["lost"] == 0 and stall["not_read_back"] is None and stall["written"] > 100, name
        assert stall["late"] == 0 or stall["over_ns"], f"{name}: {stall}"
        yield stall["fault"], (stall["stall_ns"] or 0) / 1e9, stall


@pytest.mark.on_ci("trixie")
def test_a_path_that_is_down_and_a_target_that_is(installed: Site) -> None:
    faults = ("--fault", "link-down:5s", "--fault", "target-down:5s")
    found = [*stalls(installed, "--ipsec", "both", *faults)]
    assert len(found) == 4
    for fault, stall_s, stall in found:
        # It cannot end before the fault. How much later depends on how busy the machine is as well.
        assert stall_s >= 4.9, (fault, stall)
        assert not stall["errnos"], stall


@pytest.mark.long
def test_each_other_fault_that_machines_have(installed: Site) -> None:
    lasting = ("initiator-link-down", "loss-100", "loss-100-to-target", "loss-100-to-initiator")
    of_keys = ("rekey-ike", "rekey-child", "ike-daemon-killed:15s", "ike-daemon-stopped:5s")
    faults = [*(f"{kind}:5s" for kind in lasting), "link-down:30s", "link-down:150s", *of_keys]
    words = [word for fault in faults for word in ("--fault", fault)]
    found = {fault: (stall_s, stall) for fault, stall_s, stall in stalls(installed, "--ipsec", "on", *words)}
    assert found.keys() == {*faults}
    assert all(found[fault][0] >= 4.9 for fault in faults if fault not in of_keys), found
    assert found["link-down:30s"][0] >= 29.9 and not found["link-down:30s"][1]["errnos"]
    # Longer than replacement_timeout: errors reach the application, and then it comes back.
    assert found["link-down:150s"][0] >= 149.9 and found["link-down:150s"][1]["errnos"]


@pytest.mark.on_ci("trixie")
def test_a_target_that_boots_anew_is_made_again(installed: Site) -> None:
    words = ("--transport", "nvme-tcp", "--protect", "wireguard")
    found = [*stalls(installed, *REBOOTED, *words, but=runs.OF_A_BOOT)]
    assert len(found) == 4
    for _, stall_s, stall in found:
        took_ns = stall["ended_ns"] - stall["began_ns"]  # type: ignore[operator]
        # It serves for a moment before it goes down.
        assert took_ns > 5e9 and stall_s >= 5, stall
    for cell in runs.cells(installed).values():
        assert cell["proof"]["at_one_end"] and not cell["proof"]["other_frames"], cell


@pytest.mark.long
def test_a_target_that_boots_anew_gets_keys_again(installed: Site) -> None:
    """The initiator's kernel has ESP's keys until charon has given up its peer, after 10 s and 165 s."""
    columns = ("--ipsec", "on", "--protect", "macsec", "--protect", "wireguard+aes128gcm16")
    words = (*columns, "--ike", "dpd_delay=10s", *REBOOTED[2:])
    assert len([*stalls(installed, *words, but=runs.OF_A_BOOT)]) == 3
    for name, cell in runs.cells(installed).items():
        assert ("aes128gcm16" in name) is (cell["stall"]["stall_ns"] > 150e9), cell
        assert cell["proof"]["at_one_end"] and not cell["proof"]["cleartext_segments"], cell


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_ends_while_its_target_boots(installed: Site, number: int) -> None:
    """Interrupted, it waits for the target, and takes down what is there. Killed, it leaves a file on a disk,
    which is written down there and removed by `harness clean`, or by the next run."""
    server, boot_id = installed.machines["server"], "cat /proc/sys/kernel/random/boot_id"
    with as_before(installed, runs.OF_A_BOOT), runs.started(installed, *asked(installed, *REBOOTED)) as run:
        first, is_up = server.sh(boot_id), partial(server.run, "true")
        runs.wait_for(lambda: is_up().status != 0, "the reboot", deadline_s=240 * installed.patience)
        run.send_signal(number)
        runs.ends(installed, run, 130, -signal.SIGKILL, within_s=300)
        server.await_ssh()
        assert server.sh(boot_id) != first
        if number == signal.SIGKILL:
            assert server.sh("ls /var/tmp/harness-*.img /var/lib/harness").strip()
            cleaned = installed.harness("clean", "--target", "ssh://root@server")
            assert cleaned.status == 0 and "BackingFile" in cleaned.text, cleaned.text
        assert server.run("ls /var/tmp/harness-*.img").status != 0


def is_broken(of: Site) -> bool:
    return of.machines["server"].sh(FILTER).strip() == "2"


@pytest.mark.parametrize(
    "how", ["kill", pytest.param("cut", marks=pytest.mark.long), pytest.param("stop", marks=pytest.mark.long)]
)
@pytest.mark.on_ci("trixie")
def test_a_fault_ends_without_the_harness(installed: Site, how: str) -> None:
    """It is killed, its connection is cut, or it hangs: the machine ends the fault, 10 s after its time."""
    words = asked(installed, "--ipsec", "off", "--fault", f"link-down:{PLANNED_S}s")
    patience = installed.patience
    with as_before(installed), runs.started(installed, *words) as run:
        runs.wait_for(lambda: is_broken(installed), "the fault", deadline_s=240 * patience)
        end(installed, run, how)
        within_s = PLANNED_S + 20 if how == "stop" else UNDONE_S
        runs.wait_for(lambda: not is_broken(installed), "its end", deadline_s=within_s * patience)
        if how == "stop":
            run.send_signal(signal.SIGCONT)
            run.send_signal(signal.SIGINT)
        runs.ends(installed, run, 0, 1, 130, -signal.SIGKILL, within_s=240)


def end(of: Site, run: subprocess.Popen[str], how: str) -> None:
    if how == "cut":
        # This very shell's as well.
        of.machines["server"].run("pkill -KILL -f 'sshd(-session)?: root@notty'")
    else:
        os.kill(run.pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
