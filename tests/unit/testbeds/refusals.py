"""Calls that are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.model.errors import HarnessError


def refusal(error: type[HarnessError], words: str, call: Callable[..., object], *given: object) -> str:
    """``call`` is refused with an error whose message matches ``words``: its hint."""
    with pytest.raises(error, match=words) as refused:
        call(*given)
    return refused.value.hint or ""
