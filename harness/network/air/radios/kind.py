"""The links of a run over simulated radios: for each, its own three radios and its own network."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from harness.model import Security
from harness.network.air.kind import AirKind
from harness.network.air.radios import wifi
from harness.network.links import Folders, LinkPlace

RADIOS_PER_PATH = 3
"""The station's, the access point's, and one that listens."""


def radios(paths: int) -> wifi.Radios:
    return wifi.Radios(RADIOS_PER_PATH * paths)


@contextlib.contextmanager
def bring_up(place: LinkPlace, security: Security, number: int, folders: Folders) -> Iterator[wifi.WifiPath]:
    if place.profile.radio is None:
        raise AssertionError(f"{place.profile.name} has no radio")
    first, listening = RADIOS_PER_PATH * number, f"h{place.tag}s{place.index}"
    network = wifi.Network(
        ssid=f"harness-{place.tag}-{place.index}", standard=place.profile.radio, security=security
    )
    with contextlib.ExitStack() as stack:
        path, association, breaks = stack.enter_context(
            wifi.bring_up(place, network, folder=folders.private, logs=folders.logs, first_radio=first)
        )
        wifi.place_radio(place.initiator, first + 2, listening, None)
        file = next(f for n in itertools.count(1) if not (f := folders.logs / f"air-{n}.pcap").exists())
        listener = stack.enter_context(
            wifi.sniffer(place.initiator, listening, network.frequency_mhz, association.bssid, file=file)
        )
        yield wifi.WifiPath(path=path, association=association, listener=listener, breaks=lambda: breaks)


OFFERED = (AirKind(name="hwsim", radios=radios, bring_up=bring_up),)
