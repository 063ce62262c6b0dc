"""A Python that has imported the command line, and becomes a command each time it is asked to.

``forkserver.py SOCKET MODULE...`` imports the modules. For each request on the socket it forks: the child
takes the request's standard streams, working directory, environment and words, runs the command and ends as
any Python does. What the interpreter reads when it starts (its locale, PYTHON... variables) is the server's.

It imports nothing of the tests: ``processes`` starts it, and says there what a request is.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

LARGEST_REQUEST_BYTES = 1 << 20
HIGHEST_DESCRIPTOR = 64
WORKING_DIRECTORY = -1
"""In place of a number of a standard stream."""


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; returns it in the child, and None where there are no more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, LARGEST_REQUEST_BYTES, 4)
        if not message:
            return None
        request: dict[str, Any] = json.loads(message)
        child = os.fork()
        if not child:
            control.close()
            _take(dict(zip(request["descriptors"], descriptors, strict=True)))
            return request
        for each in descriptors:
            os.close(each)
        control.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _take(given: dict[int, int]) -> None:
    """Have the given descriptors as standard streams, those that are not given closed."""
    os.fchdir(given.pop(WORKING_DIRECTORY))
    streams = ((0, "stdin"), (1, "stdout"), (2, "stderr"))
    # All of them are above 2, because the server has these three open itself.
    for number, _ in streams:
        if number in given:
            os.dup2(given[number], number)
        else:
            os.close(number)
    os.closerange(3, HIGHEST_DESCRIPTOR)
    for number, name in streams:
        made = _stream(number, getattr(sys, name)) if number in given else None
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def _stream(number: int, usual: io.TextIOWrapper) -> io.TextIOWrapper:
    """A standard stream as the interpreter makes it (create_stdio() in CPython's pylifecycle.c)."""
    buffered = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        buffered,
        encoding=usual.encoding,
        errors=usual.errors,
        newline="\n" if number else None,
        line_buffering=number == 2 or os.isatty(number),
    )


def _have_for_a_testbed(place: Path) -> None:
    """Hold a lock there, and keep journals there."""
    from harness.hosts import state

    state.state_folder = lambda: state.own_folder(place / "harness")
    state.DISK = place


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    # What is here does not change: no child need copy it.
    gc.collect()
    gc.freeze()
    request = serve(control)
    if request is None:
        return
    os.environ.clear()
    environment = request["environment"].items()
    os.environb.update({os.fsencode(name): os.fsencode(text) for name, text in environment})
    sys.argv = [os.fsdecode(bytes.fromhex(word)) for word in request["words"]]
    if request["testbed"] is not None:
        _have_for_a_testbed(Path(request["testbed"]))
    if request["program"] is None:
        from harness.__main__ import main as command

        command()
    exec(compile(request["program"], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102


if __name__ == "__main__":
    main()
