"""Runs code within a network namespace of this kernel, without a program such as nsenter(1).

A thread of its own enters the namespace (setns(2) concerns the calling thread alone), acts, and returns. A
program that it starts there stays there, and /proc/thread-self shows it the namespace's files (proc(5)). In
the lab each page fault takes its time, and nsenter has more of them than many programs that it starts.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from harness.model import signals
from harness.model.errors import CommandFailed

NETNS = Path("/run/netns")
CLONE_NEWNET = 0x40000000
OWN_NAMESPACE = Path("/proc/thread-self/ns/net")

T = TypeVar("T")


class NotEntered(CommandFailed):
    """The namespace does not exist, or the caller may not enter it. Nothing was done."""


def within(netns: str, act: Callable[[], T], undo: Callable[[T], object] = lambda _made: None) -> T:
    """What ``act`` returns in the namespace of that name; it must not take long, because others wait.

    Raises what it raises, and NotEntered. If the caller is interrupted meanwhile, ``undo`` gets the result.
    """
    doing = _threads().submit(_act, netns, act)
    try:
        return doing.result()
    except BaseException:
        signals.surely(lambda: _undo(doing, undo))
        raise


def _undo(doing: Future[T], undo: Callable[[T], object]) -> None:
    if not doing.cancel() and doing.exception() is None:
        undo(doing.result())


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "namespaces")


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _enter(file: int) -> None:
    if _libc().setns(file, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _act(netns: str, act: Callable[[], T]) -> T:
    with contextlib.ExitStack() as stack:
        try:
            own, there = (
                stack.enter_context(file.open("rb")).fileno() for file in (OWN_NAMESPACE, NETNS / netns)
            )
            _enter(there)
        except OSError as error:
            raise NotEntered(f"expected a network namespace to enter: {error}") from error
        # It must not stay: a namespace that is deleted lives on as long as a thread is in it.
        stack.callback(_enter, own)
        return act()
