"""The answers of stored runs over NVMe/TCP."""

from __future__ import annotations

import re

import pytest

from tests.unit.report.test_summary import joined, require_rows, stored


@pytest.mark.parametrize("name", ["protections", "protections-virtual", "scale-virtual"])
def test_it_has_a_row_for_each_column_with_a_figure_and_a_few_lines_whatever_their_number(name: str) -> None:
    require_rows(name)


def test_several_transports_and_protections_are_named_in_their_rows() -> None:
    lines = stored("protections")
    assert lines[0].startswith("Lab, custom kernel: iSCSI and NVMe/TCP over emulated links, disk in memory")
    names = [re.split(r" {2,}(?!\+)", line)[0] for line in lines[5:9]]
    assert names == ["wired 1 Gbit/s iSCSI", "  + IPsec", "  + WireGuard", "  + MACsec"]
    assert re.fullmatch(r"  \+ IPsec +102 +unclear +23.7 +unclear +5790 +0.17", lines[6])
    words = joined(lines)
    assert "cost of protection (IPsec: aes128gcm16), 95 % interval; unclear: few repeats." in words
    assert "Less sure of wifi iSCSI+IPsec 256K and 5 more (confidence low: the cipher" in words
    virtual = stored("protections-virtual")
    assert re.fullmatch(r"  \+ WireGuard +108 +-4 % +29.0 +-2 % +7080 +0.14", virtual[7])
    assert "Less" not in joined(virtual) and "interval" not in joined(virtual)
    assert "wired 1 Gbit/s, 8 initiators + IPsec  137  -0.5 %" in re.sub(
        r" {3,}", "  ", "\n".join(stored("scale-virtual"))
    )
