"""Hops that answer SNMP."""

from __future__ import annotations

import shutil

import pytest

from tests.lab.cli import ON_CI, run_inside

pytestmark = [pytest.mark.lab, pytest.mark.multi_host]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("snmpbulkwalk") is None and not ON_CI, reason="snmp is not installed")
def test_a_switch_is_asked_by_snmp_alone() -> None:
    run_inside("inside.snmp", said=["a switch: carried "])
