"""Turns what the user typed into a ``Plan``: everything is looked up and checked before anything is
touched."""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from harness.analysis.stats import FEWEST
from harness.hosts import runner
from harness.model import (
    CAPABILITIES,
    DEFAULT_TRANSPORT,
    IPV4,
    IPV6,
    ISCSI,
    LAB_INITIATORS,
    LINK_LOCAL,
    PRE_EXISTING,
    PROTECTION_OFF,
    SWANCTL,
    TRANSPORTS,
    Backing,
    BackingKind,
    Capabilities,
    Ciphers,
    Clock,
    Column,
    DiskProfile,
    Job,
    LabKernel,
    LinkProfile,
    Machines,
    OtherKernel,
    Plan,
    Proposal,
    Security,
    Setting,
    StoppingRule,
    Storage,
    TestbedKind,
    addresses,
)
from harness.model.errors import RequirementError, UsageError
from harness.model.kinds import TRANSPORTS as TRANSPORT_KINDS
from harness.model.protections import MADE, split_stack
from harness.model.units import (
    check_name,
    format_size,
    parse_duration_s,
    parse_percent,
    parse_size,
    shown,
    unknown_name,
)
from harness.parse import disks, parameters
from harness.parse.hosts import LOCAL
from harness.parse.jobfile import (
    SIZE_BOUND_CELL_S,
    about,
    job_file,
    load_jobs,
    moved_bytes,
    moves_read,
    shortened,
)
from harness.parse.profiles import (
    IPV6_TITLE,
    expand_ipsec,
    is_real,
    load_link,
    load_proposal,
    over_ip,
    overrides,
    real_link,
)
from harness.planning import axes, existing
from harness.planning.request import (
    DEFAULT_MAX_REPEATS,
    DEFAULT_SIZE,
    DEFAULT_VIRTUAL_DISK,
    Kernels,
    RunRequest,
)
from harness.results import rules
from harness.results.planned import default_file
from harness.testbeds import testbed
from harness.testbeds.lab.kernels import ciphers, kernel
from harness.version import __version__

DEFAULT_LINKS = (LINK_LOCAL, "wired", "wifi")
DEFAULT_VIRTUAL_SEED = 1
"""Virtual time is meant to be repeated, and so is the order, unless a seed is given."""


