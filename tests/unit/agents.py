"""The agent as an ordinary process: without root, its places in a folder of the test's."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from pathlib import Path

from harness.hosts import programs

SHORT_S = 0.5
"""How long an impatient one waits for a daemon to end, or for a step that undoes something."""

PATIENT_S = 60.0
"""How long any other does: on a busy machine each program takes its time."""


def lasting(state: Path) -> Path:
    """Where that agent keeps the journal of what outlives a reboot."""
    return state.with_name(f"{state.name}-lasting")


def agent_source(state: Path, *, stop_s: float = PATIENT_S, step_s: float = PATIENT_S) -> str:
    """The agent's program, keeping its locks and journals in ``state``, and next to it what is lasting.

    ``stop_s`` is how long it waits for a daemon to end, ``step_s`` for a step that undoes something. It is
    compiled once: that takes a third of the time in which an agent starts."""
    given = f"_places = ({str(state)!r}, {str(lasting(state))!r})\n_waits_s = ({stop_s}, {step_s})"
    code = f"exec(marshal.loads(open({str(_compiled())!r}, 'rb').read()))"
    return f"import marshal\n{given}\n{code}\n"


@functools.cache
def _compiled() -> Path:
    """The program's code, which takes its places and what it waits from variables."""
    text = programs.path("harness.hosts", "agent.py").read_text(encoding="utf-8")
    for name, value in (
        ("STATE", "Path(_places[0])"),
        ("LASTING", "Path(_places[1])"),
        ("STOP_S", "_waits_s[0]"),
        ("UNDO_STEP_S", "_waits_s[1]"),
    ):
        text, count = re.subn(rf"^{name} = .*", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    shared = {
        f"{of}.programs.{name}": programs.source(of, name) for of, name in programs.SHARED.findall(text)
    }
    text = programs.SENT_TOGETHER.format(shared=shared, program=text)
    file = Path(_FOLDER.name, "agent.code")
    subprocess.run([programs.PYTHON, "-I", "-c", _COMPILE, file], input=text.encode(), check=True)
    return file


_FOLDER = tempfile.TemporaryDirectory()
_COMPILE = """\
import marshal, sys
with open(sys.argv[1], "wb") as file:
    marshal.dump(compile(sys.stdin.buffer.read(), "agent", "exec", 0, True), file)
"""
