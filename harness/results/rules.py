"""What can be planned: the ranges of a plan's figures, and what of it cannot go together.

Who makes a plan (``planning``) and who reads one (``planned``) ask the same. Each rule belongs to the field
that it is about, and raises UsageError, with what to type instead.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.model import TRAITS, Backing, BackingKind, Plan
from harness.model.errors import UsageError
from harness.model.units import LARGEST, format_size, shown
from harness.parse.hosts import parse_address
from harness.parse.jobfile import moves_write

MIB = 1 << 20
SMALLEST_BACKING_BYTES = 16 * MIB
LARGEST_RAM_BACKING_BYTES = 8 << 30
MOST_REPEATS = 1000
MOST_RETRIES = 10
MOST_COLUMNS = 64
MOST_PATHS = 256
"""Columns times their initiators: each has an address of its own in the lab."""

MOST_WIFI_PATHS = 30
"""Each takes three radios, and mac80211_hwsim makes at most a hundred."""

MOST_WORKLOADS = 1000
MOST_HOPS = 16
RUNTIME_S = (0.1, 86_400.0)


def _repeats(plan: Plan) -> None:
    if not 1 <= plan.repeats <= MOST_REPEATS:
        raise UsageError(
            f"expected 1 to {MOST_REPEATS} repeats, found {plan.repeats}", hint="try --repeats 3"
        )


def _retries(plan: Plan) -> None:
    if not 0 <= plan.retries <= MOST_RETRIES:
        raise UsageError(
            f"expected 0 to {MOST_RETRIES} retries, found {plan.retries}", hint="try --retries 2"
        )


def _runtime(plan: Plan) -> None:
    if plan.runtime_s is not None and not RUNTIME_S[0] <= plan.runtime_s <= RUNTIME_S[1]:
        raise UsageError(
            f"expected a runtime of 0.1s to 1 day, found {plan.runtime_s:.15g}s",
            hint="try --runtime 5s",
        )


def _seed(plan: Plan) -> None:
    if not 0 <= plan.seed <= LARGEST:
        raise UsageError(f"expected a seed from 0 to 2^63-1, found {plan.seed}", hint="try --seed 1")


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


def _wifi(plan: Plan) -> None:
    over_wifi = sum(
        column.initiators
        for column in plan.columns
        if column.link in plan.links and plan.links[column.link].radio is not None
    )
    if over_wifi > MOST_WIFI_PATHS:
        raise UsageError(
            f"expected at most {MOST_WIFI_PATHS} paths over WiFi, found {over_wifi}",
            hint="use fewer links, proposals or initiators",
        )


def check_backing(backing: Backing) -> None:
    """UsageError for impossible storage: by its size, or by its path."""
    size, path, kind = backing.size_bytes, backing.path, backing.kind
    if size % MIB or not SMALLEST_BACKING_BYTES <= size <= LARGEST:
        raise UsageError(
            f"expected a size in whole MiB from {format_size(SMALLEST_BACKING_BYTES)} on, "
            f"found {shown(str(size))} bytes",
            hint="try --size 128M",
        )
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
    check_backing(backing)
    if backing.path is not None and plan.traits.boots_kernels:
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
    writing = [job.name for job in plan.jobs if moves_write(job)]
    if plan.storage.shared_lun and writing:
        raise UsageError(
            f"a shared LUN is read-only, but {', '.join(writing[:3])} would write to it",
            hint="choose reading workloads with --workload",
        )


def _local_device(plan: Plan) -> None:
    device = plan.storage.local_device
    if device is None:
        return
    if not plan.traits.has_machines:
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


def _hops(plan: Plan) -> None:
    """A hop is a machine of its own, and each is named once."""
    hops = plan.hops
    if hops and plan.traits.boots_kernels:
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
    for text in hops:
        parse_address(text, "hop")


def _links(plan: Plan) -> None:
    """Hops are in one kernel."""
    for link in plan.links.values():
        if link.hops is not None and not plan.traits.shares_kernel:
            raise UsageError(
                f"the link {link.name} has its hops and its ends in one kernel, found --kernels apart",
                hint="leave --kernels out for it",
            )


def _proposals(plan: Plan) -> None:
    """A module that serves every security association of a machine is loaded in the lab alone."""
    name = next((name for name, each in plan.proposals.items() if each.segmentation_offload), None)
    if name is not None and not plan.traits.boots_one_kernel:
        raise UsageError(
            f"{name} needs hosts of one lab kernel, found {plan.traits.typed}",
            hint="on a machine of yours: modprobe esp4_offload, then measure aes128gcm16 with and without it",
        )


def _machines(plan: Plan) -> None:
    """Which testbeds have machines."""
    kind = plan.setting.testbed
    if (kind, plan.machines is not None) not in TRAITS:
        found = "none" if plan.machines is None else "some"
        raise UsageError(f"expected machines with a testbed that has any, found {found} with {kind}")


def _setting(plan: Plan) -> None:
    """What only a kernel that the run boots can have, and only the lab's own."""
    setting = plan.setting
    own = {
        "--virtual-time": setting.is_virtual,
        "--disk": plan.storage.disk is not None,
        f"--lab-kernel {setting.release}": setting.other_kernel is not None,
    }
    lab = {
        **own,
        "--lab-kernel": setting.lab_kernel is not None,
        f"--cipher-driver {setting.ciphers}": setting.ciphers is not None,
    }
    option = next((option for option, is_asked in lab.items() if is_asked), None)
    if option and not plan.traits.boots_kernels:
        raise UsageError(f"{option} is for the lab, found {plan.traits.typed}", hint="leave one out")
    option = next((option for option, is_asked in own.items() if is_asked), None)
    if option and not setting.is_own:
        raise UsageError(
            f"{option} needs the lab's own kernel, found --lab-kernel {setting.lab_kernel or 'none'}",
            hint="leave --lab-kernel out",
        )


Rule = Callable[[Plan], None]
RULES: tuple[tuple[str, Rule], ...] = (
    ("machines", _machines),
    ("setting", _setting),
    ("repeats", _repeats),
    ("retries", _retries),
    ("runtime_s", _runtime),
    ("seed", _seed),
    ("hops", _hops),
    ("backing", _backing),
    ("local_device", _local_device),
    ("columns", _columns),
    ("links", _links),
    ("proposals", _proposals),
    ("columns, link", _wifi),
    ("shared_lun", _shared_lun),
)
"""Each with the field of the plan that it is about, in the order in which they are asked."""


def require(plan: Plan) -> None:
    """UsageError for the first rule that a plan breaks."""
    for _, rule in RULES:
        rule(plan)
