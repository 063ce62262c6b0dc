"""The command ``harness fault``."""

from __future__ import annotations

from harness.questions.fault.plan import WITHOUT, FaultRequest, make_plan
from harness.terminal import options
from harness.terminal.console import PlanOption, QuietOption, VerboseOption
from harness.terminal.running import measure


@options.taking(FaultRequest, hidden=WITHOUT)
def fault(
    *,
    plan_only: PlanOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Find how long I/O stands still when something breaks.

    Writes at a rate go on meanwhile. Which timer decided is from the kernel's log, and each
    acknowledged write is read back.
    """
    request = FaultRequest(**options.given(typed))
    measure(request, make_plan, plan_only=plan_only, is_verbose=verbose, is_quiet=quiet)
