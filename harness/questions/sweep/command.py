"""The command ``harness sweep``."""

from __future__ import annotations

from harness.questions.sweep.plan import OF_RUNS, SweepRequest, make_plan
from harness.terminal import options
from harness.terminal.console import PlanOption, QuietOption, VerboseOption
from harness.terminal.running import measure


@options.taking(SweepRequest, hidden=OF_RUNS)
def sweep(
    *,
    plan_only: PlanOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Measure curves over queue depth, block size, round trip, ...

    It measures as many points as --error takes. Protection is off unless --ipsec or --protect is given.
    """
    request = SweepRequest(**options.given(typed))
    measure(request, make_plan, plan_only=plan_only, is_verbose=verbose, is_quiet=quiet)
