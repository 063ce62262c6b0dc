"""NBD's exports and connections."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.hosts import programs
from tests.unit.fakes.answers import DONE, Answer, asked

if TYPE_CHECKING:
    from tests.unit.fakes import World

PROGRAMS = [programs.source("harness.storage.nbd", name) for name in ("target", "initiator")]
AGREED = {"max_sectors_kb": "128", "nr_requests": "128", "connections": "1", "read_only": "0"}


@dataclass
class Nbd:
    """Things are ``export NAME`` and ``nbd BACKEND``."""

    world: World
    connected: list[str] = field(default_factory=list)
    """The backend of nbd0, nbd1, …"""

    def act(self, netns: str | None, argv: tuple[str, ...], text: str) -> Answer | None:
        """Both programs: they are distinguished by what they are asked to do."""
        del netns
        if argv == ("nbdkit", "--version"):
            return DONE
        if (request := asked(argv, text, PROGRAMS)) is None:
            return None
        export, connection = f"export {request.get('export')}", f"nbd {request.get('backend')}"
        match request["do"]:
            case "create":
                self.world.make(export)
            case "delete":
                return self.world.remove_if_there(export, DONE)
            case "connect":
                if export not in self.world.things:
                    return 4, "", "Connection refused"
                self.connected.append(request["backend"])
                self.world.make(connection)
            case "tell":
                disk = f"nbd{self.connected.index(request['backend'])}"
                return 0, json.dumps({"disk": disk, "agreed": AGREED}), ""
            case "disconnect":
                return self.world.remove_if_there(connection, DONE)
        return DONE

    def text_of(self, path: str) -> str | None:
        """A file of a disk's."""
        if (disk := re.match(r"/sys/block/nbd(\d+)/", path)) is None:
            return None
        backend = self.connected[int(disk[1])]
        if f"nbd {backend}" not in self.world.things:
            return ""
        return {"pid": "77\n", "backend": f"{backend}\n"}.get(path.rpartition("/")[2], "262144\n")


OFFERED = (Nbd,)
