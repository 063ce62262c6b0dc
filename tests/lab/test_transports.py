"""The transports side by side on the custom kernel: plain and protected, proved, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from harness.model import DEFAULT_TRANSPORT, TRANSPORTS, Column, Record, Status, kinds
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from tests.lab.cli import Measured, is_sampled, measure, moved
from tests.lab.square import measure_cells, square

pytestmark = pytest.mark.lab

PROTECTIONS = ("off", "aes128gcm16", "wireguard", "macsec", "macsec+aes128gcm16")
WORKLOADS = ("rand-read-4k", "seq-write-256k")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return measure(
        tmp_path_factory.mktemp("transports"),
        *("--lab-kernel=custom", "--link=local", "--link=wired"),
        *(f"--transport={name}" for name in TRANSPORTS),
        *(f"--protect={name}" for name in PROTECTIONS),
        *(f"--workload={name}" for name in WORKLOADS),
    )


@pytest.mark.custom_kernel
def test_every_cell_is_ok_and_nothing_is_left(matrix: Measured) -> None:
    assert len(matrix.ok()) == len(WORKLOADS) * (1 + len(PROTECTIONS) * len(TRANSPORTS))
    assert "still there" not in matrix.done.err and "not undone" not in matrix.done.err


def require_proofs(records: Iterable[Record]) -> None:
    """Each cell over a link has agreed in its transport's words, and its bytes were on the link, protected if
    they should be."""
    words = {
        "iscsi": "max_burst_len",
        "nvme-tcp": "in_capsule_bytes",
        "nbd": "connections",
    }
    for record in records:
        if record.column.transport is None:
            assert record.session == {}
            continue
        assert words[record.column.transport] in record.session
        proof = record.proof
        assert proof is not None and proof.link_bytes_initiator > moved(record) > 0
        if record.column.protection:
            assert min(proof.protected_bytes_initiator, proof.protected_bytes_target) >= moved(record)
            assert proof.cleartext_segments == proof.other_frames == 0
            assert is_sampled(proof)


@pytest.mark.custom_kernel
def test_each_has_agreed_in_its_own_words_and_is_proved(matrix: Measured) -> None:
    require_proofs(matrix.records.values())


@pytest.mark.custom_kernel
def test_each_cell_is_explained_and_has_its_transports_part(matrix: Measured) -> None:
    matrix.forget_others()
    reported = {(msgspec.convert(c["column"], Column), c["workload"]): c for c in matrix.explain()}
    assert set(reported) == {(record.column, record.workload.name) for record in matrix.records.values()}
    for (column, workload), cell in reported.items():
        missing = [words for words in cell["missing"] if "negotiated" in words or "framing" in words]
        assert not missing, cell
        if not column.is_local and workload == "seq-write-256k":
            assert cell["waterfall_ns"]["transport"] > 0, cell


@pytest.mark.core
@pytest.mark.custom_kernel
def test_each_transport_and_each_protection_has_a_cell_that_is_proved(tmp_path: Path) -> None:
    short = RunRequest(lab_kernel="custom", workloads=WORKLOADS[:1], repeats=1, runtime="0.3s", retries=0)
    columns_of = {"links": ("wired",), "transports": tuple(TRANSPORTS), "protect": PROTECTIONS}
    plan = make_plan(msgspec.structs.replace(short, **columns_of))
    wanted = square(PROTECTIONS, list(TRANSPORTS))
    names = {column: ("+".join(column.protection) or "off", column.transport) for column in plan.columns}
    columns = [column for column, name in names.items() if name in wanted]
    found = measure_cells(tmp_path, plan, [(column, WORKLOADS[0]) for column in columns])
    assert len(found.records) == len(wanted) == len(PROTECTIONS), found.done
    assert {(r.status, r.reason) for r in found.records.values()} == {(Status.OK, None)}, found.done
    require_proofs(found.records.values())


@pytest.mark.core
def test_debians_kernel_has_a_square_and_skips_what_it_lacks(tmp_path: Path) -> None:
    found = measure(
        tmp_path,
        *("--lab-kernel=debian", "--link=wired", "--protect=off", "--protect=on", "--protect=macsec"),
        *(f"--transport={name}" for name in TRANSPORTS),
        f"--workload={WORKLOADS[0]}",
    )
    custom = [name for name, each in kinds.TRANSPORTS.items() if each.needs_custom_kernel]
    lacking = [record for record in found.records.values() if record.column.transport in custom]
    assert {record.status for record in lacking} == {Status.SKIPPED}, found.done
    assert all("harness kernel build" in (record.reason or "") for record in lacking), lacking
    ok = [record for record in found.records.values() if record.column.transport not in custom]
    assert {(record.status, record.reason) for record in ok} == {(Status.OK, None)}, found.done
    assert (len(ok), len(lacking)) == (3 * (len(TRANSPORTS) - len(custom)), 3 * len(custom))
    require_proofs(ok)


@pytest.mark.custom_kernel
@pytest.mark.parametrize("transport", [name for name in TRANSPORTS if name != DEFAULT_TRANSPORT])
@pytest.mark.parametrize(
    "words", [pytest.param((), marks=pytest.mark.long), ("--shared-lun",)], ids=["one each", "a shared one"]
)
def test_several_initiators_with_kernels_of_their_own_each_get_a_disk(
    tmp_path: Path, words: tuple[str, ...], transport: str
) -> None:
    found = measure(
        tmp_path,
        *("--lab-kernel=custom", "--kernels=per-host", "--lab-initiators=2", "--link=wired", "--protect=off"),
        *(f"--transport={transport}", "--workload=rand-read-4k", *words),
    )
    records = found.ok(*(f"wired.{transport}{several}.rand-read-4k.r1" for several in ("", ".x2")))
    assert {record.reason for record in records.values()} == {None}
