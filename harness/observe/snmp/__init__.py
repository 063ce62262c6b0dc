"""Hops that answer SNMP."""

from __future__ import annotations

from contextlib import AbstractContextManager

from harness.observe.hops import AskedHop, HopScheme


def _check(text: str) -> None:
    from harness.observe.snmp.hop import parse

    parse(text)


def _connect(text: str, name: str) -> AbstractContextManager[AskedHop]:
    from harness.observe.snmp import hop

    return hop.connect(hop.parse(text), name=name)


OFFERED = (HopScheme(scheme="snmp", check=_check, connect=_connect),)
