"""Every kind of protection, alone and within another: one matrix on the custom kernel, each layer proved.

In CI test_transports has one of each kind, and a stack.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Status
from tests.lab.cli import Measured, is_sampled, measure, moved

pytestmark = pytest.mark.lab

STAYS_UP = "debian"
STACKS = (
    *[("wireguard",), ("macsec",), ("aes128gcm16",)],
    *[("macsec", "aes128gcm16"), ("macsec", "wireguard"), ("wireguard", "aes128gcm16")],
)
WORKLOADS = ("rand-read-4k", "seq-write-256k")
LINKS = [
    pytest.param(link, marks=(pytest.mark.custom_kernel, pytest.mark.long)) for link in ("wired", "wifi")
]


@pytest.fixture(scope="module", params=LINKS)
def matrix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """All protections over one link."""
    return measure(
        tmp_path_factory.mktemp("protections"),
        *("--lab-kernel=custom", "--protect=off", *(f"--protect={'+'.join(stack)}" for stack in STACKS)),
        f"--link={request.param}",
        *(f"--workload={name}" for name in WORKLOADS),
    )


def test_every_cell_is_ok(matrix: Measured) -> None:
    assert len(matrix.ok()) == len(WORKLOADS) * (1 + len(STACKS))
    assert "still there" not in matrix.done.err, matrix.done


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_every_layer_is_proved(matrix: Measured, stack: tuple[str, ...]) -> None:
    found = [r for r in matrix.records.values() if r.column.protection == stack]
    assert {record.workload.name for record in found} == set(WORKLOADS)
    for record in found:
        proof = record.proof
        assert proof is not None and list(record.agreed) == list(stack)
        assert min(proof.protected_bytes_initiator, proof.protected_bytes_target) >= moved(record) > 0
        assert proof.cleartext_segments == proof.other_frames == 0
        assert is_sampled(proof)
        assert proof.link_bytes_initiator > proof.protected_bytes
    (of_initiator,) = matrix.environment[f"column {found[0].column.label}"]["positive_control"]
    assert list(of_initiator) == list(stack)
    for shown in of_initiator.values():
        assert min(shown["seen_in_clear"]) > 0 and min(shown["blocked"]) > 0


def test_what_is_stacked_costs_more_bytes(matrix: Measured) -> None:
    """On the link, for each byte of data."""
    spent = {}
    for record in matrix.records.values():
        if record.workload.name == "seq-write-256k" and record.proof is not None:
            spent[record.column.protection] = record.proof.link_bytes_initiator / moved(record)
    assert spent[()] < spent["macsec",] < spent["macsec", "wireguard"]
    assert spent["wireguard",] < spent["macsec", "wireguard"]
    assert spent["aes128gcm16",] < spent["macsec", "aes128gcm16"]


def test_each_cell_is_explained(matrix: Measured) -> None:
    columns = {(record.column.link, *record.column.protection) for record in matrix.records.values()}
    assert {(c["column"]["link"], *c["column"]["protection"]) for c in matrix.explain()} == columns


def test_keys_by_mka(tmp_path: Path) -> None:
    """On a cable the ends agree; WiFi is none."""
    words = ("--link=wired", "--link=wifi", "--protect=macsec-mka", "--workload=rand-read-4k")
    found = measure(tmp_path, *words)
    of = {record.column.link: record for record in found.records.values()}
    wired, proof = of["wired"], of["wired"].proof
    assert (wired.status, wired.agreed["macsec-mka"]["keys"]) == (Status.OK, "MKA"), found.done
    assert proof is not None and is_sampled(proof)
    assert proof.cleartext_segments == proof.other_frames == 0 and proof.protected_bytes >= moved(wired) > 0
    assert of["wifi"].status is Status.SKIPPED and "one cable" in (of["wifi"].reason or "")
