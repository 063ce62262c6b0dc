"""NVMe/TCP's subsystems and connections."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.hosts import programs
from tests.unit.fakes.answers import DONE, Answer, asked

if TYPE_CHECKING:
    from tests.unit.fakes import World

PROGRAMS = [programs.source("harness.storage.nvme", name) for name in ("target", "initiator")]
AGREED = {"transport": "tcp", "queue_count": "2", "sqsize": "127", "in_capsule_bytes": "16384"}
AGREED |= {"max_transfer_bytes": "0", "max_sectors_kb": "1280"}


@dataclass
class Nvme:
    """Things are ``subsystem NQN`` and ``connection NQN``."""

    world: World
    exported: dict[str, str] = field(default_factory=dict)
    """Serial number of what each subsystem exports that there was, by its name."""
    connected: list[str] = field(default_factory=list)
    """The NQN behind nvme0, nvme1, …"""

    def act(self, netns: str | None, argv: tuple[str, ...], text: str) -> Answer | None:
        """Both programs: they are distinguished by what they are asked to do."""
        del netns
        if (request := asked(argv, text, PROGRAMS)) is None:
            return None
        export, connection = f"subsystem {request['nqn']}", f"connection {request['nqn']}"
        match request["do"]:
            case "create":
                self.exported[request["nqn"]] = request["serial"]
                self.world.make(export)
            case "connect":
                if export not in self.world.things:
                    return 4, "", "Connection refused"
                self.connected.append(request["nqn"])
                self.world.make(connection)
            case "tell":
                number = self.connected.index(request["nqn"])
                reported = {"controller": f"nvme{number}", "disk": f"nvme{number}n1", "agreed": AGREED}
                return 0, json.dumps(reported), ""
            case "disconnect":
                return self.world.remove_if_there(connection, DONE)
            case "delete":
                return self.world.remove_if_there(export, DONE)
        return DONE

    def text_of(self, path: str) -> str | None:
        """A file of a controller's or its disk's."""
        if "/nvme" not in path:
            return None
        nqn = self.connected[int(re.findall(r"/nvme(\d+)", path)[0])]
        if f"connection {nqn}" not in self.world.things:
            return ""
        answers = {"state": "live\n", "subsysnqn": f"{nqn}\n", "serial": f"{self.exported[nqn]}  \n"}
        return answers.get(path.rpartition("/")[2], "262144\n")


OFFERED = (Nvme,)