def make_plan(request: RunRequest) -> Plan:
    """Check and resolve a request. UsageError for the first thing that is wrong."""
    if request.smoke:
        runtime = request.runtime or "1s"
        request = msgspec.structs.replace(request, runtime=runtime, retries=0, probes=bool(request.probes))
    notes: list[str] = []
    runtime_s = None if request.runtime is None else parse_duration_s(request.runtime, what="runtime")
    profile, jobs = load_jobs(request.profile, notes, _measurable(request, runtime_s))
    jobs = picked(jobs, request.workloads)
    there = existing.find(request, jobs, notes)
    request, jobs = there.request, there.jobs
    jobs = axes.varied(
        jobs,
        depths=request.depths,
        blocks=request.blocks,
        numjobs=request.numjobs,
        notes=notes,
    )
    if request.hops:
        from harness.observe import hops  # here, because most runs have none

        for text in request.hops:
            hops.check(text)
    run_id = new_run_id()
    kind, machines = _testbed(request)
    capabilities = CAPABILITIES[kind, machines is not None]
    disk = _disk(request)
    backing, local_device = _storage(request, capabilities, run_id, there)
    texts = _texts(jobs, backing.size_bytes, runtime_s)
    columns, links, proposals = there.paths(columns_of(request, capabilities, machines), notes)
    lab_kernel = _lab_kernel(request, capabilities, links, disk, columns)
    other_kernel = _other_kernel(request) if lab_kernel is LabKernel.CUSTOM else None
    if lab_kernel is LabKernel.CUSTOM and any(link.radio for link in links.values()):
        release = other_kernel.release if other_kernel else None
        if request.kernels is not Kernels.PER_HOST and kernel.has_radios(release):
            columns, links = _on_the_air(columns, links, request.wifi_security)
        else:  # emulated, as on Debian's kernel
            links = {name: msgspec.structs.replace(link, radio=None) for name, link in links.items()}
    seed = DEFAULT_VIRTUAL_SEED if request.virtual_time else secrets.randbelow(2**31)
    plan = Plan(
        run_id=run_id,
        setting=Setting(
            testbed=kind,
            clock=Clock.VIRTUAL if request.virtual_time else Clock.REAL,
            lab_kernel=lab_kernel,
            other_kernel=other_kernel,
            ciphers=_ciphers(request, capabilities, lab_kernel),
            disk=disk.name if disk is not None else "",
        ),
        columns=columns,
        jobs=jobs,
        repeats=request.repeats,
        stop=_stopping_rule(request),
        retries=request.retries,
        seed=request.seed if request.seed is not None else seed,
        storage=Storage(
            backing=backing,
            disk=disk,
            local_device=local_device,
            shared_lun=request.shared_lun,
            black_box=there.black_box,
            volume=there.volume,
        ),
        links=links,
        proposals=proposals,
        ike_auth=request.auth,
        machines=machines,
        hops=request.hops,
        wifi_security=request.wifi_security,
        parameters={name: parameters.parse(name, typed) for name, typed in _parameters_typed(request)},
        # In virtual time processors cost nothing, and a run that must repeat exactly does nothing besides its
        # cells.
        probes=not request.virtual_time if request.probes is None else request.probes,
        profile=profile,
        notes=(
            *notes,
            *_cached(capabilities, there, backing, columns),
            *about(jobs, lambda job: _shortened(job, backing.size_bytes, runtime_s)),
            *about(
                jobs, lambda job: _sized(job, backing.size_bytes) if runtime_s is None else _unverified(job)
            ),
        ),
        overrides=tuple(_overrides(request, () if there.black_box else proposals, disk)),
        runtime_s=runtime_s,
        created_unix_s=time.time(),
        harness_version=__version__,
    )
    if request.cpu_costs is not None:
        # CPU costs come from explain, which no other run needs before its first fio.
        from harness.planning import simulated_cpu_costs

        plan = simulated_cpu_costs.charged(plan, request.cpu_costs)
    rules.check(plan)
    _try_job_files(texts)
    return plan


def _measurable(request: RunRequest, runtime_s: float | None) -> Callable[[Job], object] | None:
    """A check that a job fits on the storage and into ``--runtime``. None with a portal or a volume: their
    size is known only when they are found."""
    if request.portal is not None or request.volume is not None:
        return None
    storage = Backing(kind=BackingKind.FILE, size_bytes=parse_size(request.size or DEFAULT_SIZE))
    rules.check_size(storage)
    points = functools.partial(axes.varied, blocks=request.blocks, numjobs=request.numjobs, notes=[])
    points(())  # what was mistyped is no obstacle of the file

    def check(job: Job) -> None:
        if not request.workloads or job.name in request.workloads:
            _texts(points((job,)), storage.size_bytes, runtime_s)

    return check


def _overrides(request: RunRequest, proposals: Iterable[str], disk: DiskProfile | None) -> Iterator[str]:
    """The files of the user's that have the names of shipped ones."""
    links = (spec for spec in request.links or DEFAULT_LINKS if spec != LINK_LOCAL and not is_real(spec))
    named = {
        "link": [spec.partition(":")[0] for spec in links],
        "proposal": proposals,
        "disk": [request.disk or DEFAULT_VIRTUAL_DISK] if disk is not None else [],
        "CPU cost file": [request.cpu_costs] if request.cpu_costs is not None else [],
        "profile": [request.profile] if request.profile.endswith(".fio") else [],
    }
    for kind, names in named.items():
        yield from overrides(kind, names)


