"""Paths that do not come up: what is said of them, in how long, and that nothing of them is left.

And of three PPPoE clients, two that are not believed and one that is.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import PRIVATE, Daemon, NamespaceHost
from harness.hosts.journal import Journal
from harness.model import HopKind
from harness.model.errors import CommandFailed
from harness.network import paths
from harness.network.links import LinkPath, LinkPlace
from harness.network.paths import Folders, openflow, pppoe, routers
from harness.parse.profiles import load_link
from harness.runs import executor, leftovers
from tests.lab.inside.kernel import modprobe

TAG = "beef"
INITIATOR = NamespaceHost("initiator")


@contextlib.contextmanager
def coming_up(spec: str, index: int) -> Iterator[tuple[LinkPath, Path]]:
    """A path and the folder of its logs; nothing else is left of it, whether it comes up or not."""
    journal, logs = Journal(Path("/run/journal.jsonl")), Path(f"/run/logs-{index}")
    logs.mkdir()
    place = LinkPlace(journal, INITIATOR, load_link(spec), tag=TAG, index=index)
    try:
        with paths.bring_up(place, Folders(private=PRIVATE / str(index), logs=logs)) as path:
            yield path, logs
    finally:
        assert (journal.leaks, journal.open_entries(), leftovers.find(INITIATOR, TAG)) == ([], {}, [])


def refusal(spec: str, index: int) -> str:
    """Why a path does not come up."""
    began = time.monotonic()
    with pytest.raises(CommandFailed) as error, coming_up(spec, index):
        print(f"{spec} came up")
    print(f"{spec}, after {time.monotonic() - began:.0f} s: {error.value}")
    return error.value.message


def a_wrong_secret(spec: str, index: int, protocol: str) -> None:
    daemon = NamespaceHost.daemon

    def mistaken(host: NamespaceHost, argv: Sequence[str], **more: Any) -> AbstractContextManager[Daemon]:
        return daemon(host, [*argv, "password", "wrong"] if "user" in argv else argv, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NamespaceHost, "daemon", mistaken)
        said = refusal(spec, index)
    assert f"{protocol} authentication failed" in said, said


def the_right_secret() -> None:
    """By PAP, which the runs of other tests do not use."""
    with coming_up("pppoe:pap", 5) as (path, logs):
        assert path.agreed == {"pppoe_authentication": "pap"}, path.agreed
        INITIATOR.run(["ping", "-c", "1", "-W", "5", path.target_address])
    log = (logs / "pppd-client.log").read_text(encoding="utf-8")
    assert "PAP authentication succeeded" in log and "CHAP" not in log, log
    (secret,) = re.findall(r'concentrator "(\w+)"', (pppoe.CONFIGURATION / "pap-secrets").read_text())
    assert all(secret not in file.read_text(encoding="utf-8") for file in logs.iterdir())
    print("pppoe:pap came up, proved by PAP")


def nobody_answers() -> None:
    """The cable between the two routers is pulled."""

    def pulled(hop: NamespaceHost) -> None:
        hop.run(["ip", "link", "set", "dev", "far", "down"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routers, "forward", pulled)
        patch.setattr(pppoe, "DEADLINE_S", 6.0)
        said = refusal("pppoe", 2)
    assert "within 6 s" in said, said


def no_controller() -> None:
    """It listens at another port than the switch has been told."""
    configuration = openflow._configuration

    def elsewhere(address: str) -> list[str]:
        return [word.replace(f":{openflow.PORT}", ":1") for word in configuration(address)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openflow, "_configuration", elsewhere)
        patch.setattr(openflow, "DEADLINE_S", 6.0)
        said = refusal("openflow:flows", 3)
    assert "the switch to reach its controller" in said and "6 s" in said, said
    assert "connection" in said, said


def main() -> None:
    executor.mount_private(str(pppoe.CONFIGURATION))
    modprobe("veth", "sch_netem", *paths.MODULES[HopKind.PPPOE], *paths.MODULES[HopKind.OPENFLOW])
    a_wrong_secret("pppoe", 1, "CHAP")
    a_wrong_secret("pppoe:pap", 4, "PAP")
    nobody_answers()
    no_controller()
    print("all of them failed as they should")
    the_right_secret()


if __name__ == "__main__":
    main()
