"""Simulated radios: what the air bears, and what proves it. `test_virtual_time` measures over them, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.lab.cli import measure, on_custom_kernel, python_inside, well
from tests.lab.test_virtual_time import SMALL

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]


@pytest.mark.parametrize(
    ("pair", "virtual_time"),
    [
        *[("802.11ax wpa3", False), ("802.11n wpa2", True)],
        *(pytest.param(pair, False, marks=pytest.mark.long) for pair in ("802.11n wpa2", "802.11ac open")),
        *(pytest.param(pair, True, marks=pytest.mark.long) for pair in ("802.11ac open", "802.11ax wpa3")),
    ],
)
def test_stations_associate_encrypt_and_share_the_air(pair: str, virtual_time: bool) -> None:
    done = well(
        on_custom_kernel(*python_inside("inside.on_the_air", *pair.split()), virtual_time=virtual_time)
    )
    sys.stdout.write(done.out)


@pytest.mark.long
def test_other_protections_of_the_air(tmp_path: Path) -> None:
    words = ("--link", "wifi", "--ipsec", "off", "--virtual-time", "--wifi-security")
    wpa3 = measure(tmp_path / "wpa3", *words, "wpa3", *SMALL).records["wifi-wpa3.rand-read-4k.r1"]
    assert wpa3.proof is not None and wpa3.proof.air is not None
    assert (wpa3.proof.air.key_management, wpa3.proof.air.clear_frames) == ("SAE", 0)
    bare = measure(tmp_path / "open", *words, "open", *SMALL).records["wifi-open.rand-read-4k.r1"]
    assert bare.proof is not None and bare.proof.air is not None
    assert bare.proof.air.cipher == "NONE" and bare.proof.air.clear_frames > 0
    assert bare.proof.air.protected_frames_sampled == 0