def new_run_id() -> str:
    """When it was planned, and a few random letters."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _stopping_rule(request: RunRequest) -> StoppingRule | None:
    """When a cell has been repeated often enough; None: after ``repeats``."""
    if request.confidence is None:
        for option, value in (("--max-repeats", request.max_repeats), ("--max-time", request.max_time)):
            if value is not None:
                raise UsageError(
                    f"{option} needs --confidence, but none was given",
                    hint="add --confidence 5%",
                )
        return None
    most = DEFAULT_MAX_REPEATS if request.max_repeats is None else request.max_repeats
    fewest = max(FEWEST, request.repeats)
    if not fewest <= most <= rules.MOST_REPEATS:
        raise UsageError(
            f"expected --max-repeats from {fewest} to {rules.MOST_REPEATS}, found {most}",
            hint=f"fewer than {FEWEST} repeats cannot bound a median with 95 % confidence",
        )
    return StoppingRule(
        width=parse_percent(request.confidence, what="--confidence"),
        max_repeats=most,
        max_s=None if request.max_time is None else parse_duration_s(request.max_time, what="--max-time"),
    )


def picked(jobs: tuple[Job, ...], names: Sequence[str]) -> tuple[Job, ...]:
    known = {job.name: job for job in jobs}
    for name in names:
        if name not in known:
            raise unknown_name("workload", name, known)
    return tuple(known[name] for name in dict.fromkeys(names)) or jobs


def _testbed(request: RunRequest) -> tuple[TestbedKind, Machines | None]:
    """Where to measure, and the machines if there are any."""
    apart = request.kernels is Kernels.PER_HOST
    named = request.target or request.portal or request.volume
    if named is None:
        if request.initiators:
            raise UsageError(
                "--initiator needs --target, but none was named", hint="add --target ssh://root@HOST or local"
            )
        kind = testbed.choose(request.testbed)
        capabilities = CAPABILITIES.get((kind, apart))
        if capabilities is None or capabilities.has_machines:
            what = "--kernels per-host is for the lab" if apart else "real machines need --target"
            raise UsageError(f"{what}, found --testbed {kind}", hint="leave one out")
        most = capabilities.most_initiators
        if not 1 <= request.lab_initiators <= most:
            raise UsageError(
                f"expected 1 to {most} initiators with {capabilities.typed}, found {request.lab_initiators}",
                hint=f"without --kernels per-host the lab has up to {LAB_INITIATORS}, in one kernel",
            )
        if not apart:
            return kind, None
        others = [f"ssh://initiator{number}" for number in range(2, request.lab_initiators + 1)]
        return kind, Machines(target="ssh://target", initiators=(LOCAL, *others))
    if request.testbed not in (testbed.AUTO, TestbedKind.MACHINES):
        raise UsageError(
            f"expected --target or --testbed, found both: {named}, {request.testbed}",
            hint="leave one out",
        )
    if apart or request.lab_initiators != 1:
        raise UsageError("--kernels and --lab-initiators are for the lab, but a target was named")
    initiators = request.initiators or (LOCAL,)
    return TestbedKind.MACHINES, Machines(target=request.target, initiators=initiators)


def _disk(request: RunRequest) -> DiskProfile | None:
    """The modelled disk that was asked for, or the default of virtual time."""
    if request.disk is not None and request.backing is not None:
        raise UsageError(
            f"expected --disk or --backing, found {request.disk} and {request.backing}", hint="leave one out"
        )
    if request.disk is not None:
        return disks.load_disk(request.disk)
    return disks.load_disk(DEFAULT_VIRTUAL_DISK) if request.virtual_time and request.backing is None else None


def _lab_kernel(
    request: RunRequest,
    capabilities: Capabilities,
    links: Mapping[str, LinkProfile],
    disk: DiskProfile | None,
    columns: Sequence[Column],
) -> LabKernel | None:
    """The kernel that the lab boots; None outside the lab, unless one is asked for, which ``rules`` refuses.

    RequirementError if the options need the custom kernel and it has not been built.
    """
    is_auto = request.lab_kernel == testbed.AUTO
    if not capabilities.boots_kernels and is_auto:
        return None
    if request.lab_kernel == LabKernel.DEBIAN:
        return LabKernel.DEBIAN
    if not is_auto or request.virtual_time or disk is not None:
        if capabilities.boots_kernels and _other_kernel(request) is None:
            kernel.custom_kernel()
        return LabKernel.CUSTOM
    # Debian's has no 802.11, and not all that columns take: there radios are emulated, and such columns are
    # skipped. Kernels per host share no air.
    has_radio = any(link.radio is not None for link in links.values())
    wants_own = (has_radio and request.kernels is not Kernels.PER_HOST) or any(
        column.needs_custom_kernel for column in columns
    )
    if wants_own:
        with contextlib.suppress(RequirementError):
            kernel.custom_kernel()
            return LabKernel.CUSTOM
    return kernel.usual()


def _other_kernel(request: RunRequest) -> OtherKernel | None:
    """The one of the lab's custom kernels that was named, or the one with CPU costs; None for the default
    one."""
    is_named = request.lab_kernel not in (testbed.AUTO, *LabKernel)
    if not is_named and request.cpu_costs is None:
        return None
    built = kernel.named(request.lab_kernel).built if is_named else kernel.with_costs()
    return OtherKernel(key=built.key, release=built.release, commit=built.commit)


def _ciphers(request: RunRequest, capabilities: Capabilities, lab_kernel: LabKernel | None) -> Ciphers | None:
    """What the lab's kernel encrypts with: generic code, too, if the processor lacks an instruction, or if
    nobody has built the processor's ciphers for Debian's kernel."""
    if not capabilities.boots_kernels:
        return Ciphers.GENERIC if request.cipher_driver is Ciphers.GENERIC else None
    if kernel.lacking_instructions() or (lab_kernel is LabKernel.DEBIAN and ciphers.cached() is None):
        return Ciphers.GENERIC
    return request.cipher_driver


def _on_the_air(
    columns: Sequence[Column], links: Mapping[str, LinkProfile], security: Security
) -> tuple[tuple[Column, ...], dict[str, LinkProfile]]:
    """Columns and links. Links over simulated radios get the name of their security; with WPA2, wifi stays
    wifi."""
    shown_as = security if security is Security.OPEN else security.upper()
    found, names = {}, {LINK_LOCAL: LINK_LOCAL}
    for name, link in links.items():
        if link.radio is not None:
            link = msgspec.structs.replace(
                link,
                name=name if security is Security.WPA2 else check_name("link", f"{name}-{security}"),
                title=f"WiFi (hwsim, {shown_as})" + (IPV6_TITLE if link.ip == IPV6 else ""),
            )
        found[link.name], names[name] = link, link.name
    return tuple(msgspec.structs.replace(each, link=names[each.link]) for each in columns), found


def _storage(
    request: RunRequest, capabilities: Capabilities, run_id: str, there: existing.Existing
) -> tuple[Backing, Backing | None]:
    """The target's storage, and the initiator's own disk for the column ``local`` if one was named."""
    wanted = request.backing
    if wanted is None:
        # On a user's machine the safe default is a new file, which cannot be mistaken for a disk.
        wanted = f"file:{default_file(run_id)}" if capabilities.has_machines else "ramdisk"
    backing = there.backing or parse_backing(wanted, request.size or DEFAULT_SIZE, request.destroy)
    local_device = None
    if request.local_device is not None:
        local_device = parse_backing(request.local_device, request.size or DEFAULT_SIZE, request.destroy)
    asked = {b.destroy for b in (backing, local_device) if b is not None}
    for name in request.destroy:
        if name not in asked:
            raise UsageError(
                f"--destroy {name} allows the run to overwrite a block device, but it uses none of this name",
                hint="name it as --backing, --local-device or --volume does"
                + (f", or the LUN: {there.black_box.unit}" if there.black_box is not None else ""),
            )
    return backing, local_device


def _cached(
    capabilities: Capabilities, there: existing.Existing, backing: Backing, columns: Sequence[Column]
) -> Iterator[str]:
    """That LIO reads a target's file through the page cache, while ``local`` opens it with O_DIRECT."""
    past = (f" or --transport {name}" for name, kind in TRANSPORT_KINDS.items() if not kind.page_cache)
    is_own_file = there.backing is None and backing.kind is BackingKind.FILE and capabilities.has_machines
    if is_own_file and any(column.transport == ISCSI for column in columns):
        yield (
            "over iSCSI, reads of a file come from the target's page cache, local reads its disk; to read "
            f"the disk in both, --backing block:/dev/NAME{''.join(past)}"
        )


