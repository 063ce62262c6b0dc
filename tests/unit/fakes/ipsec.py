"""xfrm's states and policies, as charon and the harness make them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from harness.protection.capture import MOST_SPARSE
from harness.protection.xfrm_listener import SaCounters
from tests.unit.fakes.answers import DONE, Answer

if TYPE_CHECKING:
    from tests.unit.fakes import World

NONE: Answer = (2, "", "RTNETLINK answers: No such file or directory")


@dataclass
class Ipsec:
    """Things are ``policy NETNS …`` and ``state NETNS …``."""

    world: World
    spis: dict[str, int] = field(default_factory=dict)
    """Of each security association that there was, by the name of the state."""

    def act(self, netns: str | None, argv: tuple[str, ...], text: str) -> Answer | None:
        world = self.world
        match argv:
            case ["ip", "xfrm", "policy", "add", *words]:
                world.make(_policy(netns, words[: words.index("action")]), *filter(None, [netns]))
            case ["ip", "xfrm", "policy", "delete", *words]:
                return world.remove_if_there(_policy(netns, words), NONE)
            case ["ip", "xfrm", "policy", "deleteall", "src", source, "dst", destination, "priority", number]:
                pattern = _policy(netns, ["src", source, "dst", destination, f".* priority {number}"])
                for thing in [thing for thing in world.things if re.fullmatch(pattern, thing)]:
                    world.remove(thing)
            case ["ip", "xfrm", "state", "deleteall", "src", source, "dst", destination, *words]:
                assert words[:3] == ["proto", "esp", "reqid"]
                world.remove_if_there(_state(netns, source, destination, words[3]), DONE)
            case ["ip", "xfrm", "state", "list", "nokeys"]:
                return 0, self._states(netns), ""
            case ["ip", "xfrm", "policy", "list"]:
                return 0, self._policies(netns), ""
            case ["ip", "xfrm", "state", ("add" | "flush"), *_]:
                pass
            case ["vici", command]:
                if command == "initiate":
                    self._initiate(json.loads(text)["child"])
            case _:
                return None
        return DONE

    def _initiate(self, name: str) -> None:
        """charon's states and policies on both ends, as the initiator's connection says."""
        conn = next(
            m[name]
            for h, c, m in self.world.vici_messages[::-1]
            if (h, c) == ("initiator", "load-conn") and name in m
        )
        (near,), (far,) = conn["local_addrs"], conn["remote_addrs"]
        child = conn["children"][name]
        reqid, priority = str(child["reqid"]), str(child["priority"])
        target = next(t.split()[1] for t in self.world.things if t == f"netns {name}")
        for netns in (None, target):
            for source, destination, way in ((near, far, "out"), (far, near, "in"), (far, near, "fwd")):
                selector = ["src", f"{source}/32", "dst", f"{destination}/32", "dir", way]
                self.world.make(_policy(netns, [*selector, "priority", priority]))
            for source, destination in ((near, far), (far, near)):
                self.world.make(_state(netns, source, destination, reqid))

    def _policies(self, netns: str | None) -> str:
        text = "src 0.0.0.0/0 dst 0.0.0.0/0 \n\tsocket in priority 0 ptype main \n"
        for thing in self.world.things:
            if thing.startswith(f"policy {netns} "):
                selector, _, rest = thing.removeprefix(f"policy {netns} ").partition(" dir ")
                way, _, priority = rest.partition(" priority ")
                text += f"{selector} \n\tdir {way} action block priority {priority or 20000} ptype main \n"
        return text

    def _states(self, netns: str | None) -> str:
        text = state_text("10.0.0.1", "10.0.0.2", spi=1, reqid=1)
        for number, thing in enumerate(self.world.things, 2):
            if thing.startswith(f"state {netns} "):
                source, destination, reqid = thing.split()[2:]
                text += state_text(source, destination, spi=number, reqid=int(reqid))
        return text

    def associations(self, netns: str | None, reqid: str) -> list[dict[str, object]]:
        """What an xfrm listener tells. Each end of an SA has its name less the network namespace."""
        found = []
        for thing in self.world.things:
            if thing.startswith(f"state {netns} ") and thing.endswith(f" {reqid}"):
                source, destination, _ = thing.split()[2:]
                spi = self.spis.setdefault(f"{source} {destination} {reqid}", len(self.spis) + 1)
                packets = MOST_SPARSE * self.world.samples
                made = association(spi, source, destination, self.world.protected_bytes, packets=packets)
                found.append(msgspec.to_builtins(made))
        return found


def _policy(netns: str | None, selector: Sequence[str]) -> str:
    return f"policy {netns} {' '.join(selector)}"


def _state(netns: str | None, source: str, destination: str, reqid: str) -> str:
    return f"state {netns} {source} {destination} {reqid}"


def state_text(source: str, destination: str, *, spi: int, reqid: int) -> str:
    """One state as ``ip xfrm state list nokeys`` prints it (iproute2 6.1)."""
    return f"""src {source} dst {destination}
\tproto esp spi {spi:#010x} reqid {reqid} mode transport
\treplay-window 0 flag  (0x00000000)
\taead rfc4106(gcm(aes)) <<Keys hidden>> 128
\tanti-replay context: seq 0x0, oseq 0x52a1, bitmap 0x00000000
\tsel src 0.0.0.0/0 dst 0.0.0.0/0 uid 0
"""


def association(
    spi: int, source: str, destination: str, carried_bytes: int, *, packets: int | None = None, **more: Any
) -> SaCounters:
    """A security association as an xfrm listener tells of it; its packets are full frames."""
    packets = carried_bytes // 1400 if packets is None else packets
    whole: dict[str, Any] = {"spi": spi, "source": source, "destination": destination}
    whole |= {"bytes": carried_bytes, "packets": packets, "sequence": packets, "mode": "transport"}
    return SaCounters(**whole | {"algorithms": ("rfc4106(gcm(aes))",)} | more)
