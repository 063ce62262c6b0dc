"""The main job on the custom kernel: virtual time, modelled disks, and 802.11 through the composer.

In CI each column or each workload has one cell (`square`); `-m long` has all cells.

`python -m tests.lab.test_virtual_time` writes the reference figures anew.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from harness.hosts.journal import Journal
from harness.hosts.state import exclusive
from harness.model import TRANSPORTS, Clock, Io, LabKernel, Record, Status
from harness.model.errors import TestbedError
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.results.store import RunFolder
from harness.testbeds import entry_points, testbed
from harness.testbeds.lab.kernels import kernel
from tests.lab import references
from tests.lab.cli import Measured, harness_once, measure, moved, well
from tests.lab.square import measure_cells, square

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

MATRIX = RunRequest(virtual_time=True, disk="hdd-7200", runtime="0.2s", size="32M", repeats=1, retries=0)
"""The article's matrix: local, wired and WiFi, without and with IPsec, on a hard disk."""

OF_DOCUMENT = {"all": "iscsi-ipsec.json", "square": "iscsi-ipsec-square.json"}
REFERENCE = {**OF_DOCUMENT, "transports": "transports.json"}
HOW_MANY = ["square", pytest.param("all", marks=pytest.mark.long)]
COMPARED = "seq-write-256k"
"""Also without and with IPsec over WiFi."""

CELLS = {"all": 40, "square": 10, "transports": 12}
REGENERATE = "if that was meant: python -m tests.lab.test_virtual_time, and say why in CHANGELOG.md"

SMALL = ("--workload", "rand-read-4k", "--workload", "seq-write-256k", "--runtime", "0.2s", "--size", "32M")
WIRED = ("--virtual-time", "--link", "wired", "--ipsec", "both", *SMALL)


def measure_matrix(results: Path, how_many: str) -> Measured:
    """All cells of the matrix; or those of a square, by a run that is resumed and has the others already; or
    each transport without and with AES-GCM."""
    if how_many == "transports":
        return measure(results, *WIRED, *(f"--transport={name}" for name in TRANSPORTS))
    plan = make_plan(MATRIX)
    workloads = [workload.name for workload in plan.jobs]
    if how_many == "all":
        return measure_cells(results, plan, list(itertools.product(plan.columns, workloads)))
    wifi = [(column, COMPARED) for column in plan.columns if column.link == "wifi"]
    return measure_cells(results, plan, square(list(plan.columns), workloads) + wifi)


@pytest.fixture(scope="module", params=HOW_MANY)
def how_many(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, how_many: str) -> Measured:
    return measure_matrix(tmp_path_factory.mktemp("virtual"), how_many)


@pytest.fixture
def radios() -> None:
    if not kernel.has_radios():
        pytest.skip("the custom kernel has no 802.11 here (Linux 7.2)")


class Figures(msgspec.Struct, frozen=True):
    """What fio measured in a cell."""

    read: Io | None
    write: Io | None


class Reference(msgspec.Struct, frozen=True):
    """Cells by their keys, and with what they were measured."""

    made_with: dict[str, str]
    cells: dict[str, Figures]


def reference_of(measured: Measured) -> Reference:
    target = measured.environment["hosts"]["target"]
    return Reference(
        made_with={"kernel": target["kernel"], **target["tools"]},
        cells={key: Figures(record.read, record.write) for key, record in sorted(measured.records.items())},
    )


MEAN_TOLERANCE, SPREAD_TOLERANCE = 5e-5, 1e-3
"""Each reading of the clock costs some ns of virtual time, and how often programs of the lab's root read it
differs between machines and users: 6 of 40 means by up to 1.2e-5, and standard deviations by up to 4.9e-4."""

ONE_IO_TOLERANCE_NS = 1001.0
"""In a minimal root of Debian 12 one I/O of a cell, its slowest, takes 1 us less."""

BIN_TOLERANCE = 0.02
"""One bin of fio's histogram (stat.h, FIO_IO_U_PLAT_BITS): a percentile falls into it or into the next."""