def _counts(initiators: int) -> list[int]:
    """1, 2, 4 … and all: how many initiators take part in a column."""
    return sorted({*(1 << power for power in range(initiators.bit_length())), initiators})


def columns_of(
    request: RunRequest, capabilities: Capabilities, machines: Machines | None
) -> tuple[tuple[Column, ...], dict[str, LinkProfile], dict[str, Proposal]]:
    """The matrix's columns, in the order of the article: first without IPsec, then with."""
    links: dict[str, LinkProfile] = {}
    local = False
    if capabilities.has_machines and not request.links:
        raise UsageError(
            "expected the interfaces of the initiator to measure over, found none",
            hint="try --link local --link wired=eth0; `harness doctor` with the same --initiator lists them",
        )
    for spec in request.links or DEFAULT_LINKS:
        if spec == LINK_LOCAL:
            local = True
            continue
        if is_real(spec) is not capabilities.has_machines:
            raise UsageError(
                f"link {shown(spec)}: expected an interface with real machines (wired=eth0), and an emulated "
                "link with the other testbeds (wired)",
                hint="with --target, name interfaces; without, leave =INTERFACE out",
            )
        named = real_link(spec) if is_real(spec) else load_link(spec)
        for profile in _families(named, request.ip):
            if links.get(profile.name, profile) != profile:
                raise UsageError(
                    f"two different links are called {profile.name}", hint="rename the file of one of them"
                )
            links[profile.name] = profile
    protections = _protections(request)
    names = dict.fromkeys(name for protection in protections for name in protection)
    proposals = {name: load_proposal(name) for name in names if name not in (*MADE, PRE_EXISTING)}
    columns = [Column(LINK_LOCAL)] if local else []
    carried_by = _transports(request)
    columns += [
        Column(link, protection, transport, count, profile.ip, request.ipsec_mode)
        for protection in protections
        for link, profile in links.items()
        for transport in carried_by
        for count in _counts(len(machines.initiators) if machines else request.lab_initiators)
    ]
    for option, is_asked in (
        ("--transport", request.transports),
        ("--ipsec", (request.ipsec or request.protect) and names),
    ):
        if is_asked and not links:
            raise UsageError(
                f"{option} needs a network, but the only link is {LINK_LOCAL}",
                hint=f"add --link wired, or leave {option} out",
            )
    return tuple(columns), links, proposals


