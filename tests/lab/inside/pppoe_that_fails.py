"""Three PPPoE clients: two are not believed and one is. And what is said where nobody answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest

from harness.hosts import Daemon, NamespaceHost
from harness.network.paths import routing
from harness.network.paths.pppoe import kind as pppoe
from harness.runs import executor
from tests.lab.inside.kernel import modprobe
from tests.lab.inside.paths_that_fail import INITIATOR, coming_up, refusal


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
        patch.setattr(routing, "forward", pulled)
        patch.setattr(pppoe, "DEADLINE_S", 6.0)
        said = refusal("pppoe", 2)
    assert "within 6 s" in said, said


def main() -> None:
    executor.mount_private(str(pppoe.CONFIGURATION))
    modprobe("veth", "sch_netem", *pppoe.MODULES)
    a_wrong_secret("pppoe", 1, "CHAP")
    a_wrong_secret("pppoe:pap", 4, "PAP")
    nobody_answers()
    print("all of them failed as they should")
    the_right_secret()


if __name__ == "__main__":
    main()
