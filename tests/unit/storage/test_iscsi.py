"""iSCSI parameters: what may be asked for, in whose words, and that it is what came of it."""

from __future__ import annotations

import json

import pytest

from harness.model import ISCSI, NVME_TCP
from harness.model.errors import RequirementError, UsageError
from harness.parse import parameters
from harness.storage.iscsi.transport import IscsiSides, require_agreed
from tests.unit.fakes import World
from tests.unit.storage.test_nvme import up, wanted


def test_parameters_are_read_as_rfc_7143_writes_them() -> None:
    words = ["InitialR2T=no", "immediatedata=Yes", "MaxBurstLength=64K", "FirstBurstLength=4096"]
    assert parameters.parse(ISCSI, words) == {
        "InitialR2T": "No",
        "ImmediateData": "Yes",
        "MaxBurstLength": "65536",
        "FirstBurstLength": "4096",
    }
    assert parameters.parse(ISCSI, []) == {}
    assert parameters.parse(ISCSI, ["MaxBurstLength=64K", "MaxBurstLength=65536"]) == {
        "MaxBurstLength": "65536"
    }


@pytest.mark.parametrize(
    "words",
    [
        ["MaxBurstLength=511"],
        ["MaxBurstLength=16777216"],
        ["MaxBurstLength=-1"],
        ["MaxBurstLength="],
        ["MaxBurstLength"],
        ["InitialR2T=1"],
        ["HeaderDigest=MD5"],
        ["MaxOutstandingR2T=0"],
        ["queue_depth=129"],
        ["=Yes"],
        ["InitialR2T=Yes; reboot"],
        ["InitialR2T=Yes", "InitialR2T=No"],
        ["FirstBurstLength=8192", "MaxBurstLength=4096"],
    ],
)
def test_what_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        parameters.parse(ISCSI, words)
    assert refused.value.hint


def test_what_the_target_has_no_word_for_is_the_initiators() -> None:
    asked = parameters.parse(ISCSI, ["queue_depth=64", "datadigest=crc32c", "MaxOutstandingR2T=8"])
    assert asked == {"queue_depth": "64", "DataDigest": "CRC32C", "MaxOutstandingR2T": "8"}
    require_agreed(asked, {"queue_depth": "64", "data_digest": "1", "max_outstanding_r2t": "8"})
    with pytest.raises(RequirementError, match="expected DataDigest=CRC32C, but the two ends agreed on 0"):
        require_agreed(asked, {"queue_depth": "64", "data_digest": "0", "max_outstanding_r2t": "8"})
    world = World()
    sides = IscsiSides(up(world).sides, secret="s", nonce="n")  # noqa: S106 (of no target)
    (target,) = sides.exports(wanted(world, parameters=asked))
    made = json.loads(target.make.input)["parameters"]
    assert made["MaxOutstandingR2T"] == "8" and "queue_depth" not in made


def test_parameters_of_nvme_have_names_of_their_own() -> None:
    assert parameters.parse(NVME_TCP, ["queue_size=64", "Header_Digest=yes"]) == {
        "queue_size": "64",
        "header_digest": "Yes",
    }
    for words in (["queue_size=8"], ["InitialR2T=No"], ["queues=0"]):
        with pytest.raises(UsageError):
            parameters.parse(NVME_TCP, words)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        parameters.parse(ISCSI, ["MaxBurstLenght=64K"])
    assert "MaxBurstLength" in f"{refused.value.message}{refused.value.hint}"


def test_what_was_agreed_on_has_to_be_what_was_asked_for() -> None:
    agreed = {"initial_r2t": "1", "max_burst_len": "65536"}
    require_agreed({"InitialR2T": "Yes", "MaxBurstLength": "65536"}, agreed)
    require_agreed({}, {})
    for asked in ({"InitialR2T": "No"}, {"MaxBurstLength": "4096"}, {"ImmediateData": "Yes"}):
        with pytest.raises(RequirementError):
            require_agreed(asked, agreed)
