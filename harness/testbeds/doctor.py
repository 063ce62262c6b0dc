"""What works here and on the machines of a run: every missing requirement at once, and how to get it."""

from __future__ import annotations

import enum
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import Host, NamespaceHost, programs, releases, remote
from harness.hosts import packages as further_packages
from harness.hosts.footprint import module_name
from harness.hosts.journal import Journal
from harness.hosts.packages import Package
from harness.hosts.state import lasting_folder
from harness.model import TRANSPORTS, LabKernel, Plan, temporary
from harness.model.errors import HarnessError, RequirementError
from harness.model.escape import printable
from harness.model.kinds import HOPS
from harness.model.kinds import TRANSPORTS as TRANSPORT_KINDS
from harness.model.protections import PROTECTIONS
from harness.model.units import format_size
from harness.network import links
from harness.network.paths.switches import kind as switches
from harness.observe import counters, hops
from harness.parse.profiles import data_folder
from harness.protection import kinds
from harness.storage import backing, transports
from harness.testbeds import selftest
from harness.testbeds.entry_points import RESULTS
from harness.testbeds.lab import boot
from harness.testbeds.lab.boot import sandbox
from harness.testbeds.lab.boot.scratch import DISK_FOLDERS, MEMORY_FOLDERS, MIB, roomy_folder
from harness.testbeds.lab.kernels import ciphers, kernel
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.participants import Participant
from harness.testbeds.requirements import (
    ALWAYS,
    Asked,
    MachineFacts,
    install_command,
    look_at,
    look_on,
    modules,
    packages,
    wanted,
)

AS_BY_DEFAULT = Asked()
HOST_MODULES = (
    *(*AS_BY_DEFAULT.modules("target"), *backing.MODULES, *AS_BY_DEFAULT.modules("initiator")),
    *(*links.MODULES, *switches.MODULES, *links.HALF_DUPLEX_MODULES),
)
OLDEST_PYTHON = (3, 9)
CONTROLLER = "here"


class FindingState(enum.StrEnum):
    """``note``: nothing is wrong, but the user should know it."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


OK, NOTE, MISSING = FindingState


@dataclass(frozen=True)
class Finding:
    """One finding about a testbed or a machine.

    ``mend`` is a command or advice, empty if there is nothing to do. ``tried``: doctor found it by trying.
    """

    where: str
    state: FindingState
    text: str
    mend: str = ""
    tried: bool = False

    @property
    def ok(self) -> bool:
        return self.state is not MISSING


# This machine, with the lab or its own kernel


def missing_packages() -> list[Package]:
    """The missing packages of the lab and of `make`."""
    facts = _local_facts()
    return [package for package in packages() if _is_for_here(package, facts) and facts.lacks(package)]


def _is_for_here(package: Package, facts: MachineFacts) -> bool:
    if package.word == KERNEL_WORD and (not _has_package(facts) or kernel.usual() is LabKernel.CUSTOM):
        return False  # the custom kernel takes its place
    # As installed from a package there is nothing to make.
    roles = {"lab", "make"} if (data_folder() / "Makefile").exists() else {"lab"}
    return not package.needed_by.keys().isdisjoint(roles)


KERNEL_WORD = f"program:{boot.KERNEL}"
"""What shows that Debian's kernel is installed."""


def _has_package(facts: MachineFacts) -> bool:
    """Whether the distribution has a package of a user-mode kernel. One that is not known may have."""
    system = releases.named(facts.families)
    return system is None or system.names_of(("user-mode-linux",)) != ()


def _system_finding(facts: MachineFacts) -> Finding:
    system = releases.named(facts.families)
    release = system.release(facts.release) if system is not None else None
    state, mend = NOTE, ""
    if system is None:
        text, mend = "the names of its packages are unknown", "add a file to releases/"
    elif release is None:
        text = f"this release of {system.title} was not tried, but the names of its packages are known"
    elif not release.was_tried:
        text = f"the names of the packages of {release.title} are known, but the harness was not tried on it"
    else:
        state, text = OK, f"the harness was tried on {release.title}"
    return Finding(CONTROLLER, state, f"{facts.distribution}: {text}", mend)


def _local_facts() -> MachineFacts:
    words = [package.word for package in packages()] + [f"module:{name}" for name in HOST_MODULES]
    return look_on(NamespaceHost("machine"), words)


