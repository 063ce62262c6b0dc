"""Targets with a cache are found out by reads alone, those without one are not (docs/nas.md)."""

from __future__ import annotations

import msgspec
import pytest

from harness.analysis.reread import judge
from harness.model.reread import Samples, Sign, Suspicion
from tests.lab.cli import harness, python_inside, run_inside, well
from tests.lab.inside.caches import TARGETS, Judged

pytestmark = [pytest.mark.lab, pytest.mark.custom_kernel]

SLOW = ("sata-ssd", "hdd-7200")
"""Disks that take longer than memory behind a slow core may."""


def judged(link: str, names: str = "", *, virtual_time: bool = True) -> list[Judged]:
    clock = ["--virtual-time"] if virtual_time else []
    words = python_inside("inside.caches", link, *filter(None, [names]))
    done = well(harness("lab", "exec", "--kernel", "custom", "--memory", "640", *clock, "--", *words))
    found = [msgspec.json.decode(line, type=Judged) for line in done.out.splitlines()]
    assert [each.target for each in found] == [each for each in TARGETS if each.name.startswith(names)]
    for each in found:
        wrong = Suspicion.NOT_SUSPECTED if each.target.has_cache else Suspicion.SUSPECTED
        assert each.found.verdict is not wrong, each
        # In real time what others take may hide what a disk does.
        assert each.found.verdict is Suspicion.SUSPECTED or not (virtual_time and each.target.has_cache), each
    return found


def test_disks_and_caches_of_one_transport() -> None:
    for each in judged("wired", "iscsi sata-ssd"):
        assert each.target.has_cache or each.found.verdict is Suspicion.NOT_SUSPECTED, each


@pytest.mark.long
@pytest.mark.parametrize("link", ["wired", "wired:rtt=5ms", "wifi"])
def test_disks_and_caches_over_links(link: str) -> None:
    for each in judged(link):
        is_slow = each.target.disk in SLOW and not each.target.has_cache
        assert (each.found.verdict is Suspicion.NOT_SUSPECTED) is is_slow, each


def test_a_disk_says_what_it_has_stored() -> None:
    done = run_inside("inside.provisioned")
    found = msgspec.json.decode(done.out, type=Samples)
    assert found.reported == found.blocks and found.deallocated == found.zeros == 3 * found.blocks // 4
    assert found.provisioning is not None and found.none_ns
    assert Sign.ZEROS in judge(found, 64 << 20).signs


@pytest.mark.long
def test_disks_and_caches_in_real_time() -> None:
    judged("wired", virtual_time=False)
