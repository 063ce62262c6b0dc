"""A connection of the user's to a responder that is not the run's, from a swanctl.conf(5): up for a while,
and gone.

It is in a charon of the run's own. The user's is not asked: ``swanctl --load-all`` makes a daemon forget each
connection that is not in its file. So nothing is loaded there, and what is there stays.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep
from harness.model.errors import CommandFailed, HarnessError, UsageError
from harness.model.escape import printable
from harness.protection import xfrm
from harness.protection.ipsec import IKE_DEADLINE_S, MODULES, NOT_YET_STATES, charon
from harness.protection.xfrm_listener import REQID

PLUGINS = (
    f"{charon.BASE_PLUGINS} constraints md4 md5 sha1 des xcbc cmac ctr ccm chapoly curve25519 gmp mgf1 "
    "eap-identity eap-md5 eap-mschapv2 eap-tls xauth-generic"
)
"""What users' connections ask for. None that changes the machine (resolve, updown, attr), and charon goes on
without those that are not installed."""

CONFIGURATION = "swanctl.conf"
LOAD = """
mount --bind "$1/swanctl.conf" /etc/swanctl/swanctl.conf
mount --bind "$1" /run
exec swanctl --load-all --noprompt --uri unix:///run/charon.vici
"""
"""For sh(1), in a mount namespace of its own. AppArmor's profile of swanctl allows these paths alone, and
next to them it looks for certificates and keys."""

_WORD = re.compile(r'#.*|"(?:\\.|[^"\\])*"|[{}\n]|[^\s{}#"]+')
_INCLUDE = re.compile(r"^\s*include\s.*$", re.MULTILINE)
_OF_PLUGINS = ("plugin ", "no files found matching")
"""Beginnings of lines that swanctl prints for each plugin that it does without."""


class ConnectionAssociations(msgspec.Struct, frozen=True):
    """The states and policies that charon makes for the connection of a path, whatever their ends.

    charon removes its own when it ends; this removes what a killed charon left.
    """

    index: int

    def acquire(self, host: Host) -> None:
        """Nothing to do: charon makes them."""

    def undo(self) -> tuple[UndoStep, ...]:
        return (
            UndoStep(
                ("ip", "xfrm", "policy", "deleteall", "priority", str(xfrm.POLICY_PRIORITY + self.index))
            ),
            UndoStep(
                ("ip", "xfrm", "state", "deleteall", "reqid", str(REQID + self.index)),
                absent=NOT_YET_STATES,
            ),
        )


def children(text: str) -> list[tuple[str, str]]:
    """The children of a swanctl.conf(5), each after its connection."""
    found, sections, line = [], [], [""]
    is_new = True
    for word in _WORD.findall(text):
        if word == "{":
            # A section may take settings from others, which stand behind a colon.
            sections.append(line[0].partition(":")[0])
            if len(sections) == 4 and (sections[0], sections[2]) == ("connections", "children"):
                found.append((sections[1], sections[3]))
        elif word == "}":
            del sections[-1:]
        elif word != "\n" and not word.startswith("#"):
            line = [word] if is_new else [*line, word]
            is_new = False
            continue
        is_new = True
    return list(dict.fromkeys(found))


def _chosen(text: str, file: str, wanted: str) -> tuple[str, str]:
    """The connection and the child that are meant: the only one, or that of this name."""
    known = children(text)
    found = [each for each in known if wanted in ("", each[1])]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{child} of {connection}" for connection, child in known) or "none"
    raise UsageError(
        printable(f"expected one child of a connection in {file}, found {names}"),
        hint=printable(f"name one: swanctl:{file}#{known[0][1]}")
        if known
        else "name the file that has the connection itself: included files are not read",
    )


def _configuration(text: str, chosen: tuple[str, str], index: int) -> str:
    """The user's, where no child starts by itself, and whose chosen one is the run's (``reqid``)."""
    own = f"reqid = {REQID + index}\npriority = {xfrm.POLICY_PRIORITY + index}\n"
    sections = [
        f"connections {{\n{connection} {{\nchildren {{\n{child} {{\nstart_action = none\n"
        f"{own if (connection, child) == chosen else ''}}}\n}}\n}}\n}}\n"
        for connection, child in children(text)
    ]
    # A later setting replaces an earlier one of the same section.
    return "\n".join([text, *sections])


@contextlib.contextmanager
def up(host: Host, named: str, *, index: int, journal: Journal, folder: Path, log: Path) -> Iterator[None]:
    """Bring up a child of the user's file on a host while the context lasts; ``named`` is the file there,
    with ``#CHILD`` if it has several.

    ``folder`` there is for charon's socket and configuration. UsageError if the file does not say what to
    bring up, CommandFailed with charon's reason if it does not come up.
    """
    file, _, wanted = named.partition("#")
    (text,) = host.read_files([file])
    if not text.strip():
        raise UsageError(
            printable(f"expected a swanctl.conf(5) on the {host.name}, found nothing to read at {file}"),
            hint="name it by its whole path: --protect swanctl:/etc/swanctl/conf.d/nas.conf",
        )
    text = _INCLUDE.sub("", text)
    chosen = connection, child = _chosen(text, file, wanted)
    with contextlib.ExitStack() as stack:
        host.run(["modprobe", "--all", *MODULES])
        stack.enter_context(journal.hold(host, ConnectionAssociations(index)))
        own = stack.enter_context(charon.running(host, folder, log=log, plugins=PLUGINS))
        host.write_secret(folder / CONFIGURATION, _configuration(text, chosen, index))
        done = host.run(["unshare", "--mount", "sh", "-euc", LOAD, "sh", str(folder)], check=False)
        if done.status != 0:
            lines = [line for line in done.stderr.splitlines() if not line.startswith(_OF_PLUGINS)]
            raise CommandFailed(printable(f"swanctl does not load {file}: {' / '.join(lines[-3:])}"))
        stack.callback(_end, own, connection)
        try:
            own.ask(
                "initiate",
                {"child": child.strip('"'), "ike": connection.strip('"'), "timeout": 1000 * IKE_DEADLINE_S},
                within_s=IKE_DEADLINE_S + 10,
            )
        except CommandFailed as error:
            raise CommandFailed(
                printable(f"{child} of {file} does not come up: {error.message}"),
                hint=error.hint or "see the log of the other end",
            ) from error
        yield


def _end(own: charon.Charon, connection: str) -> None:
    # A charon that does not answer ends anyway, and ConnectionAssociations removes what it leaves.
    with contextlib.suppress(HarnessError):
        own.ask("terminate", {"ike": connection.strip('"'), "timeout": 5000})