def findings() -> Iterator[Finding]:
    """Check everything that the testbeds need; one finding each. Nothing is changed."""
    facts = _local_facts()
    yield _system_finding(facts)
    yield _packages_finding("both", [each for each in packages() if _is_for_here(each, facts)], facts)
    yield from _lab_findings()
    yield _kernel_finding(facts)
    yield from _ciphers_findings(facts)
    yield _paths_finding()
    yield _host_finding(facts)


def _lab_findings() -> Iterator[Finding]:
    for what, check in (
        ("namespaces hold the lab together and confine it", lambda: sandbox.wrapper([])),
        ("a folder for its memory", lambda: roomy_folder(boot.BASE_MEMORY_BYTES, MEMORY_FOLDERS)),
        ("a folder for its files", lambda: roomy_folder(MIB, DISK_FOLDERS)),
    ):
        try:
            found = check()
        except HarnessError as error:
            yield _refused("lab", error)
        else:
            detail = "" if isinstance(found, list) else f": {found}"
            yield Finding("lab", OK, what + detail)


BOOT_DEADLINE_S = 60.0
TRIAL = f"test $(id -u) = 0 && echo it writes > {RESULTS}/trial && ip link add name v0 type veth peer name v1"
"""What a run needs of a lab that has booted: root in it, its folder of results, and network interfaces."""


def try_lab(state: Path) -> Finding:
    """Boot the lab, and see whether it can write to its folder of results. Nothing stays of it.

    Call this while holding the testbed, whose folder is ``state``.
    """
    journal = Journal(state / "journal-doctor.jsonl", lasting=lasting_folder())
    console = state / "lab-doctor.log"
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(dir=roomy_folder(MIB, DISK_FOLDERS)) as results,
            boot.booted(
                ["sh", "-c", TRIAL],
                journal=journal,
                console=console,
                results=Path(results),
                kernel=kernel.custom_kernel() if kernel.usual() is LabKernel.CUSTOM else None,
            ) as booted,
        ):
            booted.process.wait(BOOT_DEADLINE_S)
            wrote = (Path(results) / "trial").exists()
            status, words = booted.exit_status(), booted.last_words()
    except HarnessError as error:
        return _refused("lab", error)
    except subprocess.TimeoutExpired:
        text = f"it did not boot within {BOOT_DEADLINE_S:g} s"
        return Finding("lab", MISSING, text, "check what keeps the processor busy", tried=True)
    finally:
        journal.end()
        console.unlink(missing_ok=True)
    took_s = time.monotonic() - began
    if status == 0 and wrote:
        text = f"it boots and writes to its results folder ({took_s:.1f} s)"
        return Finding("lab", OK, text, tried=True)
    what = "it ended before its command did" if status is None else f"its command ended with status {status}"
    text = f"expected the lab to boot and write to its results folder, but {what}: {words}"
    mend = "docs/lab-kernel.md says what the kernel needs"
    if words == boot.FORBIDS_PTRACE:
        text = words
        mend = f"allow it: sysctl kernel.yama.ptrace_scope=1 on the machine; {sandbox.CONTAINERS}"
    return Finding("lab", MISSING, text, mend, tried=True)


def _kernel_finding(facts: MachineFacts) -> Finding:
    build = "harness kernel build"
    is_needed = (
        KERNEL_WORD in facts.absent and not _has_package(facts) and kernel.usual() is not LabKernel.CUSTOM
    )
    state = MISSING if is_needed else NOTE
    why = ""
    if is_needed:
        why = "this system has no package user-mode-linux, so the lab needs a kernel of its own; "
    if absent := sources.absent_packages():
        names = ", ".join(package.name for package in absent)
        text = f"{why}the custom kernel cannot be built without {names}"
        mend = f"{further_packages.install_command(absent)} && {build}"
        return Finding("kernel", state, text, mend)
    found = kernel.cached(kernel.recipe())
    if found is None:
        declared = (*PROTECTIONS.values(), *TRANSPORT_KINDS.values())
        titles = [each.title for each in declared if each.needs_custom_kernel]
        purposes = f"real WiFi, {', '.join(titles)}, modelled disks and virtual time"
        text = f"{why}the custom kernel, for {purposes}, is not built"
        return Finding("kernel", state, text, build)
    text = f"the custom kernel {found.built.release} is built: {found.folder}"
    return Finding("kernel", OK, text)


