"""What can be planned: the ranges of a plan's figures, and what of it cannot go together.

Who makes a plan (``planning``) and who reads one ask the same, because somebody else may have written that:
it may hold nothing that could not have been typed, no option of fio, no word of charon's configuration, no
file. Each rule belongs to the field that it is about, and raises UsageError, with what to type instead.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable

from harness.model import (
    CAPABILITIES,
    HARNESS_SOURCE,
    IPV4,
    IPV6,
    LINK_LOCAL,
    MOST_INITIATORS,
    TRANSPORTS,
    Backing,
    BackingKind,
    LinkProfile,
    Plan,
    kinds,
    probing,
)
from harness.model.errors import UsageError
from harness.model.escape import printable
from harness.model.protections import IKE_SETTINGS, PROTECTIONS, check_stack
from harness.model.units import LARGEST, check_name, format_size, shown, unknown_name
from harness.parse import jobfile, profiles

MIB = 1 << 20
SMALLEST_BACKING_BYTES = 16 * MIB
LARGEST_RAM_BACKING_BYTES = 8 << 30
MOST_REPEATS = 1000
MOST_COLUMNS = 64
MOST_PATHS = 256
"""Columns times their initiators: each has an address of its own in the lab."""

MOST_WORKLOADS = 2000
MOST_HOPS = 16
MOST_LUNS = 1 << 14
"""In the flat space of SAM-5, section 4.7.7.3."""

LONGEST_S = LARGEST / 1e9

RANGES = (
    ("repeats", 1, MOST_REPEATS, "--repeats 3"),
    ("retries", 0, 10, "--retries 2"),
    ("runtime_s", 0.1, 86_400, "--runtime 5s"),
    ("seed", 0, LARGEST, "--seed 1"),
    ("created_unix_s", 0, LONGEST_S, ""),
    ("stop.width", 1e-32, 1, "--confidence 5%"),
    ("stop.max_repeats", 1, MOST_REPEATS, "--max-repeats 30"),
    ("stop.max_s", 0, LONGEST_S, "--max-time 30m"),
)
"""Figures of a plan: the least, the most, and what to type instead."""


def _figure(field: str, least: float, most: float, typed: str, plan: Plan) -> None:
    group, _, name = field.rpartition(".")
    of = getattr(plan, group) if group else plan
    value = None if of is None else getattr(of, name)
    if value is not None and not least <= value <= most:
        raise UsageError(
            f"expected {name} from {least:.15g} to {most:.15g}, found {shown(str(value))}",
            hint=f"try {typed}",
        )


def _same(found: object, expected: object) -> None:
    if found != expected:
        raise UsageError(f"expected {shown(str(expected))}, found {shown(str(found))}")


def _refuse(above: str, key: str, message: str, hint: str) -> UsageError:
    return UsageError(f"{above}{key}: {message}", hint=hint)


def _columns(plan: Plan) -> None:
    if not 1 <= len(plan.columns) <= MOST_COLUMNS:
        raise UsageError(
            f"expected at most {MOST_COLUMNS} columns, found {len(plan.columns)}",
            hint="use fewer links or proposals",
        )
    if sum(column.initiators for column in plan.columns) > MOST_PATHS:
        raise UsageError(
            f"expected at most {MOST_PATHS} paths (initiators of all columns), found more",
            hint="use fewer links, proposals or initiators, or measure them in several runs, which "
            "`harness table` shows together",
        )


def _sections(plan: Plan) -> None:
    """What this harness does not know of it does not measure either (``sections.require``)."""
    if len(plan.sections) > 1:
        raise UsageError(f"expected one section, found {shown(', '.join(plan.sections))}")
    section = None
    if plan.sections:
        from harness.results import sections  # here and below, because most plans have none

        section = sections.of_plan(plan)
    if not plan.probing and bool(plan.sections) is (section is not None):
        has_open_loop = section is not None and section.has_open_loop
        _same({jobfile.is_open_loop(job) for job in plan.jobs}, {has_open_loop})
    if section is not None:
        section.check(plan)


def _cells(plan: Plan) -> None:
    _same({*plan.cells} <= {(column, job.name) for column in plan.columns for job in plan.jobs}, True)


def _parameters(plan: Plan) -> None:
    if not plan.parameters:
        return
    from harness.parse import parameters

    for transport, asked in plan.parameters.items():
        if transport not in TRANSPORTS:
            raise unknown_name("transport", transport, TRANSPORTS)
        _same(parameters.parse(transport, [f"{name}={value}" for name, value in asked.items()]), asked)


def _column_names(plan: Plan) -> None:
    """Each column is of what the plan describes, and says of IP and ESP what its link and the plan say."""
    own = {LINK_LOCAL if plan.storage.volume is None else plan.storage.volume.column.link}
    links, protections = {*own, *plan.links}, {*PROTECTIONS, *plan.proposals}
    for column in plan.columns:
        has_path = column.link not in own
        for name, names in ((column.link, links), *((each, protections) for each in column.protection)):
            if name not in names:
                raise UsageError(f"expected a name that the plan describes, found {shown(name)}")
        if (column.transport is not None) is not has_path:
            raise UsageError(f"expected a transport over each link and none without, found {column.label}")
        # What is found on the way to a portal is as it is.
        if plan.sees_target:
            check_stack(column.protection)
            _same(
                any(PROTECTIONS[name].pre_existing for name in column.protection if name in PROTECTIONS),
                False,
            )
        _same(column.ip, plan.links[column.link].ip if has_path else IPV4)
        _same(column.mode, plan.ipsec_mode if column.has_ipsec else None)
        if not has_path and (column.protection or plan.probing):
            raise UsageError("the local disk has no path to protect or to probe, found some")


def _initiators(plan: Plan) -> None:
    machines, kernels = plan.machines, plan.capabilities.boots_kernels
    most = len(machines.initiators) if machines is not None else plan.capabilities.most_initiators
    for column in plan.columns:
        if not 1 <= column.initiators <= most:
            raise UsageError(f"expected 1 to {most} initiators, found {shown(str(column.initiators))}")
    if machines is None:
        return
    from harness.parse.hosts import LOCAL, parse_address

    if len(set(machines.initiators)) != most or not 1 <= most <= MOST_INITIATORS:
        raise UsageError(
            f"expected up to {MOST_INITIATORS} different initiators, found {', '.join(machines.initiators)}",
            hint="each machine can be one initiator",
        )
    if kernels:
        others = [f"ssh://initiator{number}" for number in range(2, most + 1)]
        _same((machines.target, *machines.initiators), ("ssh://target", LOCAL, *others))
    _same(machines.target is None, not plan.sees_target)
    if machines.target is not None:
        parse_address(machines.target, "target")
    for text in machines.initiators:
        parse_address(text, "initiator")


def _workloads(plan: Plan) -> None:
    if not 1 <= len(plan.jobs) + len(plan.probing) <= MOST_WORKLOADS:
        raise UsageError(f"expected 1 to {MOST_WORKLOADS} workloads or probes")
    for job in plan.jobs:
        jobfile.check_job(job)
    for probe in plan.probing:
        probing.check(probe)


def _wifi(plan: Plan) -> None:
    if kinds.RADIOS is None:
        return  # they are not made here
    over_wifi = sum(
        column.initiators
        for column in plan.columns
        if column.link in plan.links and plan.links[column.link].radio is not None
    )
    if over_wifi > kinds.RADIOS.most_paths:
        raise UsageError(
            f"expected at most {kinds.RADIOS.most_paths} paths over WiFi, found {over_wifi}",
            hint="use fewer links, proposals or initiators",
        )


def check_size(backing: Backing) -> None:
    """UsageError for storage of an impossible size."""
    size = backing.size_bytes
    if size % MIB or not SMALLEST_BACKING_BYTES <= size <= LARGEST:
        raise UsageError(
            f"expected a size in whole MiB from {format_size(SMALLEST_BACKING_BYTES)} on, "
            f"found {shown(str(size))} bytes",
            hint="try --size 128M",
        )


def check_backing(backing: Backing) -> None:
    """UsageError for impossible storage: by its size, or by its path."""
    _same(backing.offset_bytes, 0)
    check_size(backing)
    size, path, kind = backing.size_bytes, backing.path, backing.kind
    if kind is not BackingKind.BLOCK and path is None and size > LARGEST_RAM_BACKING_BYTES:
        raise UsageError(
            f"expected at most {format_size(LARGEST_RAM_BACKING_BYTES)} for storage in memory, "
            f"found {format_size(size)}",
            hint="try --size 1G",
        )
    if kind is BackingKind.RAMDISK and path is not None:
        raise UsageError(
            f"expected a ramdisk without a path, found {shown(path)}", hint="try --backing ramdisk"
        )
    if path is None and kind is not BackingKind.BLOCK:
        return
    if path is None or not (path.startswith("/") and path.isprintable()):
        raise UsageError(
            f"expected the absolute path of a {kind} backing, all of it printable, "
            f"found {shown(path or 'none')}",
            hint="try --backing block:/dev/NAME or --backing file:/var/tmp/bench.img",
        )
    if backing.destroy not in (None, path):
        raise UsageError(f"expected consent for {path}, found it for {shown(backing.destroy or '')}")


def _backing(plan: Plan) -> None:
    backing = plan.storage.backing
    if not plan.sees_target:
        # It is there, and has no path here. Whoever writes to it has named it twice.
        black_box, volume = plan.storage.black_box, plan.storage.volume
        name = black_box.unit if black_box is not None else volume.path if volume is not None else None
        _same((backing.kind is BackingKind.RAMDISK, backing.path), (False, None))
        _same(backing.destroy in (None, name), True)
        _same(backing.destroy is not None and backing.kind is not BackingKind.BLOCK, False)
        _same((backing.offset_bytes >= 0, backing.offset_bytes % MIB), (True, 0))
        check_size(backing)
        return
    check_backing(backing)
    if backing.path is not None and plan.capabilities.boots_kernels:
        raise UsageError(
            f"{backing.path} is on this machine, so the lab would measure the machine's page cache",
            hint="as root, use --testbed host; or let the lab make the storage: --backing ramdisk or file",
        )
    several = max((column.initiators for column in plan.columns), default=1) > 1
    if several and backing.kind is BackingKind.BLOCK and not plan.storage.shared_lun:
        raise UsageError(
            "several initiators need a LUN each, but a block device is only one",
            hint="add --shared-lun to let all of them read it, or use --backing file:/PATH",
        )


def _shared_lun(plan: Plan) -> None:
    writing = [job.name for job in plan.jobs if jobfile.moves_write(job)]
    if plan.storage.shared_lun and writing:
        raise UsageError(
            f"a shared LUN is read-only, but {', '.join(writing[:3])} would write to it",
            hint="choose reading workloads with --workload",
        )


def _local_device(plan: Plan) -> None:
    device = plan.storage.local_device
    if device is None:
        return
    if not plan.capabilities.has_machines:
        raise UsageError(
            "--local-device is for real machines, but no target was named",
            hint="add --target ssh://root@HOST",
        )
    if device.kind is BackingKind.RAMDISK or device.path is None:
        raise UsageError(
            f"expected the path of a disk or of a new file on the initiator, found {device.kind}",
            hint="try --local-device /dev/NAME or --local-device file:/var/tmp/local.img",
        )
    check_backing(device)


def _volume(plan: Plan) -> None:
    """A volume is the one column of the one initiator, and what was there is only read."""
    volume = plan.storage.volume
    if volume is None:
        return
    storage, machines = plan.storage, plan.machines
    _same((storage.black_box, storage.local_device, storage.disk), (None, None, None))
    _same((plan.columns, plan.links, plan.hops), ((volume.column,), {}, ()))
    _same(machines is not None and len(machines.initiators), 1)
    _same(volume.path.startswith("/") and (volume.path + volume.title + volume.identity).isprintable(), True)
    _same(plan.only_reads and any(map(jobfile.moves_write, plan.jobs)), False)


def _portal(plan: Plan) -> None:
    """Of a black-box target everybody reads one LUN, over links that say where it is."""
    portal = plan.storage.black_box
    if portal is None:
        return
    from harness.parse.hosts import parse_portal

    asked = parse_portal(portal.typed)
    if portal.login:
        _same(parse_portal(portal.login).name, "")
    elif asked.port is not None:
        _same(portal.port, asked.port)
    for word in (portal.name, portal.chap_user, portal.wwid, portal.swanctl):
        _same(word.isprintable(), True)
    _same(0 < portal.port < 65536 and 0 <= portal.lun < MOST_LUNS, True)
    _same((plan.storage.shared_lun, plan.storage.disk, plan.probing), (plan.only_reads, None, ()))
    _same(plan.only_reads or len(plan.machines.initiators if plan.machines else ()) == 1, True)
    _same({portal.transport}, set(plan.transports))
    for link in plan.links.values():
        _same((link.interface is None, link.portal is None), (False, False))


def _hops(plan: Plan) -> None:
    """A hop is a machine of its own, and each is named once."""
    hops = plan.hops
    if hops and plan.capabilities.boots_kernels:
        raise UsageError(
            f"--hop {shown(hops[0])} needs real machines, but the testbed is the lab: its hosts "
            "share a kernel with all that is between them, or have nothing between their kernels",
            hint="leave --hop out, or name real machines with --target",
        )
    if len(set(hops)) != len(hops) or len(hops) > MOST_HOPS:
        raise UsageError(
            f"expected up to {MOST_HOPS} different hops, found {', '.join(map(shown, hops))}",
            hint="name each router or switch once",
        )


def _links(plan: Plan) -> None:
    """Hops are in one kernel, and interfaces in real machines."""
    for name, link in plan.links.items():
        if link.hops is not None and not plan.capabilities.shares_kernel:
            raise UsageError(
                f"the link {link.name} has its hops and its ends in one kernel, found --kernels per-host",
                hint="leave --kernels out for it",
            )
        _same(name, check_name("link", link.name))
        if link.interface is None:
            _same(link.portal, None)
        else:
            _same(plan.capabilities.has_machines, True)
            _same(profiles.real_link(typed(link)).portal, link.portal)
            _same(link.name.endswith(profiles.IPV6_NAME) or link.ip != IPV6, True)
        if link.portal is not None:
            _same(ipaddress.ip_address(link.portal).version, link.ip)  # as over_ip() checks
        if link.ip == IPV6:
            _same(link.mtu_bytes >= profiles.LEAST_IPV6_MTU, True)
        profiles.check_link(link, functools.partial(_refuse, f"{name}."))


def typed(link: LinkProfile) -> str:
    """A link over a real interface, as it is typed."""
    name = link.name.removesuffix(profiles.IPV6_NAME) if link.ip == IPV6 else link.name
    return f"{name}={link.interface}{f'@{link.portal}' if link.portal else ''}"


def _proposals(plan: Plan) -> None:
    """A module that serves every security association of a machine is loaded in the lab alone, and a host
    has one charon for all proposals."""
    for setting in IKE_SETTINGS["daemon"]:
        values = {proposal.settings.get(setting) for proposal in plan.proposals.values()}
        if len(values) > 1:
            found = " and ".join(sorted(value or "none" for value in values))
            raise UsageError(
                f"expected one {setting} for all proposals, found {found}", hint="measure them in turn"
            )
    for name, proposal in plan.proposals.items():
        if proposal.segmentation_offload and not plan.capabilities.boots_one_kernel:
            raise UsageError(
                f"{name} needs hosts of one lab kernel, found {plan.capabilities.typed}",
                hint="on a machine of yours: modprobe esp4_offload, then measure aes128gcm16 with and "
                "without it",
            )
        _same(name, check_name("proposal", proposal.name))
        profiles.check_proposal(proposal, functools.partial(_refuse, f"{name}."))


def _machines(plan: Plan) -> None:
    """Which testbeds have machines."""
    kind = plan.setting.testbed
    if (kind, plan.machines is not None) not in CAPABILITIES:
        found = "none" if plan.machines is None else "some"
        raise UsageError(f"expected machines with a testbed that has any, found {found} with {kind}")


def _setting(plan: Plan) -> None:
    """What only a kernel that the run boots can have, and only the lab's own."""
    setting, disk = plan.setting, plan.storage.disk
    _same(setting.source, HARNESS_SOURCE)
    _same(setting.disk, disk.name if disk is not None else "")
    if disk is not None:
        from harness.parse import disks

        check_name("disk", disk.name)
        disks.check(disk, functools.partial(_refuse, "disk, "))
    if setting.predicted_from and not setting.is_virtual:
        raise UsageError("--cpu-costs needs --virtual-time, but time is real", hint="add --virtual-time")
    own = {
        "--virtual-time": setting.is_virtual,
        "--cpu-costs": bool(setting.predicted_from),
        "--disk": disk is not None,
        f"--lab-kernel {setting.release}": setting.other_kernel is not None,
    }
    lab = {
        **own,
        "--lab-kernel": setting.lab_kernel is not None,
        f"--cipher-driver {setting.ciphers}": setting.ciphers is not None,
    }
    option = next((option for option, is_asked in lab.items() if is_asked), None)
    if option and not plan.capabilities.boots_kernels:
        raise UsageError(f"{option} is for the lab, found {plan.capabilities.typed}", hint="leave one out")
    option = next((option for option, is_asked in own.items() if is_asked), None)
    if option and not setting.is_custom:
        raise UsageError(
            f"{option} needs the custom kernel, found --lab-kernel {setting.lab_kernel or 'none'}",
            hint="leave --lab-kernel out",
        )
    other = setting.other_kernel
    if other is not None and not other.key:  # as in records of the first versions
        raise UsageError(
            f"expected the key of a kernel, 12 of 0-9 and a-f, found none of {shown(other.name)}",
            hint="name its source: --lab-kernel SOURCE",
        )
    # What others shared has none.
    _same(
        {*plan.simulated_cpu_costs} <= {column.label for column in plan.columns if setting.predicted_from},
        True,
    )


