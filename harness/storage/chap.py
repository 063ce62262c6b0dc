"""CHAP secrets for a target that the harness did not set up (RFC 7143, section 12.1).

They are in no plan, record, log or command line. Who starts a run's inside hands them over in its
environment, which nobody but its user and root may read, and it takes them out of there at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from harness.model.errors import UsageError

VARIABLE = "HARNESS_CHAP_SECRET"


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """What the initiator answers with; and as whom, and with what, the target answers the initiator, "" if it
    is not asked."""

    own: str = field(repr=False)
    target_user: str = ""
    target: str = field(default="", repr=False)


_kept: list[str] = []


def parse(text: str) -> Secrets:
    """The secrets in a file: the initiator's in a line of its own, and perhaps another line with the target's
    ``USER SECRET``. UsageError for anything else, without a word of it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own, *more = lines or [""]
    user, _, target = (more or [""])[0].partition(" ")
    is_right = 0 < len(lines) <= 2 and bool(user) == bool(target.strip()) == (len(lines) == 2)
    if not is_right or not text.isascii() or not all(line.isprintable() for line in lines):
        raise UsageError(
            "expected a CHAP secret in one line, and for both directions a second line with the target's "
            f"user and secret; found {len(lines)} lines, or more than printable ASCII",
            hint="write the secret into a file of your own (chmod 600), and name it with --chap-secret",
        )
    return Secrets(own=own, target_user=user, target=target.strip())


def keep(text: str) -> None:
    """Keep the secrets for this process, and for the one that carries out its run."""
    parse(text)
    _kept[:] = [text]


def take() -> None:
    """Keep those of the environment, where no program that is started from here finds them any more."""
    if (text := os.environ.pop(VARIABLE, None)) is not None:
        keep(text)


def known() -> Secrets | None:
    return parse(_kept[0]) if _kept else None


def environment() -> dict[str, str]:
    """What hands them over to another process."""
    return {VARIABLE: _kept[0]} if _kept else {}
