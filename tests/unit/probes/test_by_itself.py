"""Single operations of a machine: what is asked there, and what broken answers lead to."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from harness.analysis.prices import Operation, Per, Whose
from harness.hosts import remote
from harness.model.errors import RequirementError
from harness.parse.hosts import parse_address
from harness.probes import by_itself

OPERATION = {"part": "kernel", "per": "system call", "ns": 300, "low": 290.0, "high": 320.0, "what": "x"}
MACHINE = {"processor": "a processor", "cores": 4, "kernel": "6.1", "governor": "performance"}
TIMES = [
    {"aead": aead, "operation": operation, "bytes": size, "ns": 1000.0 * (2 - aead) + size * (1 - aead)}
    for aead in (0, 1)
    for operation in ("encrypt", "decrypt")
    for size in (64, 1408)
]
CIPHER = {"processors": 4, "turns": 500, "stretch": 1.5, "times": TIMES}


def answering(monkeypatch: pytest.MonkeyPatch, *answers: tuple[str, str] | None) -> list[Sequence[str]]:
    """Machines that answer so, the last answer again and again; returns what is asked."""
    asked: list[Sequence[str]] = []

    def asked_once(argv: Sequence[str], text: str, *, within_s: float) -> tuple[str, str] | None:
        assert text and within_s > 0
        asked.append(argv)
        return answers[min(len(asked), len(answers)) - 1]

    monkeypatch.setattr(remote, "asked_once", asked_once)
    return asked


def test_operations_and_ciphers_are_prices_of_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps({**MACHINE, "operations": [OPERATION]})
    asked = answering(monkeypatch, (whole, ""), (json.dumps(CIPHER), ""))
    found = by_itself.measure(parse_address("ssh://nas", "target"))
    assert asked[0][0] == "ssh" and "sudo" not in " ".join(asked[0])
    assert (found.processor, found.cores, found.kernel, found.governor) == (*MACHINE.values(),)
    known = found.at(Whose.NONE)
    assert known[Operation("kernel", Per.CALL)].ns == 300
    of_byte = known[Operation("aes256gcm16", Per.BYTE, "encrypt")]
    assert (of_byte.ns, of_byte.high) == (1.0, 1.5)
    assert known[Operation("aes256gcm16", Per.PACKET, "decrypt")].ns == pytest.approx(1000, rel=0.01)


def test_a_kernel_without_ciphers_has_no_prices_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.dumps({**MACHINE, "operations": [OPERATION]})
    answering(monkeypatch, (whole, ""), ("", "rfc4106(gcm(aes)): No such file or directory"))
    assert len(by_itself.measure(parse_address("local", "target")).prices) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "found no answer"),
        (("", "Permission denied (publickey).\x1b[2J"), "Permission denied"),
        (("[]", ""), "expected the times"),
        ((json.dumps({**MACHINE, "operations": [{**OPERATION, "low": 301}]}), ""), "low <= ns <= high"),
        ((json.dumps({**MACHINE, "operations": [{**OPERATION, "per": "mile"}]}), ""), "expected the times"),
    ],
)
def test_other_answers_are_refused_in_a_sentence(
    answer: tuple[str, str] | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(RequirementError) as refused:
        by_itself.measure(parse_address("ssh://nas", "target"))
    assert said in refused.value.message and "\x1b" not in refused.value.message and refused.value.hint
