"""Programs of the harness that a testbed starts by name, and what they find there.

Who starts them may not import them, or they run elsewhere. Nothing else names a module by a string.
"""

from __future__ import annotations

import sys
from pathlib import Path

EXECUTOR = "harness.runs.executor"
"""A run, within its testbed."""

WORKER = "harness.runs.worker"
"""What waits for runs in the kernel of a persistent lab."""

LAB_DAEMON = "harness.testbeds.lab.persistent.daemon"
"""What owns that kernel."""

RESULTS = "/run/results"
"""In the lab, the folder of the machine that it may write to."""

EXCHANGE = "/run/exchange"
"""Where a lab that has one finds the folder that it shares with whoever booted it."""

JOURNAL = "/run/harness/journal.jsonl"
"""A run's journal in the lab. It ends with the kernel, like everything that it names."""

EARLY = "HARNESS_EARLY"
"""In the lab: the environment variable that names the folder of libraries by which fio begins early."""


_ROOT = str(Path(__file__).resolve().parents[2])
"""Where the harness is, which need not be installed."""

_BEGIN = "import sys; sys.path[:0] = {sys.argv.pop(1)}.difference(sys.path); "


def command(module: str, *words: str) -> list[str]:
    """The command that starts one of them, under this Python."""
    return running(f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)", *words)


def running(program: str, *words: str) -> list[str]:
    """The command that runs a line of Python, which may import the harness.

    Nothing is imported from the folder that the user works in, whose files may be anybody's (``-P``); Python
    would look there first for what it runs by ``-m`` or ``-c``.
    """
    return [sys.executable, "-P", "-c", _BEGIN + program, _ROOT, *words]
