"""Protections that are there before a run, on a kernel where they can be made by hand."""

from __future__ import annotations

import pytest

from tests.lab.cli import run_inside

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]


SAID = {
    "wireguard": (
        *("WireGuard by route alone: wireguard proved at one end", "the tunnel is replaced in the middle: "),
        *("with and without: wireguard proved at one end", "the tunnel is gone: no column has its name"),
    ),
    "esp": ("ESP by static keys: aes128gcm16 proved at one end", "the policies go in the middle: invalid"),
    "nested": (
        "ESP within WireGuard: wireguard+aes128gcm16 proved at one end",
        "WireGuard within ESP: aes128gcm16+wireguard proved at one end",
    ),
}


@pytest.mark.parametrize(
    "part", [part if part == "esp" else pytest.param(part, marks=pytest.mark.long) for part in SAID]
)
def test_they_are_proved_at_one_end_and_nothing_else_has_their_name(part: str) -> None:
    run_inside("inside.found_protections", part, kernel="custom", said=SAID[part])
