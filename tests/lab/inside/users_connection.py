"""IPsec with a responder that the harness did not set up: a connection of the user's swanctl.conf(5) is up
for a run, and gone after it. The user's own charon on this machine has it loaded, and stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.lab.inside import found_protections, kernel, other_ike_daemon, strangers
from tests.lab.inside.kernel import harness, newest_records, newest_run, processes, sh, wait_for
from tests.lab.inside.other_ike_daemon import OWN, SWANCTL_CONF

HERE, NAS = "192.0.2.1", "192.0.2.2"
FILE = Path("/etc/swanctl/conf.d/nas.conf")
RUN = (*strangers.RUN, f"--portal={NAS}", "--no-probes")
PROTECT = f"--protect=swanctl:{FILE}"


def written(**changed: str) -> None:
    """The user's file, with other words in place of some."""
    text = SWANCTL_CONF.format(here=HERE, there=NAS)
    for old, new in changed.items():
        assert old in text, old
        text = text.replace(old, new)
    FILE.write_text(f"include conf.d/nothing*.conf\n{text}", encoding="utf-8")


def state() -> dict[str, object]:
    loaded = other_ike_daemon.swanctl(HERE, "--list-conns")
    return {**kernel.snapshot(), "loaded": loaded, "the file": FILE.read_text(encoding="utf-8")}


def nothing_changed(what: str) -> contextlib.AbstractContextManager[None]:
    return kernel.unchanged(what, state)


def measured(mode: str) -> None:
    with nothing_changed(mode):
        said = harness(*RUN, "--repeats=2", "--protect=off", PROTECT)
    found = newest_records()
    protected = {key: each for key, each in found.items() if each["column"]["protection"]}
    clear = [each for key, each in found.items() if key not in protected]
    assert len(protected) == len(clear) == 2, said
    for each in clear:
        proof = each["proof"]
        assert each["status"] == "ok" and proof["at_one_end"] and not proof["protected_bytes"], each
    (name,) = {each["column"]["protection"][0] for each in protected.values()}
    found_protections.proved(mode, protected, [name])
    assert {each["column"]["mode"] for each in protected.values()} == {mode}, protected
    for kept in (path for path in newest_run().rglob("*") if path.is_file()):
        assert b"of this lab alone" not in kept.read_bytes(), kept
    harness("table", str(newest_run()), says=("one end", name))
    print(f"{mode}: off and {name} in one run, nothing left")


def refused(what: str, sentence: str, *words: str, status: int = 2) -> None:
    with nothing_changed(what):
        said = harness(*RUN, *(words or (PROTECT,)), status=status, says=(sentence,))
    print(f"refused: {what}: {said}")


def killed() -> None:
    def is_at_work() -> bool:
        return "fio" in processes().values() and "reqid" in sh("ip", "xfrm", "state")

    def is_gone() -> bool:
        return "reqid" not in sh("ip", "xfrm", "state") + sh("ip", "xfrm", "policy")

    with nothing_changed("a killed run"):
        with kernel.started((*RUN, PROTECT, "--runtime=60s")) as process:
            wait_for(lambda: is_at_work() or process.poll() is not None, "fio over IPsec", deadline_s=60)
            assert process.poll() is None, kernel.started_said()
            os.kill(process.pid, signal.SIGKILL)
        wait_for(is_gone, "no association and no policy of the run", deadline_s=60)
        wait_for(lambda: "iscsid" not in processes().values(), "no session", deadline_s=60)
    print("a killed run: nothing left")


def refusals() -> None:
    refused("no file", "nothing to read at /nowhere.conf", "--protect=swanctl:/nowhere.conf")
    refused("no such child", "found own of own", f"{PROTECT}#other")
    written(**{"of this lab alone": "another one"})
    refused("another secret", "AUTHENTICATION_FAILED", status=1)
    written(**{f"remote_ts = {NAS}": f"remote_ts = {NAS}[tcp/9999]"})
    refused("another port", f"its traffic selectors do not cover {NAS}:3260")
    written()
    other_ike_daemon.swanctl(HERE, "--initiate", "--child", "own")
    refused("there already", f"IPsec protects the path to {NAS}:3260 already")
    other_ike_daemon.swanctl(HERE, "--terminate", "--ike", "own")


def in_tunnel_mode() -> None:
    """Of a child that would start by itself."""
    conf = OWN / f"{NAS}.conf"
    was = conf.read_text(encoding="utf-8")
    conf.write_text(was.replace("mode = transport", "mode = tunnel"), encoding="utf-8")
    other_ike_daemon.load(NAS)
    written(**{"mode = transport": "mode = tunnel\n                start_action = start"})
    measured("tunnel")
    conf.write_text(was, encoding="utf-8")
    other_ike_daemon.load(NAS)


PARTS: dict[str, Callable[[], None]] = {
    "transport": lambda: measured("transport"),
    "killed": killed,
    "refusals": refusals,
    "tunnel": in_tunnel_mode,
}


def main(parts: list[str]) -> None:
    strangers.prepare()
    FILE.parent.mkdir(exist_ok=True)
    file = strangers.make("ipsec")
    was = strangers.checksum(file)
    with other_ike_daemon.strongswan(NAS, HERE), other_ike_daemon.strongswan(HERE, NAS):
        for part in parts:
            written()
            PARTS[part]()
    assert strangers.checksum(file) == was
    print("the LUN is the same")


if __name__ == "__main__":
    main(sys.argv[1:])
