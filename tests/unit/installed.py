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
from harness.hosts.programs.local_operations import environment

QUESTIONS = {
    "apt-cache": ("madison",),
    "cc": ("--version",),
    "dpkg-query": ("-W",),
    "fio": ("--parse-only", "-"),
    "linux.uml": ("--showconfig",),
}
"""By the program's name, the words with which a question begins."""


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """As long as this is entered, ``runner.run`` answers such a question as it was answered before."""
    answers: dict[tuple[object, ...], runner.Completed] = {}
    run = runner.run

    def asked(argv: Sequence[str], *, input: str | None = None, **more: Any) -> runner.Completed:
        check = more.pop("check", True)
        question = QUESTIONS.get(Path(argv[0]).name)
        is_question = not more and question is not None and tuple(argv[1 : 1 + len(question)]) == question
        if not is_question or (found := shutil.which(argv[0], path=environment()["PATH"])) is None:
            return run(argv, input=input, check=check, **more)
        file = Path(found).stat()
        key = (os.path.realpath(found), file.st_ino, file.st_size, file.st_mtime_ns, *argv, input)
        if key not in answers:
            answers[key] = run(argv, input=input, check=False)
        return answers[key].require_success() if check else answers[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run", asked)
        yield
