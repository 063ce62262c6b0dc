"""LIO's targets, open-iscsi's records and sessions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.hosts import programs
from tests.unit.fakes.answers import DONE, Answer, asked

if TYPE_CHECKING:
    from tests.unit.fakes import World

LIO, SESSION = (programs.source("harness.storage.iscsi", name) for name in ("lio", "session"))
SESSIONS = "/sys/class/iscsi_session"


@dataclass
class Iscsi:
    """Things are ``backstore NAME``, ``target IQN``, ``node IQN`` and ``session IQN``."""

    world: World
    exported: dict[str, str] = field(default_factory=dict)
    """Serial number of what each target exports that there was, by its name."""
    sessions: list[str] = field(default_factory=list)
    """The IQN behind the kernel's session1, session2, …"""

    def act(self, netns: str | None, argv: tuple[str, ...], text: str) -> Answer | None:
        del netns
        if (request := asked(argv, text, (LIO, SESSION))) is None:
            return None
        return self._lio(request) if argv[-1] == LIO else self._session(request)

    def text_of(self, path: str) -> str | None:
        if path == "/proc/net/unix":
            running = any(thing.startswith("daemon iscsid") for thing in self.world.things)
            return "@ISCSIADM_ABSTRACT_NAMESPACE" if running else ""
        if path.endswith("vpd_pg80"):
            (number,) = map(int, re.findall(r"/session(\d+)/", path))
            return self.exported[self.sessions[number - 1]]
        if path.endswith("/state"):
            return "LOGGED_IN\n" if any(thing.startswith("session ") for thing in self.world.things) else ""
        return None

    def _lio(self, request: dict[str, Any]) -> Answer:
        kind = request["do"].partition("-")[2]
        thing = f"{kind} {request.get('name') or request.get('serial') or request['iqn']}"
        if request["do"].startswith("delete"):
            return self.world.remove_if_there(thing, DONE)
        if kind == "target":
            self.exported[request["iqn"]] = request["backstore"]
        self.world.make(thing)
        return DONE

    def _session(self, request: dict[str, Any]) -> Answer:
        iqn = request["iqn"]
        match request["do"]:
            case "connect":
                self.world.make(f"node {iqn}")
                self.world.make(f"session {iqn}")
                self.sessions.append(iqn)
            case "tell":
                session = f"{SESSIONS}/session{len(self.sessions) - self.sessions[::-1].index(iqn)}"
                disk = f"{session}/device/target0:0:0/0:0:0:0/block/sda"
                return 0, json.dumps({"session": session, "disk": disk, "agreed": {}}), ""
            case "disconnect":
                self.world.remove_if_there(f"session {iqn}", DONE)
                return self.world.remove_if_there(f"node {iqn}", DONE)
        return DONE