def _ciphers_findings(facts: MachineFacts) -> Iterator[Finding]:
    """A note where Debian's kernel would encrypt with generic code on a processor that could do better."""
    if KERNEL_WORD in facts.absent or not ciphers.are_possible() or ciphers.cached() is not None:
        return
    mend = ciphers.COMMAND
    if absent := further_packages.missing(ciphers.PACKAGES):
        mend = f"{further_packages.install_command(absent)} && {mend}"
    text = f"{ciphers.WHAT} are not built, so IPsec in the lab uses generic code, which is slower"
    yield Finding("kernel", NOTE, text, mend)


def _paths_finding() -> Finding:
    listed = further_packages.listed(further_packages.PATHS)
    of_kinds = [(kind, each) for each in listed if (kind := each.purpose.partition(":")[0]) in HOPS]
    absent = [each for _, each in of_kinds if not each.installed]
    if absent:
        names = ", ".join(map(str, absent))
        titles = " or ".join(dict.fromkeys(HOPS[kind].title for kind, _ in of_kinds))
        text = f"links with {titles} will be skipped; packages are missing: {names}"
        mend = further_packages.install_command(absent)
        return Finding("both", NOTE, text, mend)
    return Finding("both", OK, "the packages of all links with hops are installed")


def _host_finding(facts: MachineFacts) -> Finding:
    if os.geteuid() != 0:
        text = "only root can use this machine's own kernel"
        return Finding("host", MISSING, text, "use the lab, or run as root with --testbed host")
    absent = _absent_modules(facts, HOST_MODULES)
    if absent:
        text = f"this machine's kernel lacks {', '.join(absent)}"
        return Finding("host", MISSING, text, "use the lab, or a kernel with these modules")
    return Finding("host", OK, "this machine's kernel has all modules")


# The machines of a run


def machine_findings(taking_part: Sequence[Participant], asked: Asked = AS_BY_DEFAULT) -> Iterator[Finding]:
    """Check everything that the machines need for the request, and try what they have.

    Each may be out of reach. What is tried is undone again.
    """
    yield from _controller_findings(taking_part)
    for machine in taking_part:
        role = machine.role
        listed = wanted(role, {what for p in packages() if (what := p.needed_by.get(role)) is not None})
        names = {*(name for each in TRANSPORTS for name in modules(role, each)), *asked.modules(role)}
        words = [package.word for package in listed]
        words += [f"module:{name}" for name in sorted(set(map(module_name, names)))]
        words += [f"udp:{port}" for port in asked.ports(role)]
        try:
            facts, said = look_at(machine.address, machine.name, words)
        except HarnessError as error:
            yield _refused(machine.name, error)
            continue
        found = list(judge(machine, facts, said, asked))
        yield from found
        if all(finding.ok for finding in found):
            yield from _try_out(machine, facts, asked)


def _controller_findings(taking_part: Sequence[Participant]) -> Iterator[Finding]:
    needs = {"several"} if sum(machine.role == "initiator" for machine in taking_part) > 1 else set()
    if not all(machine.address.is_local for machine in taking_part):
        needs.add(ALWAYS)
    asked = wanted("controller", needs)
    if not asked:
        return
    facts = look_on(NamespaceHost("machine"), [package.word for package in asked])
    if not (found := _packages_finding(CONTROLLER, asked, facts)).ok:
        yield found


def _try_out(machine: Participant, facts: MachineFacts, asked: Asked) -> Iterator[Finding]:
    """Try a run's parts on a machine that lacks nothing, unless that would interfere with a run."""
    if facts.busy or machine.role in facts.journals:
        return
    try:
        with (
            temporary.folder() as folder,
            machine.reached("harness doctor", folder / "log") as host,
        ):
            outcomes = list(selftest.of(host, machine.role, folder, asked))
    except HarnessError as error:
        yield _refused(machine.name, error)
        return
    for outcome in outcomes:
        if outcome.error is not None:
            text = f"{outcome.what} was tried and failed: {outcome.error.message}"
            yield Finding(machine.name, MISSING, text, outcome.error.hint or "")
    went_well = [outcome.what for outcome in outcomes if outcome.error is None]
    if went_well:
        text = f"tried and undone: {', '.join(went_well)}"
        yield Finding(machine.name, OK, text, tried=True)


def hop_findings(addresses: Sequence[str]) -> Iterator[Finding]:
    """Whether each hop answers, and what it reports; nothing is changed on any."""
    for address, name in zip(addresses, hops.names(len(addresses)), strict=True):
        try:
            with (
                temporary.folder() as folder,
                hops.reached(address, name=name, log=folder / "log") as hop,
            ):
                text = _reported_by(hop)
        except HarnessError as error:
            yield _refused(name, error)
        else:
            yield Finding(name, OK, f"{address}: {text}")