def alike(found: Io | None, expected: Io | None) -> bool:
    """Data and time to the last digit, latencies within what clocks that are read cost."""
    if found is None or expected is None:
        return found is expected
    if (found.bytes, found.ios, found.runtime_ns) != (expected.bytes, expected.ios, expected.runtime_ns):
        return False
    of, asked = (msgspec.structs.asdict(io.latency) for io in (found, expected))
    if of.pop("percentiles") is not asked.pop("percentiles"):
        return False
    tolerances = dict.fromkeys(of, MEAN_TOLERANCE) | {"stddev_ns": SPREAD_TOLERANCE}
    tolerances |= {name: BIN_TOLERANCE for name in of if name.startswith("p")}
    extremes = dict.fromkeys(("min_ns", "max_ns"), ONE_IO_TOLERANCE_NS)
    return all(
        of[name] == pytest.approx(asked[name], rel=rel, abs=extremes.get(name, 0.0))
        for name, rel in tolerances.items()
    )


def test_every_cell_is_measured(matrix: Measured, how_many: str) -> None:
    assert len(matrix.records) == CELLS[how_many], matrix.done
    for key, record in matrix.records.items():
        assert (record.status, record.reason) == (Status.OK, None), key
        assert (record.setting.clock, record.setting.lab_kernel) == (Clock.VIRTUAL, LabKernel.CUSTOM)
        assert record.setting.disk == "hdd-7200"
        assert not any("is not repeatable" in warning for warning in record.warnings), record.warnings


def require_the_reference(matrix: Measured, how_many: str) -> None:
    file = references.folder() / REFERENCE[how_many]
    if not file.exists():
        pytest.skip(f"no reference figures for this system: {file}")
    reference, found = msgspec.json.decode(file.read_bytes(), type=Reference), reference_of(matrix)
    assert found.cells.keys() == reference.cells.keys()
    other = {
        key: (expected, now)
        for key, expected in reference.cells.items()
        if not (alike((now := found.cells[key]).read, expected.read) and alike(now.write, expected.write))
    }
    versions = f"made with {reference.made_with}, here {found.made_with}; {REGENERATE}"
    assert not other, f"{len(other)} cells differ, among them {dict(list(other.items())[:3])}; {versions}"


def test_every_figure_is_the_reference(matrix: Measured, how_many: str) -> None:
    require_the_reference(matrix, how_many)


@pytest.mark.core
def test_without_and_with_aes_gcm_each_transport_is_the_reference(tmp_path: Path) -> None:
    measured = measure_matrix(tmp_path, "transports")
    assert {record.status for record in measured.records.values()} == {Status.OK}, measured.done
    assert len(measured.records) == CELLS["transports"]
    require_the_reference(measured, "transports")


def test_here_a_run_repeats_to_the_last_digit(tmp_path: Path) -> None:
    first, second = (reference_of(measure(tmp_path / name, *WIRED)).cells for name in ("first", "second"))
    assert len(first) == 4 and first == second


@pytest.mark.usefixtures("radios")
def test_in_virtual_time_the_protocols_alone_cost(matrix: Measured) -> None:
    records = matrix.records
    plain = records[f"wifi.{COMPARED}.r1"].write
    protected = records[f"wifi+aes128gcm16.{COMPARED}.r1"].write
    assert plain is not None and protected is not None
    assert protected.latency.mean_ns is not None and plain.latency.mean_ns is not None
    # ESP takes 2.4 % more of every full frame, and nothing else costs anything.
    assert 1.02 < protected.latency.mean_ns / plain.latency.mean_ns < 1.04
    assert not (matrix.folder / "heartbeat").exists()


@pytest.mark.usefixtures("radios")
def test_the_table_names_virtual_time(matrix: Measured) -> None:
    table = harness_once("table", str(matrix.folder))
    assert "lab, virtual" in table.out and "WiFi (hwsim," in table.out, table
    settings = [cell["setting"] for cell in matrix.table()["cells"]]
    found = {(each["clock"], each["lab_kernel"], each["disk"]) for each in settings}
    assert found == {("virtual", "custom", "hdd-7200")}


def proved_aloft(record: Record) -> None:
    assert record.proof is not None and record.proof.air is not None
    air = record.proof.air
    assert (air.key_management, air.cipher, air.clear_frames) == ("WPA2-PSK", "CCMP", 0)
    assert min(air.station_bytes_initiator, air.station_bytes_target) >= moved(record)
    assert air.protected_frames_sampled > 0
    assert {state.channel for state in record.wifi} == {6}
    assert record.link_title == "WiFi (hwsim, WPA2)" and record.emulated


