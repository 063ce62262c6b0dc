"""The article's matrix, end to end: measured once, then looked at from all sides."""

from __future__ import annotations

import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.analysis.schedule import order_of_cells
from harness.model import Column, Record, Status, TestbedKind
from harness.parse import fio
from harness.parse.jobfile import repeat_seed
from harness.results.store import RunFolder
from tests.lab import machine
from tests.lab.cli import Measured, harness_once, is_sampled, measure, moved, well

pytestmark = [pytest.mark.lab, pytest.mark.core]

WORKLOADS = ("rand-read-4k", "seq-write-256k")
COLUMNS = ("local", "wired", "wifi", "wired+aes128gcm16", "wifi+aes128gcm16")
MORE_THAN_SHAPED = {"wired": 1e9 / 8, "wifi": 50e6 / 8}
"""Bytes a second that no cell of the column can have moved."""


@pytest.fixture(scope="module")
def snapshots() -> list[dict[str, Any]]:
    return []


@pytest.fixture(scope="module")
def took_s() -> list[float]:
    """How long the run took, with all that its command does around it."""
    return []


@pytest.fixture(scope="module")
def matrix(
    tmp_path_factory: pytest.TempPathFactory, snapshots: list[dict[str, Any]], took_s: list[float]
) -> Measured:
    results = tmp_path_factory.mktemp("matrix")
    snapshots.append(machine.snapshot())
    words = [f"--link={link}" for link in ("local", "wired", "wifi")]
    words += [f"--workload={name}" for name in WORKLOADS]
    began = time.monotonic()
    # With a kernel of its own, if that is built, the lab would have 802.11 in place of the emulated link.
    measured = measure(results, *words, "--ipsec=both", "--lab-kernel=debian", "--verbose")
    took_s.append(time.monotonic() - began)
    snapshots.append(machine.snapshot())
    return measured


def protected(matrix: Measured) -> list[Record]:
    return [record for record in matrix.records.values() if record.column.ipsec != "off"]


def speed(record: Record) -> float:
    return sum(io.bytes_per_s for io in (record.read, record.write) if io is not None)


def fastest_ns(record: Record) -> float:
    """How long the fastest I/O of a cell took, which reads or writes."""
    (io,) = (io for io in (record.read, record.write) if io is not None)
    assert io.latency.min_ns is not None
    return io.latency.min_ns


def test_every_cell_is_measured_and_ok(matrix: Measured) -> None:
    well(matrix.done)
    assert set(matrix.records) == {f"{column}.{name}.r1" for column in COLUMNS for name in WORKLOADS}
    for key, record in matrix.records.items():
        assert (record.status, record.reason) == (Status.OK, None), key
        assert record.setting.testbed is TestbedKind.LAB
        assert (record.read is not None) == ("read" in key), "a read workload reads, a write workload writes"
        assert (record.write is not None) == ("write" in key)
        assert 0.25e9 < record.fio_ns < record.wall_ns, f"{key} was to be measured for 0.3 s"
    # A machine that stands still for seconds keeps the I/O of a cell waiting, but not of most.
    assert statistics.median(record.fio_ns for record in matrix.records.values()) < 3e9


def test_the_order_follows_from_the_stored_seed(matrix: Measured) -> None:
    plan = RunFolder(matrix.folder).load_plan()
    expected = [cell.key for cell in order_of_cells(plan)]
    assert sorted(matrix.records, key=lambda key: matrix.records[key].order) == expected
    by_time = sorted(matrix.records, key=lambda key: matrix.records[key].started_unix_s)
    assert by_time == expected


def test_links_differ_as_their_profiles_say(matrix: Measured) -> None:
    for name in WORKLOADS:
        records = [matrix.records[f"{column}.{name}.r1"] for column in COLUMNS]
        # Not the speeds: other programs may have the processor for more of one cell than of another. But they
        # leave each its fastest I/O.
        local, wired, wifi, wired_esp, wifi_esp = map(fastest_ns, records)
        assert local < wired < wifi and wired_esp < wifi_esp
        for record in records[1:]:
            assert 0 < speed(record) <= MORE_THAN_SHAPED[record.column.link]
    # One 4K read a round trip: 100 us of delay on the wire, 1.4 ms in the air, and no way around either.
    assert fastest_ns(matrix.records["wired.rand-read-4k.r1"]) > 100e3
    assert fastest_ns(matrix.records["wifi.rand-read-4k.r1"]) > 1.4e6


def test_ipsec_is_proved_by_counters_and_capture(matrix: Measured) -> None:
    assert len(protected(matrix)) == 4
    for record in protected(matrix):
        proof = record.proof
        assert proof is not None
        carried = (proof.protected_bytes, proof.protected_bytes_initiator, proof.protected_bytes_target)
        assert min(carried) >= moved(record) > 0
        assert min(proof.link_bytes_initiator, proof.link_bytes_target) > proof.protected_bytes
        assert proof.cleartext_segments == proof.rekeys == 0
        assert is_sampled(proof)


def test_without_ipsec_there_is_no_esp_and_local_has_no_link(matrix: Measured) -> None:
    for key, record in matrix.records.items():
        if record.column.link == "local":
            assert record.proof is None and not record.session, key
        elif record.column.ipsec == "off":
            assert record.proof is not None
            assert record.proof.protected_bytes == record.proof.packets_sampled == 0
            assert min(record.proof.link_bytes_initiator, record.proof.link_bytes_target) >= moved(record)


