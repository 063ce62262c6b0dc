"""Where a run's time goes: each second counts for one part."""

from __future__ import annotations

import pytest

from harness.runs.spent import Stopwatch


def test_a_part_within_another_counts_for_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 2.0, 7.0, 8.0, 9.0, 10.0, 20.0, 21.0])
    monkeypatch.setattr("harness.runs.spent.time.monotonic", lambda: next(now))
    spent = Stopwatch()
    with spent.on("cells"):
        with spent.on("columns down"):
            pass
        with pytest.raises(OSError), spent.on("columns down"):
            raise OSError
    with spent.on("cells"):
        pass
    assert spent.parts_s == {"columns down": 6.0, "cells": 5.0}


def test_in_virtual_time_no_clock_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.runs.spent.time.monotonic", lambda: pytest.fail("a clock was read"))
    spent = Stopwatch(is_virtual=True)
    with spent.on("cells"):
        pass
    assert spent.parts_s == {}
