"""What of a plan reaches outside the lab: whoever resumes it must type that again."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from harness.model import IPV6, LINK_LOCAL, SWANCTL, BackingKind, Plan
from harness.model.errors import UsageError
from harness.model.escape import printable
from harness.parse.hosts import LOCAL
from harness.results.rules import typed as link_typed


def default_file(run_id: str) -> str:
    """The file behind the target that a run makes on a real machine, if no storage is named."""
    return f"/var/tmp/harness-{run_id}.img"  # noqa: S108 -- new, and used by that run alone


Option = tuple[str, str]
DISKS = ("--backing", "--local-device")


def outside(plan: Plan) -> list[Option]:
    """The parts of a plan that reach outside the lab, as options of ``harness run`` and ``harness probe``."""
    found: list[Option] = []
    capabilities, machines = plan.capabilities, plan.machines
    if capabilities.is_users_kernel:
        found.append(("--testbed", plan.setting.testbed))
    if capabilities.has_machines and machines is not None:
        if machines.target is not None:
            found.append(("--target", machines.target))
        if machines.initiators != (LOCAL,):
            found += [("--initiator", text) for text in machines.initiators]
    if (portal := plan.storage.black_box) is not None:
        # Where the session logs in, which is elsewhere if the target redirects logins.
        found += [("--portal", portal.login or portal.typed), ("--lun", str(portal.lun))]
        found += [("--iqn", portal.name)] if portal.name else []
        found += [("--chap", portal.chap_user)] if portal.chap_user else []
        # It has a peer, and policies for any traffic of the machine.
        found += [("--protect", f"{SWANCTL}{portal.swanctl}")] if portal.swanctl else []
    if plan.storage.volume is not None:
        found.append(("--volume", plan.storage.volume.path))
    found += [("--hop", text) for text in plan.hops]
    for link in plan.links.values():
        if link.interface is not None:
            found.append(("--link", link_typed(link)))
            if link.ip == IPV6 and portal is None:
                # It gives the interface an address.
                found.append(("--ip", str(link.ip)))
    agreed = set()
    for option, of in zip(DISKS, (plan.storage.backing, plan.storage.local_device), strict=True):
        if of is not None and of.path not in (None, default_file(plan.run_id)):
            found.append((option, f"{of.kind}:{of.path}"))
        if of is not None and of.destroy is not None:
            agreed.add(of.destroy)
    return [*dict.fromkeys(found), *(("--destroy", path) for path in sorted(agreed))]


def resume_command(plan: Plan, name: str) -> str:
    """The complete command that resumes a run; ``name`` is its id or folder."""
    words = ["harness", "probe" if plan.probing else "run", "--resume", name]
    return shlex.join([*words, *(word for option in outside(plan) for word in option)])


def require_typed(plan: Plan, name: str, typed: Sequence[Option]) -> None:
    """UsageError unless all options that reach outside the lab were typed, and no others."""
    # Defaults, and what stays within the lab, may be typed but need not be.
    given = {
        (name, f"{BackingKind.BLOCK}:{value}" if name in DISKS and value.startswith("/dev/") else value)
        for name, value in typed
    } - {("--link", LINK_LOCAL), ("--ip", "4")}
    if plan.machines is not None and plan.machines.initiators == (LOCAL,):
        given -= {("--initiator", LOCAL)}
    wanted = set(outside(plan))
    if given == wanted:
        return
    if not wanted:
        raise UsageError(
            "expected no other options with --resume, because a resumed run follows its plan",
            hint="leave them out, or begin a new run without --resume",
        )
    raise UsageError(
        f"the plan of {printable(name)} reaches outside the lab: expected exactly the options "
        f"{_listed(wanted)}, found {_listed(given) or 'none'}",
        hint=f"if you want that: {printable(resume_command(plan, name))}",
    )


def _listed(options: Collection[Option]) -> str:
    return printable(", ".join(" ".join(option) for option in sorted(options)))