def _reported_by(hop: hops.Hop | hops.AskedHop) -> str:
    if not isinstance(hop, hops.Hop):
        return hop.summary
    login = hop.run(["id", "-un"], check=False).stdout.strip() or "a user"
    stat, net_dev, release = hop.read_files([counters.STAT, counters.NET_DEV, "/proc/sys/kernel/osrelease"])
    interfaces = sorted(counters.traffic(net_dev).keys() - {counters.LOOPBACK})
    energy = "yes" if counters.energy_files(hop) else "n/a"
    return (
        f"reached as {printable(login)}; Linux {printable(release.strip())}; "
        f"processors: {len(counters.processors({counters.STAT: stat}, 0).ticks)}; energy: {energy}; "
        f"interfaces: {', '.join(map(printable, interfaces)) or 'none'}"
    )


def judge(
    machine: Participant, facts: MachineFacts, said: str = "", asked: Asked = AS_BY_DEFAULT
) -> Iterator[Finding]:
    """All findings about a machine. ``said`` is what sudo answered there, if it refused."""
    where, role = machine.name, machine.role

    rank = "" if facts.login == "root" else ", who may use sudo" if facts.is_root else ""
    yield Finding(
        where,
        OK,
        f"{machine.address.text}: reached as {facts.login}{rank}; {facts.distribution}, Linux {facts.kernel}",
    )
    if not facts.is_root:
        last = printable((said.strip().splitlines() or ["sudo: refused"])[-1])
        yield Finding(where, MISSING, f"expected root's rights: {last}", remote.advice(last))
    needs = asked.needs
    optional = {what: [p for p in wanted(role, {what}) if facts.lacks(p)] for what in OPTIONAL}
    others = list(itertools.chain(*optional.values()))
    yield from _part_findings(where, role, facts, needs, asked.modules(role), others=others)
    if others:
        # One command for a machine: if anything has to be installed, that command includes it all.
        is_reported = any(facts.lacks(package) for package in wanted(role, needs))
        lost = (
            f"without {', '.join(package.name for package in missing)}, {OPTIONAL[what]}"
            for what, missing in optional.items()
            if missing
        )
        text = f"not every run needs these: {'; '.join(lost)}"
        yield Finding(
            where,
            NOTE,
            f"{text}; the command above also installs them" if is_reported else text,
            "" if is_reported else install_command(facts, others),
        )
    if facts.busy:
        runs = ", ".join(f"run {run} ({as_role})" for as_role, run in facts.busy.items())
        yield Finding(where, NOTE, f"it is in use by {runs}", "wait for it")
    elif facts.listeners and asked.ports(role):
        yield _taken_port(where, facts.listeners, asked.ports(role))
    if role in facts.journals:
        yield Finding(
            where,
            NOTE,
            "a killed run left some of its resources there; the next run removes them",
            "harness clean with the same --target and --initiator",
        )
    if role == "target" and facts.free_bytes is not None:
        yield Finding(where, OK, f"{format_size(facts.free_bytes)} are free in /var/tmp, for --backing file")
    if facts.interfaces:
        yield Finding(where, OK, f"interfaces: {', '.join(facts.interfaces)}")
    for text in _not_possible(role, facts, asked):
        yield Finding(where, NOTE, f"not needed by every run: {text}")


def _not_possible(role: str, facts: MachineFacts, asked: Asked) -> Iterator[str]:
    """What a machine's kernel cannot do that was not asked for."""
    for transport in TRANSPORTS:
        if transport not in asked.transports and (absent := _absent_modules(facts, modules(role, transport))):
            yield f"without the kernel modules {', '.join(absent)}, --transport {transport} is not possible"
    if not facts.has_ipv6:
        yield "without IPv6 in the kernel, --ip 6 is not possible"
    elif facts.only_ipv4:
        yield f"IPv6 is switched off (disable_ipv6), so no --ip 6 over {', '.join(facts.only_ipv4)}"


OPTIONAL = {
    "cert": "--auth cert is not possible",
    "wifi": "--link wifi=IFACE is not possible",
    "record": "the record has fewer details",
    "probes": "some probes are skipped",
}
"""What a run loses without a package that not every run needs, by its word in packages.txt."""


def require(host: Host, role: str, plan: Plan) -> None:
    """The same of a plan."""
    made = plan.columns if plan.sees_target else ()
    protections = dict.fromkeys(name for column in made for name in column.protection)
    asked = Asked(transports=plan.transports, protections=tuple(protections))
    require_all(host, role, asked, kinds.loaded_first(plan))