def _families(profile: LinkProfile, asked: Sequence[str]) -> list[LinkProfile]:
    """A link with each version of IP that is asked for. An address that is named decides between two."""
    families = [IPV6 if version == "6" else IPV4 for version in dict.fromkeys(asked)] or [IPV4]
    if profile.portal is not None and len(families) > 1:
        families = [addresses.family_of(profile.portal)]
    return [over_ip(profile, family) for family in families]


def _transports(request: RunRequest) -> tuple[str, ...]:
    """The transports over each link."""
    for name in request.transports:
        if name not in TRANSPORTS:
            raise unknown_name("transport", name, TRANSPORTS)
    found = tuple(dict.fromkeys(request.transports)) or (DEFAULT_TRANSPORT,)
    for transport, typed in _parameters_typed(request):
        if transport not in found:
            option = f"--{TRANSPORT_KINDS[transport].option}"
            raise UsageError(
                f"{option} {typed[0]} is for {TRANSPORTS[transport]}, found --transport {' '.join(found)}",
                hint=f"add --transport {transport}, or leave {option} out",
            )
    return found


def _parameters_typed(request: RunRequest) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each transport whose sessions shall have some, with what was typed."""
    for name, kind in TRANSPORT_KINDS.items():
        if kind.option and (typed := getattr(request, kind.option)):
            yield name, typed


def _protections(request: RunRequest) -> tuple[tuple[str, ...], ...]:
    """The columns' protections: each stack once, in the order asked. The empty stack is for none."""
    words = expand_ipsec([*request.ipsec, *request.protect] or ["both"])
    if request.portal is not None and not {*words} <= {PRE_EXISTING, PROTECTION_OFF}:
        raise UsageError(
            f"expected --protect {PRE_EXISTING}, {SWANCTL}FILE or {PROTECTION_OFF} with --portal, because "
            f"nothing can be set up there, found {', '.join(words)}",
            hint=f"leave it out: {PRE_EXISTING} is the default",
        )
    if request.portal is None and PRE_EXISTING in words:
        raise UsageError(
            f"--protect {PRE_EXISTING} needs --portal, but none was named",
            hint="name a black-box target, or a protection that the run brings up",
        )
    return tuple(dict.fromkeys(split_stack(word) for word in words))


