"""Programs of the harness in Python, carried out by a fork of the agent.

The agent's interpreter is the one that they ask for, and has loaded what they import. To start another one
takes longer than most of them do: on a slow machine a second, and a fork takes some hundredths.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

ISOLATED = ["-I", "-S"]
FIRST_OTHER = 3
"""The first file descriptor that is not a program's own."""

compiled = functools.lru_cache(maxsize=32)(compile)


def instead_of(argv: Sequence[str], env: Mapping[str, str]) -> Callable[[], NoReturn] | None:
    """What ``subprocess.Popen`` calls in the child: it carries out ``argv``, which is then never started.

    None if ``argv`` is not a program for this interpreter, isolated, by ``-c`` or from standard input.
    """
    if len(argv) < 4 or [argv[0], *argv[1:3]] != [sys.executable, *ISOLATED] or argv[3] not in ("-c", "-"):
        return None
    text = None
    if argv[3] == "-c":
        if len(argv) < 5:
            return None
        with contextlib.suppress(SyntaxError, ValueError):  # the child says what is wrong with it
            text = compiled(argv[4], "<string>", "exec", 0, True)
    return functools.partial(_become, list(argv[3:]), dict(env), text)


def _become(words: list[str], env: Mapping[str, str], text: Any) -> NoReturn:
    """Carry out a program and end, as the interpreter would."""
    status = 1
    try:
        _forget(env)
        name, program, rest = (
            ("<string>", words[1], words[2:]) if words[0] == "-c" else ("<stdin>", "", words[1:])
        )
        if words[0] == "-":
            program = sys.stdin.buffer.read().decode()
        sys.argv = [words[0], *rest]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(text or compile(program, name, "exec", 0, True), vars(main))  # noqa: S102 -- as ``python -c``
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                status = status or 120  # as Py_FinalizeEx()
        os._exit(status & 0xFF)


def _forget(env: Mapping[str, str]) -> None:
    """Let go of what is the agent's: its signals, its environment, its files, its objects."""
    gc.freeze()  # else the collector would touch them all, and the kernel copy their pages
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as an interpreter does when it starts
    os.environ.clear()
    os.environ.update(env)
    # Among them is the pipe whose end tells Popen that the program has started.
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- names are all that is needed
        if int(number) >= FIRST_OTHER:
            with contextlib.suppress(OSError):
                os.close(int(number))
