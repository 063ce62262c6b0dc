"""Machines between the ends, routers and switches with a shell: reached over ssh, and only read. A package
beside this module has those that answer another protocol (``HopScheme``).

A hop needs sh, cat and Linux's /proc, which the smallest router has, and no root. The harness sends only
commands there, one after the other, to one shell, which ends with the connection. A hop that is lost costs
only its own counters.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import select
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from harness.hosts import ReadableHost, runner
from harness.hosts.remote import HELLO_DEADLINE_S, SSH_FAILURES, explain, reaching
from harness.hosts.runner import Completed
from harness.model.errors import HopLost, RequirementError
from harness.model.escape import printable
from harness.model.kinds import offered
from harness.observe.counters import NET_DEV, STAT, InterfaceReader
from harness.parse.hosts import HostAddress, parse_address

ANSWER_S = 10.0
"""How long a hop may take to answer. One that forwards at its limit answers late, but it answers."""

LARGEST_ANSWER_BYTES = 4 << 20
END_S = 2.0

NEEDS = "a hop needs sh, cat and Linux's /proc: leave it out if it lacks them"
FAILURES = (*SSH_FAILURES, ("not found", NEEDS), ("No such file", NEEDS))


class Hop(ReadableHost):
    """A machine between the ends. ``address`` is for people: where it is."""

    def __init__(self, name: str, address: str, argv: Sequence[str], log: Path) -> None:
        self.name = name
        self.address = address
        self.lost: str | None = None
        """Why it is gone, once it is."""
        # Random, so that nothing in a file can look like the end of an answer.
        self._mark = f"harness-{secrets.token_hex(8)}"
        self.dialogue = runner.PipedProgram(argv, log)

    @property
    def kernel(self) -> object:
        return self

    def run(self, argv: Sequence[str], *, timeout_s: float = ANSWER_S, check: bool = True) -> Completed:
        """Run a program there; HopLost if it does not answer. Its standard error goes to ssh's log."""
        status, said = self._ask(shlex.join(argv), timeout_s)
        done = Completed(argv=tuple(argv), status=status, stdout=said, stderr="")
        return done.require_success() if check else done

    def read_files(self, paths: Sequence[str]) -> list[str]:
        heading = f"{self._mark}-file\n"
        script = f'for f in {shlex.join(paths)}; do echo {heading.strip()}; cat "$f" 2>/dev/null; done'
        _, said = self._ask(script, ANSWER_S)
        texts = said.split(heading)[1:]
        if len(texts) != len(paths):
            raise self._gone(f"expected the texts of {len(paths)} files, found {len(texts)}")
        return texts

    def close(self) -> None:
        """End the shell there, by closing its input."""
        self.lost = self.lost or "it was closed"
        self.dialogue.end(END_S)
        self.dialogue.output.close()

    def _ask(self, command: str, timeout_s: float) -> tuple[int, str]:
        """The output of a command of the shell, between the marks, and its exit status."""
        if self.lost is not None:
            raise self._gone(self.lost)
        begin, end = f"{self._mark}\n", f"\n{self._mark} "
        line = f"echo {self._mark}; {{ {command}\n}} </dev/null; printf '\\n%s %s\\n' {self._mark} $?\n"
        try:
            self.dialogue.input.write(line.encode("utf-8", "surrogateescape"))
            self.dialogue.input.flush()
        except OSError:
            raise self._gone("the connection ended") from None
        text = self._await(end.encode(), time.monotonic() + timeout_s)
        # Before the first answer comes whatever a login shell prints.
        said, _, status = text.partition(begin)[2].partition(end)
        if not re.fullmatch(r"[0-9]{1,3}\n", status):
            raise self._gone(f"its shell answered with {printable(text[-80:])}")
        return int(status), said

    def _await(self, end: bytes, deadline: float) -> str:
        """What comes until the whole line that begins with ``end``."""
        data = b""
        while not (end in data and data.endswith(b"\n")):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.dialogue.output], [], [], left)[0]:
                raise self._gone("it did not answer in time")
            more = os.read(self.dialogue.output.fileno(), 1 << 16)
            if not more:
                raise self._gone("the connection ended")
            data += more
            if len(data) > LARGEST_ANSWER_BYTES:
                raise self._gone("its answer did not end")
        return data.decode("utf-8", "replace")

    def _gone(self, why: str) -> HopLost:
        if self.lost is None:
            self.lost = why
            self.dialogue.kill()
        return HopLost(f"the {self.name} ({self.address}) was lost: {self.lost}")


class AskedHop(InterfaceReader, Protocol):
    """A hop without a shell: ``facts`` are for the record, ``summary`` for people."""

    address: str
    lost: str | None

    @property
    def facts(self) -> Mapping[str, object]: ...

    @property
    def summary(self) -> str: ...


class HopScheme(NamedTuple):
    """A protocol that hops answer, by the scheme of their addresses: ``check`` raises UsageError for a wrong
    one, ``connect`` takes an address and a name, and does what ``connect`` below does."""

    scheme: str
    check: Callable[[str], None]
    connect: Callable[[str, str], AbstractContextManager[AskedHop]]


@functools.cache
def schemes() -> dict[str, HopScheme]:
    return {each.scheme: each for each in offered(__package__, within="")}


def _scheme_of(text: str) -> HopScheme | None:
    return schemes().get(text.partition(":")[0])


def check(text: str) -> None:
    """UsageError for what is no address of a hop."""
    scheme = _scheme_of(text)
    if scheme is None:
        parse_address(text, "hop")
    else:
        scheme.check(text)


def reached(text: str, *, name: str, log: Path) -> AbstractContextManager[Hop | AskedHop]:
    """A hop while the context lasts, over ssh or as the scheme of its address says; as ``connect``."""
    scheme = _scheme_of(text)
    if scheme is None:
        return connect(parse_address(text, "hop"), name=name, log=log)
    return scheme.connect(text, name)


@contextlib.contextmanager
def connect(address: HostAddress, *, name: str, log: Path) -> Iterator[Hop]:
    """A hop while the context lasts. RequirementError if it cannot be reached or read."""
    hop = Hop(name, address.text, reaching(address, ["sh"]), log)
    with contextlib.closing(hop):
        try:
            hop.run(["true"], timeout_s=HELLO_DEADLINE_S)
            stat, net_dev = hop.read_files([STAT, NET_DEV])
        except HopLost as lost:
            raise explain(
                f"{name} ({address.text})", hop.dialogue.said() or hop.lost or "", FAILURES
            ) from lost
        absent = [file for file, text in ((STAT, stat), (NET_DEV, net_dev)) if not text.strip()]
        if absent:
            raise RequirementError(
                f"the {name} ({address.text}) was reached, but {' and '.join(absent)} cannot be read there",
                hint=NEEDS,
            )
        yield hop


def names(count: int) -> list[str]:
    """The names of this many hops for people, starting at the initiator's side."""
    return ["hop", *(f"hop{number}" for number in range(2, count + 1))][:count]