def require_all(host: Host, role: str, asked: Asked, loaded_first: Sequence[str] = ()) -> None:
    """RequirementError naming all that a host lacks for its role in what is asked, and how to get it.

    A process that listens on a port that a protection needs counts as well. The kernel may lack one of
    several transports: its columns are skipped. ``loaded_first`` are modules that protections need.
    """
    needs, ports, needed = asked.needs, asked.ports(role), tuple(loaded_first)
    if len(asked.transports) == 1:
        needed += transports.named(asked.transports[0]).modules(role, ())
    words = [package.word for package in wanted(role, needs)]
    words += [f"module:{module_name(each)}" for each in needed]
    words += [f"udp:{port}" for port in ports]
    facts = look_on(host, words)
    problems = [
        finding for finding in _part_findings(host.name, role, facts, needs, needed) if not finding.ok
    ]
    if ports and facts.listeners:
        problems.append(_taken_port(host.name, facts.listeners, ports))
    if problems:
        raise RequirementError(
            f"the {host.name} is not ready: {'; '.join(problem.text for problem in problems)}",
            hint=f"there: {'; '.join(problem.mend for problem in problems)}",
        )


def _part_findings(
    where: str,
    role: str,
    facts: MachineFacts,
    needs: Collection[str],
    needed: Sequence[str],
    *,
    others: Sequence[Package] = (),
) -> Iterator[Finding]:
    """Packages, Python and namespaces that a role needs for any of ``needs``; ``needed`` are kernel modules.

    The command that installs missing packages installs ``others`` with them.
    """

    yield _packages_finding(where, wanted(role, needs), facts, others)
    if facts.python and tuple(map(int, facts.python.split("."))) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding(
            where,
            MISSING,
            f"expected {programs.PYTHON} of version {oldest} or later, found {facts.python}",
            "use a newer release of its distribution",
        )
    if facts.is_root and facts.unshare and "program:unshare" not in facts.absent:
        yield Finding(
            where, MISSING, f"no namespaces can be made: {facts.unshare}", remote.advice(facts.unshare)
        )
    absent = _absent_modules(facts, dict.fromkeys(needed))
    if absent:
        text = f"its kernel {facts.kernel} lacks {', '.join(absent)}"
        yield Finding(where, MISSING, text, _modules_advice(facts))
    elif "program:modprobe" not in facts.absent:
        yield Finding(where, OK, "its kernel has all modules")


def _modules_advice(facts: MachineFacts) -> str:
    if facts.modules == "other":
        return f"there is no /lib/modules/{facts.kernel}, only another kernel's: reboot if it was updated"
    if facts.modules:
        return f"there is no /lib/modules/{facts.kernel}: install its modules, or leave the container"
    sudo = "" if facts.login == "root" else "sudo "
    # Ubuntu packages rarely used modules separately; Debian's cloud kernel has no LIO at all.
    if "ubuntu" in facts.families:
        return f"{sudo}apt-get install linux-modules-extra-{facts.kernel}"
    if "debian" in facts.families and "-cloud-" in facts.kernel:
        arch = facts.kernel.rpartition("-")[2]
        return f"{sudo}apt-get install linux-image-{arch}, then boot that kernel"
    return "use a kernel that has these modules"


def _absent_modules(facts: MachineFacts, names: Iterable[str]) -> list[str]:
    return [name for name in map(module_name, names) if f"module:{name}" in facts.absent]


def _taken_port(where: str, listeners: Sequence[str], ports: Mapping[int, str]) -> Finding:
    needed = " or ".join(f"{port}, which {whose} needs" for port, whose in ports.items())
    text = f"{', '.join(listeners)} uses UDP port {needed}"
    return Finding(where, MISSING, text, "move it to another port, or leave that protection out")


def _packages_finding(
    where: str, asked: Sequence[Package], facts: MachineFacts, others: Sequence[Package] = ()
) -> Finding:
    missing = [package for package in asked if facts.lacks(package)]
    if not missing:
        return Finding(where, OK, f"all {len(asked)} packages are installed")
    text = "packages are missing: " + ", ".join(f"{p.name} ({p.purpose})" for p in missing)
    return Finding(where, MISSING, text, install_command(facts, [*missing, *others]))


def _refused(where: str, error: HarnessError) -> Finding:
    return Finding(where, MISSING, error.message, error.hint or "")
