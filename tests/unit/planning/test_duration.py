"""What `harness run --plan` says of the time, held against runs; and which cells tell CPU costs apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harness import model
from harness.model import TRANSPORTS, Column, LabKernel, Plan
from harness.model.protections import PROTECTIONS
from harness.planning import cpu_costs, duration
from harness.planning.cpu_costs import CpuCostRequest
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.results.store import decode
from tests import flat
from tests.unit.results_folder import COLUMNS, made_plan

MISSING = [f'"{name}"' for name, each in PROTECTIONS.items() if each.is_missing]


def is_of_kinds_here(text: str) -> bool:
    """Whether this harness has all transports and protections of a run's columns."""
    transports = {*re.findall(r'"transport": ?"(.*?)"', text)}
    return transports <= {*TRANSPORTS} and not any(name in text for name in MISSING)


MADE = [
    file
    for file in sorted((Path(__file__).parents[2] / "data" / "durations").glob("*.json"))
    if is_of_kinds_here(file.read_text(encoding="utf-8"))
]
assert len(MADE) >= 2, "there are runs to hold it against"


class Made(msgspec.Struct):
    plan: msgspec.Raw
    took_s: float
    """Until its last record."""
    waited_s: float
    """For other programs to calm down, or measuring again what these had disturbed."""


@pytest.mark.parametrize("file", MADE, ids=lambda file: file.stem)
def test_the_estimate_is_within_a_tenth_of_what_a_run_took(file: Path) -> None:
    made = msgspec.json.decode(file.read_bytes(), type=Made)
    plan = decode(msgspec.json.Decoder(Plan), "plan", file, bytes(made.plan))
    assert duration.run_s(plan) == pytest.approx(made.took_s - made.waited_s, rel=0.1)


def test_the_default_run_takes_four_minutes_at_most() -> None:
    """A little more where WiFi has radios, which only the custom kernel gives."""
    made = make_plan(RunRequest(testbed="lab"))
    assert len(made.columns) * len(made.jobs) == 40
    for lab_kernel, most_s in ((LabKernel.DEBIAN, 230), (LabKernel.CUSTOM, 250)):
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


def test_a_smoke_run_is_short_and_cells_of_machines_are_long_compared_with_what_ssh_takes() -> None:
    made = make_plan(RunRequest(smoke=True))
    assert (made.runtime_s, made.retries, made.probes) == (1.0, 0, False)
    assert make_plan(RunRequest(smoke=True, runtime="2s")).runtime_s == 2
    machines = CpuCostRequest(protect=("off",), target="ssh://root@server", links=("wired=eth0",))
    assert cpu_costs.make_plan(machines).runtime_s == 2.0
    assert cpu_costs.make_plan(msgspec.structs.replace(machines, runtime="8s")).runtime_s == 8.0


def costed(*protect: str, **more: Any) -> tuple[Plan, list[str]]:
    plan = cpu_costs.make_plan(CpuCostRequest(protect=protect, lab_kernel="debian", **more))
    return plan, [column.label for column in plan.columns]


def test_columns_differ_in_one_thing_each() -> None:
    plan, labels = costed()
    unprotected = ["wired-unshaped", "wired"]
    assert labels == ["local", *unprotected, *(f"{label}+aes128gcm16" for label in unprotected)]
    assert plan.repeats == 1 and plan.retries == 0 and len(plan.jobs) == 7 and not plan.probes_paths
    assert duration.run_s(plan) <= 60 and plan.runtime_s is None
    # Further protections are measured on one link and in a minute.
    plan, labels = costed("off,aes128gcm16,macsec,chacha20poly1305")
    assert {"wired", "wired-unshaped+macsec", "wired+aes128gcm16"} <= {*labels}
    assert "wired+macsec" not in labels and duration.run_s(plan) <= 60
    # Links and workloads may be others.
    plan, labels = costed("off", links=("local", "10g"), workloads=("rand-read-4k",))
    assert labels == ["local", "10g"] and [job.name for job in plan.jobs] == ["rand-read-4k"]


def test_filling_a_volume_takes_longer_the_larger_it_is() -> None:
    new = model.AttachedVolume(path="/nfs/new", title="of nas:/x", is_new=True, filesystem="nfs")

    def run_s(volume: model.AttachedVolume, gib: int) -> float:
        backing = model.Backing(kind=model.BackingKind.FILE, size_bytes=gib << 30)
        return duration.run_s(
            flat.changed(made_plan(columns=(new.column,)), volume=volume, backing=backing, runtime_s=1.0)
        )

    assert run_s(new, 64) - run_s(new, 4) == pytest.approx((60 << 30) / duration.FILL_BYTES_S)
    # What is only read is not filled.
    assert run_s(replace(new, is_new=False), 64) == run_s(replace(new, is_new=False), 4) < run_s(new, 4)