def parse_backing(text: str, size: str, destroy: Sequence[str] = ()) -> Backing:
    """``ramdisk``, ``file``, ``file:PATH`` or ``block:PATH`` (or just the path of a device), and its size.

    ``destroy`` are the names of the devices whose contents the user agreed to lose.
    """
    kind, _, path = text.partition(":")
    if text.startswith("/dev/"):
        kind, path = "block", text
    if kind not in list(BackingKind):
        raise unknown_name("backing", text, [*BackingKind, "file:PATH", "block:/dev/NAME"])
    agreed = path if kind == BackingKind.BLOCK and path in destroy else None
    found = Backing(kind=BackingKind(kind), size_bytes=parse_size(size), path=path or None, destroy=agreed)
    rules.check_backing(found)
    return found


def _texts(jobs: Sequence[Job], size_bytes: int, runtime_s: float | None) -> dict[str, str]:
    """A job file of each, as on a storage of this size. UsageError with all that do not fit there."""
    texts, refused = {}, []
    for job in jobs:
        try:
            texts[job.name] = job_file(
                job, device="/dev/harness", size_bytes=size_bytes, seed=1, runtime_s=runtime_s
            )
        except UsageError as error:
            refused.append(error)
    _require_none(refused)
    return texts


def _require_none(refused: Sequence[UsageError]) -> None:
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise UsageError(
            f"expected workloads that can be measured here, found {len(refused)} that cannot",
            hint=refused[0].hint,
            obstacles=[error.message for error in refused],
        )


def _try_job_files(texts: Mapping[str, str]) -> None:
    """Let fio read every job file, so that a mistake shows now and not in the middle of a run."""
    parse = functools.partial(runner.run, ["fio", "--parse-only", "-"], check=False)
    # fio takes a seventh of a second to start, so it reads them one by one only to find those it refuses.
    if parse(input="".join(texts.values())).status == 0:
        return
    refused = []
    for name, text in texts.items():
        done = parse(input=text)
        if done.status != 0:
            words = (done.stderr.strip() or done.stdout.strip()).splitlines()
            # Last it says that the job is dropped, and of a typo what may be meant.
            reasons = [line for line in words if not re.search("^Did you mean | dropped$", line)]
            refused.append(
                UsageError(
                    f"fio does not accept the workload {name}: {'; '.join(reasons) or 'it gave no reason'}",
                    hint="`fio --cmdhelp=OPTION` explains an option",
                )
            )
    _require_none(refused)


def _shortened(job: Job, size_bytes: int, runtime_s: float | None) -> str | None:
    """That a job would use more than the storage has."""
    if (words := shortened(job, size_bytes)) is None:
        return None
    options = dict(job.options)
    is_cut = runtime_s is None and "runtime" in options and "time_based" not in options
    ends = f"; a cell may end before its runtime of {options['runtime']}" if is_cut else ""
    return f"{words}, because the storage has no more{ends}"


def _sized(job: Job, size_bytes: int) -> str | None:
    """That a job ends with its size, which on a small storage is soon."""
    moved = moved_bytes(job, size_bytes)
    if not moved or "runtime" in dict(job.options):
        return None
    return (
        f"has no runtime, so a cell ends after {format_size(moved)}, and fails if that takes longer than "
        f"{SIZE_BOUND_CELL_S / 60:.0f} min; --runtime 10s measures for that time"
    )


def _unverified(job: Job) -> str | None:
    """That --runtime leaves no time for what fio verifies after the last write (its init.c warns of it)."""
    options = dict(job.options)
    verifies = options.get("verify") and options.get("do_verify") != "0" and "verify_backlog" not in options
    if not verifies or "time_based" in options or moves_read(job):
        return None
    return "verifies nothing, because it writes for all of --runtime; without that option it does"
