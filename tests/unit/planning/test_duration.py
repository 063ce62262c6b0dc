"""What `harness run --plan` says of the time, held against runs that were made."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.model import Column, LabKernel, Plan
from harness.planning import duration
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.results.store import decode
from tests import flat
from tests.unit.results_folder import COLUMNS, made_plan

MADE = sorted((Path(__file__).parents[2] / "data" / "durations").glob("*.json"))
assert len(MADE) >= 2, "there are runs to hold it against"


class Made(msgspec.Struct):
    """A run: its plan, how long it took until its last record, and how much of that it waited for other
    programs to calm down, or measured again what these had disturbed."""

    plan: msgspec.Raw
    took_s: float
    waited_s: float


@pytest.mark.parametrize("file", MADE, ids=lambda file: file.stem)
def test_the_estimate_is_within_a_tenth_of_what_a_run_took(file: Path) -> None:
    made = msgspec.json.decode(file.read_bytes(), type=Made)
    plan = decode(msgspec.json.Decoder(Plan), "plan", file, bytes(made.plan))
    assert duration.run_s(plan) == pytest.approx(made.took_s - made.waited_s, rel=0.1)


@pytest.mark.parametrize(("lab_kernel", "most_s"), [(LabKernel.DEBIAN, 230), (LabKernel.OWN, 250)])
def test_the_default_run_takes_four_minutes_at_most(lab_kernel: LabKernel, most_s: float) -> None:
    """A little more where WiFi has radios, which only the lab's own kernel gives."""
    made = make_plan(RunRequest(testbed="lab"))
    assert len(made.columns) * len(made.jobs) == 40
    assert duration.run_s(flat.changed(made, lab_kernel=lab_kernel)) < most_s


def test_more_columns_repeats_and_protection_take_longer() -> None:
    def run_s(*columns: Column, repeats: int | None = None, probes: bool = False) -> float:
        return duration.run_s(made_plan(columns=columns, probes=probes), *([repeats] if repeats else []))

    plain = run_s(*COLUMNS[:2])
    for longer in (run_s(*COLUMNS[:3]), run_s(COLUMNS[0], COLUMNS[3]), run_s(*COLUMNS[:2], probes=True)):
        assert longer > plain
    alone, both = (Column("wired", transport="iscsi", initiators=n) for n in (1, 2))
    assert run_s(both) > run_s(alone)
    once, twice, thrice = (run_s(*COLUMNS[:2], repeats=repeats) for repeats in (1, 2, 3))
    assert thrice - twice == pytest.approx(twice - once)
    assert thrice == plain


def test_a_smoke_run_is_short_and_nothing_is_measured_meanwhile_or_again() -> None:
    made = make_plan(RunRequest(smoke=True))
    assert (made.runtime_s, made.retries, made.probes) == (1.0, 0, False)
    assert make_plan(RunRequest(smoke=True, runtime="2s")).runtime_s == 2
