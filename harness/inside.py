"""What runs inside a testbed, as root, with a mount namespace of its own: ``python -m harness.inside``.

The lab and the machine's own kernel run the same code here. The mounts made are private to this process
and vanish with it: configuration, node records and secrets never touch a disk.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from harness import recovery
from harness import run as runner
from harness.bench import Bench, order_of_cells
from harness.errors import HarnessError, RequirementError
from harness.events import Emit, Ended, Failed, writer
from harness.hosts import PRIVATE
from harness.journal import Journal
from harness.model import IPSEC_OFF, LINK_LOCAL, BackingKind, Duplex, Plan, Status
from harness.results import RunFolder, record_key

TMPFS = (str(PRIVATE), "/run/netns", "/etc/iscsi")
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def modules(plan: Plan) -> list[str]:
    """The kernel modules that a plan needs, by modprobe(8)'s names; built-in ones succeed as well."""
    names: list[str] = []
    if any(column.link != LINK_LOCAL for column in plan.columns):
        names += ["veth", "sch_netem", "target_core_mod", "iscsi_target_mod", "iscsi_tcp", "sd_mod"]
        names += ["target_core_file" if plan.backing.kind is BackingKind.FILE else "target_core_iblock"]
        if any(link.duplex is Duplex.HALF for link in plan.links.values()):
            names += ["bridge", "ifb", "sch_ingress", "cls_matchall", "act_mirred"]
        if any(column.ipsec != IPSEC_OFF for column in plan.columns):
            names += ["xfrm_user", "esp4"]
    if plan.backing.kind is BackingKind.RAMDISK or plan.backing.path is None:
        names.append("brd")
    return names


def mount_private() -> None:
    """A tmpfs over each of ``TMPFS``, seen by this process and its children alone."""
    for place in TMPFS:
        Path(place).mkdir(parents=True, exist_ok=True)
        runner.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", place])


def prepare(plan: Plan) -> None:
    """Private mounts, configfs, kernel modules. Raises RequirementError naming every module missing."""
    mount_private()
    missing = [
        name
        # brd is only looked for: loading it is the ramdisk's own first act.
        for name in modules(plan)
        if runner.run(["modprobe", *(["-n"] if name == "brd" else []), name], check=False).status != 0
    ]
    if missing:
        raise RequirementError(
            f"the kernel lacks {', '.join(missing)}",
            hint="run in the lab with --testbed lab, or install a kernel that has these modules",
        )
    if not Path("/sys/kernel/config/target").is_dir() and len(plan.columns) > 0:
        runner.run(["mount", "-t", "configfs", "configfs", "/sys/kernel/config"], check=False)


def remaining(plan: Plan, folder: RunFolder) -> list[tuple[int, str]]:
    """Order and key of the cells that have no ok record yet."""
    done = {record_key(record) for record in folder.load_records() if record.status is Status.OK}
    return [(order, cell.key) for order, cell in enumerate(order_of_cells(plan)) if cell.key not in done]


def execute(folder: RunFolder, journal: Journal, emit: Emit) -> None:
    """Carry out what is left of the folder's plan."""
    plan = folder.load_plan()
    wanted = dict(remaining(plan, folder))
    todo = [(order, cell) for order, cell in enumerate(order_of_cells(plan)) if order in wanted]
    prepare(plan)
    Bench(plan, folder, emit, journal=journal, private=PRIVATE).execute(todo)


def run(run_folder: str, journal_path: str) -> int:
    """Run a plan to its end; the outcome is told through ``events.jsonl`` and the exit status."""
    folder = RunFolder(Path(run_folder))
    emit = writer(folder.path / "events.jsonl")
    Path(journal_path).parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(Path(journal_path))
    status = 0
    try:
        execute(folder, journal, emit)
    except HarnessError as error:
        emit(Failed(error.message, error.hint, error.exit_code))
        status = error.exit_code
    except KeyboardInterrupt:
        emit(Failed("interrupted", f"finish it with: harness run --resume {folder.run_id}", INTERRUPTED))
        status = INTERRUPTED
    journal.end()
    emit(Ended(tuple(journal.leaks)))
    return status or (1 if journal.leaks else 0)


def recover(journal_path: str) -> int:
    """Undo what a killed run on this kernel left; what was removed is printed, what was not is an error."""
    mount_private()
    removed, failed = recovery.recover(Journal(Path(journal_path)))
    for line in removed:
        sys.stdout.write(f"{line}\n")
    for line in failed:
        sys.stderr.write(f"{line}\n")
    return 1 if failed else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Once: a second signal must not stop the unwinding that the first began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argv: list[str]) -> int:
    """``run RUN_FOLDER JOURNAL`` or ``recover JOURNAL``."""
    signal.signal(signal.SIGTERM, _interrupt)
    return run(*argv[1:]) if argv[0] == "run" else recover(*argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