def test_records_carry_what_was_negotiated(matrix: Measured) -> None:
    for key, record in matrix.records.items():
        if record.column.link == "local":
            continue
        asked = {"immediate_data": "1", "initial_r2t": "1", "max_burst_len": "262144"}
        asked |= {"first_burst_len": "65536", "header_digest": "0", "data_digest": "0"}
        assert {name: record.session[name] for name in asked} == asked, key
        assert int(record.session["queue_depth"]) > 0
        assert record.emulated and record.link_title
    for record in protected(matrix):
        assert record.column.mode == "transport"
        assert record.agreed["aes128gcm16"]["algorithm"] == "rfc4106(gcm(aes))"
        assert record.agreed["aes128gcm16"]["mode"] == "transport"
        assert "gcm" in record.agreed["aes128gcm16"]["drivers"]


def test_raw_outputs_are_what_the_record_was_read_from(matrix: Measured) -> None:
    plan = RunFolder(matrix.folder).load_plan()
    for key, record in matrix.records.items():
        raw = {Path(name).name: matrix.folder / name for name in record.raw}
        assert {"job.fio", "fio.json"} <= raw.keys(), key
        output = fio.parse(raw["fio.json"].read_text(encoding="utf-8"))
        (job,) = output.jobs
        assert (job.read, job.write) == (record.read, record.write)
        assert job.name == record.workload.name
        given = raw["job.fio"].read_text(encoding="utf-8")
        assert re.search(rf"^\[{record.workload.name}\]$", given, re.MULTILINE)
        assert str(repeat_seed(plan.seed, record.repeat, record.workload.name)) in given
        # fio's own account of its options shows that the file was what it ran.
        reported = json.loads(raw["fio.json"].read_bytes())["jobs"][0]["job options"]
        wanted = dict(line.split("=", 1) for line in given.splitlines() if "=" in line)
        assert all(reported[name] == wanted[name] for name in ("filename", "randseed", "runtime"))
        assert reported["runtime"] == "300000us"
        assert reported["filename"].startswith("/dev/ram" if record.column.link == "local" else "/dev/sd")


def test_environment_tells_what_was_measured_on(matrix: Measured) -> None:
    environment = matrix.environment
    for end in ("initiator", "target"):
        host = environment["hosts"][end]
        assert host["kernel"].startswith("Linux version")
        assert host["cpus"] >= 1 and host["memory"]
        assert {"fio", "open-iscsi", "strongswan", "iproute2"} <= host["tools"].keys()
        assert host["tools"]["fio"].startswith("fio-")
    booted_by = environment["hosts"]["initiator"]["kernel_command_line"]
    assert "linux.uml" in booted_by or re.search(r"\bmem=\d+M\b", booted_by)
    for column in COLUMNS[1:]:
        facts = environment[f"column {column}"]
        # Of each initiator, of which there is one.
        (link,), (session,), (agreed,) = facts["link"], facts["session"], facts["agreed"]
        assert "mtu 1500" in link["initiator_interface"]
        assert session["immediate_data"] == "1"
        assert bool(agreed) == ("+" in column)
    assert "netem" in environment["column wired"]["link"][0]["target_qdisc"]


def test_table_as_json_has_every_cell(matrix: Measured) -> None:
    cells = matrix.table()["cells"]
    found = {(cell["workload"], msgspec.convert(cell["column"], Column)) for cell in cells}
    assert found == {(record.workload.name, record.column) for record in matrix.records.values()}
    for cell in cells:
        label = msgspec.convert(cell["column"], Column).label
        record = matrix.records[f"{label}.{cell['workload']}.r1"]
        assert (cell["status"], cell["n"], cell["unit"]) == ("ok", 1, "MB/s")
        assert cell["value"] == pytest.approx(speed(record) / 1e6)
        if cell["column"]["protection"]:
            assert cell["proof"]["protected_bytes"] >= moved(record)
            assert cell["proof"]["cleartext_segments"] == 0


def test_table_has_the_names_that_users_type(matrix: Measured) -> None:
    done = well(harness_once("table", str(matrix.folder)))
    assert matrix.done.out.strip().startswith(done.out.strip()), "the run ends with the same and its answer"
    assert all(re.search(rf"^{name} +[0-9]", done.out, re.MULTILINE) for name in WORKLOADS)
    assert "Testbed lab" in done.out
    for key, record in matrix.records.items():
        assert f"{speed(record) / 1e6:.2f}" in done.out, key


def test_summary_tells_how_time_was_spent(matrix: Measured, took_s: list[float]) -> None:
    assert "10 measurements (10 ok)" in matrix.done.err
    began = re.search(r"fio began ([\d.]+) s after the start and measured\s+for (\d+)%", matrix.done.err)
    assert began is not None, matrix.done.err
    assert 0 < float(began[1]) < took_s[0]
    fio_ns = sum(record.fio_ns for record in matrix.records.values())
    cells_ns = sum(record.wall_ns for record in matrix.records.values())
    assert 1e-7 * fio_ns / took_s[0] - 1 <= int(began[2]) <= 100 * fio_ns / cells_ns + 1


def test_no_secret_is_written_anywhere(matrix: Measured) -> None:
    reported = re.compile(
        rb"auth\.password(_in)?\s*=|chap_password|secret\s*=|\b0s[A-Za-z0-9+/]{40}|PRIVATE KEY"
        rb"|(auth-trunc|aead|enc|auth) \S+ 0x[0-9a-f]{16}",
        re.IGNORECASE,
    )
    files = [file for file in matrix.folder.rglob("*") if file.is_file()]
    assert len(files) > 40
    for file in files:
        found = reported.search(file.read_bytes())
        assert found is None, f"{file}: {found}"


def test_machine_is_untouched(matrix: Measured, snapshots: list[dict[str, Any]]) -> None:
    well(matrix.done)
    assert machine.differences(*snapshots) == {}
    # Besides the results there is nothing in the folder that was named.
    assert [entry.name for entry in matrix.folder.parent.iterdir()] == [matrix.folder.name]
