"""iSCSI parameters: what may be asked for, in whose words, and that it is what came of it."""

from __future__ import annotations

import json

import pytest

from harness.model import ISCSI
from harness.model.errors import RequirementError, UsageError
from harness.parse import parameters
from harness.storage.iscsi.transport import IscsiSides, require_agreed
from tests.unit.fakes import World
from tests.unit.storage.exports import sides, wanted


def test_parameters_are_read_as_their_standard_writes_them() -> None:
    asked = "InitialR2T=no immediatedata=Yes MaxBurstLength=64K FirstBurstLength=4096"
    written = "InitialR2T=No ImmediateData=Yes MaxBurstLength=65536 FirstBurstLength=4096"
    for words, read in (
        *((asked, written), ("", "")),
        ("MaxBurstLength=64K MaxBurstLength=65536", "MaxBurstLength=65536"),
    ):
        found = parameters.parse(ISCSI, words.split())
        assert found == dict(word.split("=") for word in read.split())


@pytest.mark.parametrize(
    "words",
    [
        *(f"MaxBurstLength{value}" for value in ("=511", "=16777216", "=-1", "=", "")),
        *("InitialR2T=1", "HeaderDigest=MD5", "MaxOutstandingR2T=0", "queue_depth=129", "=Yes"),
        *("InitialR2T=Yes; reboot", "InitialR2T=Yes,InitialR2T=No"),
        "FirstBurstLength=8192,MaxBurstLength=4096",
    ],
)
def test_what_cannot_be_is_refused(words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parameters.parse(ISCSI, words.split(","))
    assert refused.value.hint
    with pytest.raises(UsageError) as refused:
        parameters.parse(ISCSI, ["MaxBurstLenght=64K"])
    assert "MaxBurstLength" in f"{refused.value.message}{refused.value.hint}", "a near miss is named"


def test_what_the_target_has_no_word_for_is_the_initiators() -> None:
    asked = parameters.parse(ISCSI, ["queue_depth=64", "datadigest=crc32c", "MaxOutstandingR2T=8"])
    assert asked == {"queue_depth": "64", "DataDigest": "CRC32C", "MaxOutstandingR2T": "8"}
    agreed = {"queue_depth": "64", "data_digest": "1", "max_outstanding_r2t": "8"}
    require_agreed(asked, agreed)
    with pytest.raises(RequirementError, match="expected DataDigest=CRC32C, but the two ends agreed on 0"):
        require_agreed(asked, agreed | {"data_digest": "0"})
    world = World()
    of = IscsiSides(sides(world), secret="s", nonce="n")  # noqa: S106 (of no target)
    (target,) = of.exports(wanted(world, parameters=asked))
    made = json.loads(target.make.input)["parameters"]
    assert made["MaxOutstandingR2T"] == "8" and "queue_depth" not in made


def test_what_was_agreed_on_has_to_be_what_was_asked_for() -> None:
    agreed = {"initial_r2t": "1", "max_burst_len": "65536"}
    require_agreed({"InitialR2T": "Yes", "MaxBurstLength": "65536"}, agreed)
    require_agreed({}, {})
    for asked in ({"InitialR2T": "No"}, {"MaxBurstLength": "4096"}, {"ImmediateData": "Yes"}):
        with pytest.raises(RequirementError):
            require_agreed(asked, agreed)
