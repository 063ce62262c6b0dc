"""What completion offers for the value of an option, besides a choice's own words (Typer's
``autocompletion``)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import typer

from harness.model import PROTECTION_OFF, TRANSPORTS, TestbedKind
from harness.model.errors import HarnessError
from harness.model.protections import MADE
from harness.parse.jobfile import load_jobs
from harness.parse.profiles import data_folder, search_folders

JOINED = ",+"
"""What joins values in one word: of a list, and of nested protections."""

Offer = Callable[[typer.Context, str], list[str]]


def _offering(known: Callable[[], Iterable[str]]) -> Offer:
    def offer(ctx: typer.Context, incomplete: str) -> list[str]:
        del ctx
        done = incomplete[: max(incomplete.rfind(mark) for mark in JOINED) + 1]
        return [f"{done}{value}" for value in known()]

    return offer


def _files(*parts: str) -> list[str]:
    """The names of the files of a kind, wherever they are looked up."""
    return sorted({file.stem for folder in search_folders(*parts) for file in folder.glob("*.toml")})


def _ipsec() -> list[str]:
    return [PROTECTION_OFF, "on", "both", *_files("ipsec")]


def _workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    """Those of the profile that was typed before."""
    del incomplete
    with contextlib.suppress(HarnessError, OSError):
        return [workload.name for workload in load_jobs(ctx.params.get("profile") or "document")[1]]
    return []


VALUES: dict[str, Offer] = {
    "--link": _offering(lambda: ["local", *_files("profiles", "links")]),
    "--ipsec": _offering(_ipsec),
    "--protect": _offering(lambda: [*_ipsec(), *MADE]),
    "--transport": _offering(lambda: TRANSPORTS),
    "--profile": _offering(lambda: sorted(file.stem for file in (data_folder() / "profiles").glob("*.fio"))),
    "--workload": _workloads,
    "--disk": _offering(lambda: _files("profiles", "disks")),
    "--reference": _offering(lambda: _files("profiles", "references")),
    "--testbed": _offering(lambda: list(TestbedKind)),
}
"""By the option that they are for."""

PROBES = _offering(lambda: _files("profiles", "probes"))
"""For ``--profile`` of ``harness probe``."""
