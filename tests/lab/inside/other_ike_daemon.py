"""A run next to the user's own strongSwan, which protects all traffic between the same two machines.

It is started as Debian starts it: on UDP 500 and 4500, with every plugin that is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import Host, NamespaceHost
from harness.protection.ipsec.charon import ACQUIRE_EXPIRES, PROGRAM
from tests.lab.inside import kernel, nas
from tests.lab.inside.kernel import RESULTS, harness, processes, sh

OWN = Path("/root/own")
ENDS = {"192.0.2.1": NamespaceHost("client"), "192.0.2.2": NamespaceHost("nas", netns="nas")}
"""The machines by the addresses that the user's connection is between."""

STRONGSWAN_CONF = """\
charon-systemd {{
    load_modular = yes
    plugins {{
        include /etc/strongswan.d/charon/*.conf
        vici {{ socket = unix://{socket} }}
    }}
    filelog {{ stderr {{ default = 1 }} }}
}}
"""
SWANCTL_CONF = """\
connections {{
    own {{
        version = 2
        local_addrs = {here}
        remote_addrs = {there}
        local {{ auth = psk }}
        remote {{ auth = psk }}
        children {{
            own {{
                mode = transport
                local_ts = {here}
                remote_ts = {there}
            }}
        }}
    }}
}}
secrets {{
    ike-own {{ secret = "of this lab alone" }}
}}
"""
RUN = (
    *("run", "--target=ssh://nas", "--initiator=local", f"--link=wired={nas.NIC}", "--backing=ramdisk"),
    *("--ipsec=both", "--workload=rand-read-4k", "--size=32M", f"--results={RESULTS}"),
)


def swanctl(address: str, *words: str) -> str:
    socket = OWN / f"{address}.vici"
    return ENDS[address].run(["swanctl", *words, "--uri", f"unix://{socket}"]).stdout


def load(address: str) -> None:
    """What `systemctl reload strongswan` does."""
    swanctl(address, "--load-all", "--noprompt", "--file", str(OWN / f"{address}.conf"))


@contextlib.contextmanager
def strongswan(address: str, peer: str) -> Iterator[None]:
    OWN.mkdir(exist_ok=True)
    socket, conf = OWN / f"{address}.vici", OWN / f"{address}.strongswan"
    conf.write_text(STRONGSWAN_CONF.format(socket=socket), encoding="utf-8")
    (OWN / f"{address}.conf").write_text(SWANCTL_CONF.format(here=address, there=peer), encoding="utf-8")
    log = OWN / f"{address}.log"
    with ENDS[address].daemon(
        [PROGRAM], log=log, ready=socket.exists, deadline_s=30, env={"STRONGSWAN_CONF": str(conf)}
    ):
        load(address)
        yield


def of_the_user(host: Host) -> str:
    """His security associations and policies, and whatever else another IKE daemon might change."""
    parts = [["ip", "xfrm", "state"], ["ip", "xfrm", "policy"], ["ip", "rule"], ["cat", ACQUIRE_EXPIRES]]
    text = "".join(host.run(argv).stdout for argv in parts)
    # Sequence numbers, the replay window and when it was used last move on with every packet.
    lasting = re.sub(r"(seq|oseq) 0x[0-9a-f]+|bitmap.*\n\s.*|lastused.*", "", text)
    return "\n".join(line for line in lasting.splitlines() if line.strip())


def protected_packets() -> int:
    states = sh("ip", "-s", "xfrm", "state", "list", "nokeys").split("\nsrc ")
    (state,) = (state for state in states if "192.0.2.1" in state.split()[:2] and "aead" in state)
    count = re.search(r"lifetime current:\s+\d+\(bytes\), (\d+)\(packets\)", state)
    assert count is not None, state
    return int(count[1])


def switches() -> int:
    """How often his daemon on this machine has been woken."""
    log = (OWN / "192.0.2.1.log").read_text(encoding="utf-8", errors="replace")
    assert "loaded plugins" in log, log
    settings = f"STRONGSWAN_CONF={OWN}/192.0.2.1"
    (pid,) = (pid for pid in processes() if any(w.startswith(settings) for w in kernel.environment(pid)))
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(n) for text in texts for n in re.findall(r"ctxt_switches:\s+(\d+)", text))


def at_both_ends() -> dict[str, str]:
    return {address: of_the_user(host) for address, host in ENDS.items()}


def is_left_alone(before: dict[str, str], what: str) -> None:
    after = at_both_ends()
    assert after == before, f"{what}: {kernel.differences(before, after)}"
    carried = protected_packets()
    said = sh("ping", "-c", "3", "-i", "0.1", "192.0.2.2")
    assert protected_packets() >= carried + 3, f"his connection protects no more: {said}"


def both_columns(before: dict[str, str]) -> None:
    said = harness("doctor", *RUN[1:3], says=("the machines are ready",))
    assert "500" not in said, said
    woken = switches()
    found = kernel.measured(*RUN, "--repeats=2", "--runtime=0.5s")
    assert len(found) == 4, found
    ios = sum(record["read"]["ios"] for record in found.values())
    is_left_alone(before, "a run")
    print(f"a run: 4 cells, his daemon was woken {switches() - woken} times in {ios} I/Os")


def killed_while_he_reloads(before: dict[str, str]) -> None:
    with kernel.under_way(*RUN, "--repeats=50", "--runtime=0.5s") as process:
        for address in ENDS:
            load(address)
        os.kill(process.pid, signal.SIGKILL)
    kernel.wait_for(lambda: at_both_ends() == before, "both to be alone", deadline_s=60)
    is_left_alone(before, "a killed run")
    print("a killed run: left alone")


def main() -> None:
    nas.make_network()
    nas.make_keys()
    with nas.sshd(), contextlib.ExitStack() as stack:
        here, there = ENDS
        stack.enter_context(strongswan(there, here))
        stack.enter_context(strongswan(here, there))
        swanctl(here, "--initiate", "--child", "own")
        before = at_both_ends()
        both_columns(before)
        killed_while_he_reloads(before)


if __name__ == "__main__":
    main()
