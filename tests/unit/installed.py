"""What installed programs say of themselves and of job files: each question is put to them once.

Every plan asks dpkg, the compiler, the lab's kernel and fio, which takes 0.2 s of the processor, and hundreds
of plans are made here; apt-cache takes 0.3 s for each package. The answers are those of the programs. A test
that puts another program in the place of one of them gets that one's answer.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import runner
from harness.hosts.programs.here import environment

QUESTIONS = {
    "apt-cache": ("madison",),
    "cc": ("--version",),
    "dpkg-query": ("-W",),
    "fio": ("--parse-only", "-"),
    "linux.uml": ("--showconfig",),
}
"""By the program's name, the words with which a question begins."""

_State = tuple[str, int, int, int]


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """As long as this is entered, ``runner.run`` answers such a question as it was answered before."""
    answers: dict[tuple[_State, tuple[str, ...], str | None], runner.Completed] = {}
    run = runner.run

    def asked(argv: Sequence[str], *, input: str | None = None, **more: Any) -> runner.Completed:
        check = more.pop("check", True)
        question = QUESTIONS.get(Path(argv[0]).name)
        if more or question is None or tuple(argv[1 : 1 + len(question)]) != question:
            return run(argv, input=input, check=check, **more)
        state = _state(argv[0])
        if state is None:
            return run(argv, input=input, check=check)
        key = (state, tuple(argv), input)
        if key not in answers:
            answers[key] = run(argv, input=input, check=False)
        return answers[key].require_success() if check else answers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run", asked)
        yield


def _state(program: str) -> _State | None:
    """The file that would be started; None if there is none."""
    found = shutil.which(program, path=environment()["PATH"])
    if found is None:
        return None
    reported = Path(found).stat()
    return os.path.realpath(found), reported.st_ino, reported.st_size, reported.st_mtime_ns
