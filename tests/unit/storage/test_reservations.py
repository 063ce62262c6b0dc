"""Who has registered for a logical unit: the answers of targets, as they came."""

from __future__ import annotations

import json

from harness.hosts import programs
from harness.storage import reservations
from harness.storage.reservations import Reservations
from tests.unit.fakes import World

NAME = "iqn.1993-08.org.debian:01:other"
TRANSPORT_ID = (NAME + ",i,0x00023d000001").encode() + bytes(2)
TRANSPORT_ID = bytes((0x45, 0)) + len(TRANSPORT_ID).to_bytes(2) + TRANSPORT_ID
FULL = bytes.fromhex("00000000 00abcdef 00000000 00 15 0000 0000 0001") + bytes(4)
FULL = FULL[:20] + len(TRANSPORT_ID).to_bytes(4) + TRANSPORT_ID
NOTHING = (0, bytes(8))


def listed(data: bytes) -> tuple[int, bytes]:
    return 0, (1).to_bytes(4) + len(data).to_bytes(4) + data


KEYS = listed(bytes.fromhex("0000000000abcdef"))


def test_who_has_registered_is_named() -> None:
    def registered(*full: bytes) -> Reservations:
        return reservations.understood(keys=KEYS, reservation=NOTHING, full=listed(b"".join(full)))

    found = registered(FULL, FULL)
    assert found == Reservations(keys=("0000000000abcdef",), names=(NAME,))
    assert found.in_use == f"1 key for reservations registered by {NAME}"
    assert not found.keeps_readers_out
    # A name of another protocol or none is left out.
    sas = FULL[:20] + (4).to_bytes(4) + bytes((6, 0, 0, 0))
    for full in (sas, FULL[:24], FULL[:20] + bytes(4) + b"x"):
        assert not registered(full).names
    assert registered(sas, FULL).names == (NAME,)


def test_a_reservation_is_named_by_its_type() -> None:
    titles = {1: "Write Exclusive", 3: "Exclusive Access", 9: "9"}
    titles |= {5: f"{titles[1]}, Registrants Only", 6: f"{titles[3]}, Registrants Only"}
    titles |= {7: f"{titles[1]}, All Registrants", 8: f"{titles[3]}, All Registrants"}
    for kind, title in titles.items():
        held = listed(bytes.fromhex(f"0000000000abcdef 00000000 00 {kind:02x} 0000"))
        found = reservations.understood(keys=KEYS, reservation=held, full=(2, b""))
        assert found.in_use == f"it has a persistent reservation ({title})"
        assert found.keeps_readers_out is (kind in (3, 6, 8)), title


def test_nobody_has_registered_or_a_reservation_of_scsi_2_answers_nothing() -> None:
    for status in (-1, 0, 2):
        none = (status, b"")
        found = reservations.understood(keys=none, reservation=(status, bytes(8)), full=none)
        assert found == Reservations() and not found.in_use and not found.keeps_readers_out, status
    for keys, reservation in (((0x18, b""), NOTHING), (NOTHING, (0x18, b""))):
        found = reservations.understood(keys=keys, reservation=reservation, full=NOTHING)
        assert found.in_use.endswith("(RESERVE of SCSI-2)") and found.keeps_readers_out


def test_a_disk_is_asked_on_its_host() -> None:
    source = programs.source("harness.storage", "reservations")
    said = json.dumps({"keys": [0, KEYS[1].hex()], "reservation": [0, ""], "full": [2, ""]})
    world = World(answers=[((programs.PYTHON, "-I", "-S", "-c", source), (0, said, ""))])
    assert reservations.of(world.host("initiator"), "/dev/sda").keys == ("0000000000abcdef",)
    (command,) = world.commands
    assert json.loads(command.input or "") == {"do": "read", "path": "/dev/sda"}
