"""What a machine needs for its part in a run, and what it has: packages.txt, and a check of the machine.

The check (``programs/facts.sh``) is plain sh, because the machine may lack everything else. It only reports
facts; ``harness/testbeds/doctor.py`` judges them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.hosts import Host, programs, releases, remote
from harness.hosts.footprint import module_name
from harness.hosts.packages import ALL, Package, command, listed
from harness.model import DEFAULT_TRANSPORT, TRANSPORTS, BackingKind
from harness.model.errors import CommandFailed, RequirementError
from harness.model.escape import printable
from harness.model.protections import PROTECTIONS, split_stack
from harness.model.units import unknown_name
from harness.parse.hosts import HostAddress
from harness.parse.profiles import DEFAULT_PROPOSAL, expand_ipsec, load_proposal
from harness.protection import kinds, xfrm
from harness.protection.kind import Protection
from harness.storage import transports

LOOK_DEADLINE_S = 60.0
"""Limit for connecting and checking, which takes a second or two."""

ALWAYS = ""
"""Stands for every run, where otherwise a need is named."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The transports and protections of a request, by the names of columns; by default those of `harness
    run`."""

    transports: tuple[str, ...] = (DEFAULT_TRANSPORT,)
    protections: tuple[str, ...] = (DEFAULT_PROPOSAL,)

    @property
    def kinds(self) -> list[Protection]:
        return kinds.each_of(self.protections)

    @property
    def needs(self) -> set[str]:
        """The needs of packages.txt."""
        return {ALWAYS, *self.transports, *(each.need for each in self.kinds)}

    def modules(self, role: str) -> tuple[str, ...]:
        """The kernel modules that it takes, by their names."""
        found = [name for each in self.transports for name in modules(role, each)]
        found += xfrm.MODULES if self.protections else ()
        found += [name for each in self.kinds for name in each.modules]
        return tuple(dict.fromkeys(map(module_name, found)))

    def ports(self, role: str) -> dict[int, str]:
        """The ports of UDP that have to be free, and for whom."""
        return {port: each.listener for each in self.kinds for port in each.ports.get(role, ())}


def asked_for(carried_by: Sequence[str], protected_by: Sequence[str]) -> Asked:
    """What the options of `harness run` ask for; empty for its default. UsageError if one is not known."""
    for name in carried_by:
        if name not in TRANSPORTS:
            raise unknown_name("transport", name, TRANSPORTS)
    words = expand_ipsec(protected_by or ["on"])
    names = tuple(dict.fromkeys(name for word in words for name in split_stack(word)))
    for name in names:
        if name not in PROTECTIONS:
            load_proposal(name)
    return Asked(transports=tuple(dict.fromkeys(carried_by)) or (DEFAULT_TRANSPORT,), protections=names)


# What is needed


def packages() -> list[Package]:
    """The system packages of the project, as listed in packages.txt."""
    return listed(ALL)


def modules(role: str, transport: str) -> tuple[str, ...]:
    """The kernel modules of a role for any kind of storage, in modprobe(8)'s words."""
    return transports.named(transport).modules(role, tuple(BackingKind))


# What there is


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """What was found on a machine, with its texts made harmless.

    ``families`` are os-release(5)'s ID and ID_LIKE, ``release`` its VERSION_ID and VERSION_CODENAME.
    ``python`` is the version, "" if there is none.
    ``modules``: the running kernel has no folder of these: "other" if another kernel has, else "absent".
    ``unshare`` is why no namespaces could be made, "" if they could. ``absent`` are words as asked.
    ``listeners`` are who listens on the UDP ports asked for, as far as it can be seen.
    ``interfaces`` are an interface and one of its addresses each. ``only_ipv4`` are those of them that have
    IPv6 switched off. ``busy`` are the runs that use the machine, by role; ``journals`` is what killed runs
    of each role left.
    """

    login: str
    is_root: bool
    kernel: str
    distribution: str
    families: tuple[str, ...]
    release: tuple[str, ...]
    python: str
    unshare: str
    absent: frozenset[str]
    modules: str
    listeners: tuple[str, ...]
    free_bytes: int | None
    interfaces: tuple[str, ...]
    only_ipv4: tuple[str, ...] = ()
    has_ipv6: bool = True
    busy: Mapping[str, str] = field(default_factory=dict)
    journals: tuple[str, ...] = ()

    def lacks(self, package: Package) -> bool:
        # Packages that bring no program are looked up by name on Debian; elsewhere their names mean nothing.
        is_word_known = package.shown_by != "-" or "debian" in self.families
        return is_word_known and package.word in self.absent


MARK = "harness-facts\n"
_JOURNAL = re.compile(r"agent-(\w+)-\d+\.jsonl")


def parse_facts(text: str) -> MachineFacts | None:
    """Facts from the output of ``facts.sh``, which follows the login shell's; None if it did not run."""
    _, mark, text = text.partition(MARK)
    if not mark:
        return None
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(printable(value).strip())

    def first(key: str) -> str:
        return next(iter(found.get(key, [])), "")

    busy = dict(line.partition(" ")[::2] for line in found.get("busy", []))
    interfaces = found.get("interface", [])
    addressed = {line.partition(" ")[0] for line in interfaces}
    roles = [match[1] for name in found.get("journal", []) if (match := _JOURNAL.fullmatch(name))]
    return MachineFacts(
        login=first("login"),
        is_root=first("uid") == "0",
        kernel=first("kernel"),
        distribution=first("distribution") or "an unknown distribution",
        families=tuple(first("family").split()),
        release=tuple(first("release").split()),
        python=first("python"),
        unshare=first("unshare"),
        absent=frozenset(found.get("absent", [])),
        modules=first("modules"),
        listeners=tuple(_listener(line) for line in found.get("listener", [])),
        free_bytes=int(first("free")) * 1024 if re.fullmatch("[0-9]{1,18}", first("free")) else None,
        interfaces=tuple(interfaces),
        only_ipv4=tuple(name for name in found.get("only-ipv4", []) if name in addressed),
        has_ipv6="no-ipv6" not in found,
        busy=busy,
        journals=tuple(role for role in roles if role not in busy),
    )


def _listener(line: str) -> str:
    process, _, name = line.partition(" ")
    return f"{name} (process {process})" if name else "a process"


SCRIPT = programs.path(__package__, "facts.sh")

# The user of a machine may or may not become root by sudo; the script reports what can be seen in either
# case. It is one line without an apostrophe, backslash or exclamation mark, because the login shell may be
# any.
_LAUNCH = (
    'if test $(id -u) -eq 0; then s=; elif sudo -n true </dev/null; then s="sudo -n"; else s=; fi; '
    'exec $s sh -s -- $(id -un) "$@"'
)


def look_at(address: HostAddress, name: str, words: Iterable[str]) -> tuple[MachineFacts, str]:
    """Facts of a machine, reached without the agent, and sudo's message if it refused.

    RequirementError with ssh's message if the machine cannot be reached.
    """
    command = ["sh", "-c", _LAUNCH, "sh", programs.PYTHON, *words]
    answer = remote.asked_once(remote.reaching(address, command), _script(), within_s=LOOK_DEADLINE_S)
    if answer is None:
        raise RequirementError(
            f"the {name} was reached, but did not answer within {LOOK_DEADLINE_S:g} s",
            hint="try ssh to it by hand",
        )
    said, errors = answer
    facts = parse_facts(said)
    if facts is None:
        raise remote.explain(name, f"{said}\n{errors}".strip() or "it said nothing")
    return facts, errors


def look_on(host: Host, words: Iterable[str]) -> MachineFacts:
    """Facts of a host that already runs commands."""
    argv = ["sh", "-s", "--", "", programs.PYTHON, *words]
    done = host.run(argv, input=_script(), timeout_s=LOOK_DEADLINE_S, check=False)
    facts = parse_facts(done.stdout)
    if facts is None:
        raise CommandFailed(
            f"the {host.name} did not report what it has: {printable(done.stderr.strip()[-200:])}"
        )
    return facts


def _script() -> str:
    return SCRIPT.read_text(encoding="utf-8")


# How it is installed


def install_command(facts: MachineFacts, missing: Sequence[Package]) -> str:
    """The command that installs packages on a machine. For a package without a known name it says what it
    provides."""
    return command(releases.named(facts.families), missing, is_root=facts.login == "root")


def wanted(role: str, needs: Collection[str]) -> list[Package]:
    """The packages that a role needs for any of ``needs``."""
    return [package for package in packages() if package.needed_by.get(role) in needs]
