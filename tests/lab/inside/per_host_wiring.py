"""In the first initiator's kernel: the other kernels over SSH, and links to the target's of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.hosts import Host, NamespaceHost, programs, remote
from harness.hosts.journal import Journal
from harness.model import Duplex
from harness.network import trunk
from harness.network.links import LinkPath, LinkPlace
from harness.parse.hosts import parse_address
from harness.parse.profiles import data_folder, load_link
from harness.testbeds.lab.per_host import management
from tests.lab.inside.kernel import SERVER, assert_rate, sh

MODULES = ("macvlan", "sch_netem", "ifb", "sch_ingress", "cls_matchall", "act_mirred")
PORT = 5000
TRIES_S = (2.0, 2.0, *(0.5,) * 20)
"""How long moving takes: a busy machine leaves the link alone for short times, if not for longer ones."""

PATIENCE_S = 120.0
TCP_SHARE = 1448 / 1538
"""Of what Ethernet frames with 1500 bytes occupy (24 bytes beyond the header), with TCP timestamps."""


def the_link_is_shaped(path: LinkPath) -> None:
    """Rate each way, the rate both share if it is half duplex, and round trip are the profile's."""
    profile = path.profile
    assert profile.rate_bit_s is not None
    expected = profile.rate_bit_s * TCP_SHARE
    ways: list[tuple[tuple[float, ...], float]] = [((1,), 0.9), ((-1,), 0.9)]
    if profile.duplex is Duplex.HALF:
        ways.append(((0.5, -0.5), 0.8))
    for parts, least in ways:
        to = (path.target_address, PORT)
        assert_rate(to, parts, expected, TRIES_S, least=least * expected, most=1.1 * expected)
    said = path.initiator.run(["ping", "-q", "-c", "100", "-i", "0.02", path.target_address]).stdout
    match = re.search(r"= ([\d.]+)/([\d.]+)/", said)
    assert match is not None, said
    print(f"{profile.name}: round trip {match[1]} ms at least, {match[2]} on average")
    assert 2e-3 * profile.delay_us < float(match[1]) < 2e-3 * profile.delay_us + 0.5


@contextmanager
def reached(name: str, role: str, log: Path) -> Iterator[Host]:
    address = parse_address(f"ssh://{name}", role)
    with remote.connect(address, role=role, name=name, run_id="run-beef", log=log) as host:
        yield host


def main() -> None:
    names = {name: sh("ssh", name, "uname", "-n").strip() for name in ("target", "initiator2")}
    assert names == {"target": "target", "initiator2": "initiator2"}
    assert sh("uname", "-n").strip() == "initiator1"

    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/run/other")
    other = ("-F", "none", "-i", "/run/other", "-oHostKeyAlias=target", "-oBatchMode=yes")
    for words, why in (
        (("-oUserKnownHostsFile=/dev/null", "target"), "Host key verification failed"),
        (("-oHostKeyAlias=initiator2", "target"), "Host key verification failed"),
        ((*other, f"{management.NETWORK}.1.1"), "Permission denied (publickey)"),
    ):
        refused = sh("ssh", *words, "touch /run/was-here", check=False)
        assert why in refused, refused
    sh("ssh", "target", "test ! -e /run/was-here")

    private = Path("/run/harness")
    private.mkdir()
    journal = Journal(private / "journal.jsonl")
    profiles = [load_link(name, [data_folder() / "profiles" / "links"]) for name in ("fast-ethernet", "wifi")]
    first = NamespaceHost(name="initiator")
    before = sh("ip", "-br", "link")
    with ExitStack() as stack:
        target = stack.enter_context(reached("target", "target", private / "target.log"))
        second = stack.enter_context(reached("initiator2", "initiator", private / "second.log"))
        for host in (first, second, target):
            for module in MODULES:
                host.run(["modprobe", module])
        links = stack.enter_context(ExitStack())
        paths: list[LinkPath] = []
        for initiator, there, profile in (
            (first, "vec0", profiles[0]),
            (first, "vec0", profiles[1]),
            (second, "vec1", profiles[0]),
        ):
            place = LinkPlace(journal, initiator, profile, tag="beef", index=len(paths))
            link = trunk.bring_up(place, target, initiator_trunk="vec0", target_trunk=there)
            paths.append(links.enter_context(link))
        log = private / "server.log"
        serve = [programs.PYTHON, "-c", SERVER, str(PORT)]
        stack.enter_context(
            target.daemon(serve, log=log, ready=lambda: "listening" in log.read_text(), deadline_s=PATIENCE_S)
        )
        for path in paths[:2]:
            the_link_is_shaped(path)
        second.run(["ping", "-c", "1", paths[2].target_address])
        links.close()
        assert "hbeef" not in target.run(["ip", "-br", "link"]).stdout
        assert "hbeef" not in second.run(["ip", "-br", "link"]).stdout
    assert sh("ip", "-br", "link") == before
    assert not journal.leaks
    print("all is well")


main()