@pytest.mark.usefixtures("radios")
def test_wifi_is_802_11_with_its_proofs(matrix: Measured, tmp_path: Path) -> None:
    for key, record in matrix.records.items():
        if key.startswith("wifi"):
            proved_aloft(record)
    real = measure(tmp_path / "real", "--link", "wifi", "--ipsec", "both", *SMALL)
    well(real.done)
    for record in real.records.values():
        proved_aloft(record)
        assert record.setting.clock is Clock.REAL and record.setting.is_custom
    assert real.environment["column wifi"]["association"][0]["cipher"] == "CCMP"


@pytest.mark.long
def test_debians_kernel_has_the_emulated_link(tmp_path: Path) -> None:
    words = ("--link", "wifi", "--ipsec", "off", "--lab-kernel", "debian", *SMALL)
    for record in measure(tmp_path / "emulated", *words).records.values():
        assert (record.status, record.setting.lab_kernel) == (Status.OK, LabKernel.DEBIAN)
        assert record.link_title == "WiFi 802.11n" and record.proof is not None and record.proof.air is None


def test_a_hard_disk_seeks_in_real_time(tmp_path: Path) -> None:
    words = ("--link", "local", "--disk", "hdd-7200", "--runtime", "0.5s")
    names = ("seq-read-256k", "rand-read-256k", "rand-read-4k")
    measured = measure(tmp_path / "disk", *words, *(w for name in names for w in ("--workload", name)))
    well(measured.done)
    reads = {}
    for record in measured.records.values():
        assert record.read is not None and record.setting.disk == "hdd-7200"
        assert record.link_title == "HDD 7200 rpm"
        reads[record.workload.name] = record.read
    # No faster than the profile says, and as much slower as the machine is busy, but for the fastest.
    for name, mb_s in (("seq-read-256k", 78), ("rand-read-256k", 30), ("rand-read-4k", 0.75)):
        read = reads[name]
        assert 0 < read.bytes_per_s < 1.1e6 * mb_s, (name, read)
        mean_ns = 1e3 * read.bytes / read.ios / mb_s
        assert read.latency.min_ns is not None and read.latency.min_ns < 2 * mean_ns, (name, read)
    of_seeks, of_none = reads["rand-read-256k"].latency.p50_ns, reads["seq-read-256k"].latency.min_ns
    assert of_seeks is not None and of_none is not None and of_seeks > 1.5 * of_none, reads


def test_a_stalled_guest_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_plan(RunRequest(links=("local",), virtual_time=True, repeats=1))
    folder = RunFolder(tmp_path / made.run_id)
    folder.path.mkdir()
    folder.save_plan(made)
    monkeypatch.setattr(testbed, "STALL_S", 5.0)
    monkeypatch.setattr(entry_points, "command", lambda *_: ["sh", "-c", "while :; do :; done"])
    with exclusive("stalled") as state:
        journal = Journal(state / "journal-stalled.jsonl")
        with pytest.raises(TestbedError) as stalled:
            list(testbed.events(made, folder.path, journal, state))
        journal.end()
    assert "virtual time stood still" in stalled.value.message


@pytest.mark.long
def test_randomness_that_is_left_is_named(tmp_path: Path) -> None:
    profile = tmp_path / "lossy.toml"
    profile.write_text('title = "Lossy"\nemulated = true\ndelay_us = 50\nloss_percent = 0.01\n')
    words = ("--link", str(profile), "--ipsec", "off", "--virtual-time", *SMALL)
    for record in measure(tmp_path / "runs", *words).records.values():
        assert record.warnings[-1].endswith("its link loses packets at random")


def test_the_kernel_that_is_needed_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = harness_once("run", "--virtual-time", "--plan")
    assert done.status == 2 and "make lab-kernel" in done.err, done


def main() -> None:
    for how_many, name in REFERENCE.items():
        with tempfile.TemporaryDirectory() as folder:
            reference = reference_of(measure_matrix(Path(folder), how_many))
        file = references.folder() / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(reference)) + b"\n")
        sys.stdout.write(f"{len(reference.cells)} cells: {file}\n")


if __name__ == "__main__":
    main()
