"""The far end of a path to a black-box target: only its portal is known."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.hosts import Daemon, Host
from harness.hosts.runner import Completed
from harness.model.errors import CommandFailed


class BlackBoxHost(Host):
    """A black-box target: no program runs there, and none of its files is read.

    Whoever asks it for anything gets CommandFailed, so nothing can be said of it by mistake. ``links.ends``
    leaves it out.
    """

    name = "target"

    @property
    def kernel(self) -> object:
        return self

    def in_netns(self, name: str, netns: str) -> Host:
        raise self._refusal(f"enter the network namespace {netns} as {name}")

    def kernel_messages(self) -> list[str]:
        raise self._refusal("read the kernel's log")

    def clock_offset_ns(self) -> int:
        raise self._refusal("read the clock")

    def call(self, room: str, program: str, function: str, *words: str) -> bytes:
        del words
        raise self._refusal(f"call {function} of {room}'s {program}")

    def write_secret(self, path: Path, text: str) -> None:
        del text
        raise self._refusal(f"write {path}")

    def reach(self, path: Path) -> contextlib.AbstractContextManager[Path]:
        raise self._refusal(f"open {path}")

    def read_files(self, paths: Sequence[str]) -> list[str]:
        raise self._refusal(f"read {', '.join(paths)}")

    def _run(
        self, argv: Sequence[str], input: str | None, timeout_s: float, env: Mapping[str, str]
    ) -> Completed:
        del input, timeout_s, env
        raise self._refusal(f"run {argv[0]}")

    def _spawned(
        self, argv: Sequence[str], log: Path, output: Path | None, env: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[Daemon]:
        del log, output, env
        raise self._refusal(f"run {argv[0]}")

    @staticmethod
    def _refusal(what: str) -> CommandFailed:
        return CommandFailed(
            f"a black-box target shows only its portal, found an attempt to {what} there",
            hint="name the machine with --target ssh://root@HOST, if you may log in there",
        )