RULES: tuple[tuple[str, Callable[[Plan], object]], ...] = (
    ("run_id", lambda plan: check_name("run", plan.run_id)),
    ("machines", _machines),
    ("setting", _setting),
    *((figure[0], functools.partial(_figure, *figure)) for figure in RANGES),
    ("hops", _hops),
    ("portal", _portal),
    ("volume", _volume),
    ("backing", _backing),
    ("local_device", _local_device),
    ("columns", _columns),
    ("links", _links),
    ("proposals", _proposals),
    ("columns, link, protection and transport", _column_names),
    ("columns, link", _wifi),
    ("columns and machines, initiators", _initiators),
    ("workloads and probing", _workloads),
    ("shared_lun", _shared_lun),
    ("sections", _sections),
    ("cells", _cells),
    ("parameters", _parameters),
)
"""Each with the field of the plan that it is about, in the order in which they are asked."""


def check(plan: Plan, source: str | None = None) -> None:
    """UsageError for the first rule that a plan breaks; of one that was read from ``source``, with field."""
    for field, rule in RULES:
        try:
            rule(plan)
        except UsageError as error:
            if source is None:
                raise
            raise UsageError(
                printable(f"{source}, {field}: {error.message}"),
                hint="restore the file from a copy, or measure again",
            ) from error
