"""iSCSI parameters: what may be asked for, in whose words, and that it is what came of it."""

from __future__ import annotations

import pytest

from harness.model.errors import RequirementError, UsageError
from harness.parse import iscsi
from harness.storage.iscsi import require_agreed
from harness.storage.iscsi.initiator import IscsiSession
from tests.unit.fakes import World


def test_parameters_are_read_as_rfc_7143_writes_them() -> None:
    words = ["InitialR2T=no", "immediatedata=Yes", "MaxBurstLength=64K", "FirstBurstLength=4096"]
    assert iscsi.parse(words) == {
        "InitialR2T": "No",
        "ImmediateData": "Yes",
        "MaxBurstLength": "65536",
        "FirstBurstLength": "4096",
    }
    assert iscsi.parse([]) == {}
    assert iscsi.parse(["MaxBurstLength=64K", "MaxBurstLength=65536"]) == {"MaxBurstLength": "65536"}


@pytest.mark.parametrize(
    "words",
    [
        ["MaxBurstLength=511"],
        ["MaxBurstLength=16777216"],
        ["MaxBurstLength=-1"],
        ["MaxBurstLength="],
        ["MaxBurstLength"],
        ["InitialR2T=1"],
        ["HeaderDigest=None"],
        ["=Yes"],
        ["InitialR2T=Yes; reboot"],
        ["InitialR2T=Yes", "InitialR2T=No"],
        ["FirstBurstLength=8192", "MaxBurstLength=4096"],
    ],
)
def test_what_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        iscsi.parse(words)
    assert refused.value.hint


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        iscsi.parse(["MaxBurstLenght=64K"])
    assert "MaxBurstLength" in f"{refused.value.message}{refused.value.hint}"


def test_the_initiator_asks_before_it_logs_in() -> None:
    world = World()
    asked = {"MaxBurstLength": "65536", "InitialR2T": "No"}
    IscsiSession("iqn.x:y", "198.18.0.2", 3260, "iqn.x:i", parameters=asked).acquire(world.host("initiator"))
    said = [" ".join(command.argv) for command in world.commands if "iscsiadm" in command.argv[0]]
    (login,) = [place for place, line in enumerate(said) if line.endswith("--login")]
    for key, value in (("MaxBurstLength", "65536"), ("InitialR2T", "No")):
        (place,) = [n for n, line in enumerate(said) if f"node.session.iscsi.{key} --value {value}" in line]
        assert place < login


def test_what_was_agreed_on_has_to_be_what_was_asked_for() -> None:
    agreed = {"initial_r2t": "1", "max_burst_len": "65536"}
    require_agreed({"InitialR2T": "Yes", "MaxBurstLength": "65536"}, agreed)
    require_agreed({}, {})
    for asked in ({"InitialR2T": "No"}, {"MaxBurstLength": "4096"}, {"ImmediateData": "Yes"}):
        with pytest.raises(RequirementError):
            require_agreed(asked, agreed)
