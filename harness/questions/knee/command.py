"""The command ``harness knee``."""

from __future__ import annotations

from harness.questions.knee.plan import WITH_LOADS, KneeRequest, make_plan
from harness.terminal import options
from harness.terminal.console import PlanOption, QuietOption, VerboseOption
from harness.terminal.running import measure


@options.taking(KneeRequest, hidden=WITH_LOADS)
def knee(
    *,
    plan_only: PlanOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    **typed: object,
) -> None:
    """Find the highest load that meets a latency target.

    Latency counts from when a request was due (open loop), so queueing is in it.
    """
    request = KneeRequest(**options.given(typed))
    measure(request, make_plan, plan_only=plan_only, is_verbose=verbose, is_quiet=quiet)
