"""LIO's targets, open-iscsi's records and sessions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.hosts import programs
from harness.storage.iscsi import initiator
from tests.unit.fakes.answers import DONE, Answer

if TYPE_CHECKING:
    from tests.unit.fakes import World

LIO, LOGOUT = (programs.source("harness.storage.iscsi", name) for name in ("lio", "logout"))


@dataclass
class Iscsi:
    """Things are ``backstore NAME``, ``target IQN``, ``node IQN`` and ``session IQN``."""

    world: World
    exported: dict[str, str] = field(default_factory=dict)
    """Serial number of what each target exports that there was, by its name."""
    sessions: list[str] = field(default_factory=list)
    """The IQN behind the kernel's session1, session2, …"""
    initiator: str = ""
    """By which sessions go."""
    ignored_commands: int = 0
    """How many records are made before iscsid has told where its configuration is."""

    def act(self, netns: str | None, argv: tuple[str, ...], text: str) -> Answer | None:
        del netns
        match argv:
            case ["/usr/bin/python3", "-I", "-S", "-c", program] if program == LIO:
                return self._lio(json.loads(text))
            case ["/usr/bin/python3", "-I", "-S", "-c", program] if program == LOGOUT:
                return self._logout(json.loads(text))
            case ["unshare", "--mount", "sh", "-euc", _, "sh", _, "iface.initiatorname", name, *_]:
                self.initiator = name
                return DONE
            case ["iscsiadm", "--mode", "node", "--targetname", iqn, "--portal", _, "--interface", _, *words]:
                return self._iscsiadm(iqn, words)
            case ["iscsiadm", *_]:
                return DONE
            case ["ls", initiator.SESSIONS]:
                return 0, "".join(f"session{n}\n" for n, _ in enumerate(self.sessions, 1)), ""
            case ["ls", path] if path.startswith(f"{initiator.SESSIONS}/"):
                return DONE  # nothing holds the disk
            case ["sh", "-c", initiator.LIST_DISKS, session]:
                return 0, f"{session}/target0:0:0/0:0:0:0/block/sda/queue\n", ""
        return None

    def text_of(self, path: str) -> str | None:
        if path == "/proc/net/unix":
            running = any(thing.startswith("daemon iscsid") for thing in self.world.things)
            return "@ISCSIADM_ABSTRACT_NAMESPACE" if running else ""
        if path.startswith(initiator.SESSIONS) and path.endswith("/targetname"):
            number = int(re.findall(r"session(\d+)/", path)[0])
            iqn = self.sessions[number - 1]
            is_up = f"session {iqn}" in self.world.things and iqn not in self.sessions[number:]
            return f"{iqn}\n" if is_up else ""
        if path.endswith("vpd_pg80"):
            (number,) = map(int, re.findall(r"/session(\d+)/", path))
            return self.exported[self.sessions[number - 1]]
        if path.endswith("/initiatorname"):
            return f"{self.initiator}\n"
        if path.endswith("/state"):
            is_up = any(thing.startswith("session ") for thing in self.world.things)
            return "LOGGED_IN\n" if is_up else ""
        return None

    def _lio(self, request: dict[str, Any]) -> Answer:
        kind = request["do"].partition("-")[2]
        thing = f"{kind} {request.get('name') or request['iqn']}"
        if request["do"].startswith("delete"):
            return self.world.remove_if_there(thing, DONE)
        if kind == "target":
            self.exported[request["iqn"]] = request["backstore"]
        self.world.make(thing)
        return DONE

    def _iscsiadm(self, iqn: str, words: list[str]) -> Answer:
        node, session = f"node {iqn}", f"session {iqn}"
        match words:
            case ["--op", "new"] if node not in self.world.things:
                self.world.make(node)
            case ["--op", "delete"]:
                return self.world.remove_if_there(node, (21, "", ""))
            case []:
                is_reported = self.ignored_commands == 0
                self.ignored_commands = max(0, self.ignored_commands - 1)
                return 0, f"# BEGIN RECORD 2.1.8\n{initiator.WITH_CHAP if is_reported else ''}\n", ""
            case ["--login"]:
                self.world.make(session)
                self.sessions.append(iqn)
        return DONE

    def _logout(self, request: dict[str, Any]) -> Answer:
        iqn = request["iqn"]
        self.world.remove_if_there(f"session {iqn}", DONE)
        return self.world.remove_if_there(f"node {iqn}", DONE)
