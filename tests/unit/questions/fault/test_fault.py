"""A fault in a plan, what became of the requests around it, and which timer decided."""

from __future__ import annotations

import errno
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

import msgspec
import pytest

from harness.hosts import PRIVATE
from harness.hosts.journal import Journal
from harness.model.errors import RequirementError, UsageError
from harness.model.protections import MADE, PROTECTIONS
from harness.model.stalls import LogLine
from harness.network.faults import LinkDown, Reset, WorseLink
from harness.parse.profiles import load_link
from harness.protection import proof
from harness.questions.fault import printed
from harness.questions.fault.around import AroundFault, places
from harness.questions.fault.requests import LoadOutput, LoadReport
from harness.questions.fault.section import (
    KINDS,
    MOMENTARY,
    OF_THE_AIR,
    REBOOT,
    ROAM,
    SECTION,
    Fault,
    Faults,
)
from harness.questions.fault.theory import NONE, StallBounds, expected
from harness.results import rules, sections
from harness.results.metrics import Metric
from harness.runs import around
from harness.runs.columns import ColumnPath
from harness.runs.measure import ConnectedLun
from harness.storage.transport import Disk
from tests.unit.command import harness
from tests.unit.fakes import FakeHost, World
from tests.unit.fakes.answers import DONE
from tests.unit.fakes.paths import link_path
from tests.unit.questions.fault.made import (
    REBOOTED,
    S,
    assert_settings_say,
    cells,
    planned,
    record,
    rows,
    said_of,
    stalled,
)


def test_each_fault_is_a_job_and_timers_are_what_nobody_has_changed() -> None:
    plan = planned("link-down:5s", "loss-100:0.5s", iscsi=("noop_out_interval=2",))
    assert [job.name for job in plan.jobs] == [
        "rand-write-4k-100iops-link-down-5s",
        "rand-write-4k-100iops-loss-100-0.5s",
    ]
    assert SECTION.of(plan).of_jobs[plan.jobs[1].name] == Fault("loss-100", 0.5)
    timers = {"noop_out_interval": "2", "noop_out_timeout": "5", "replacement_timeout": "120"}
    assert plan.parameters["iscsi"] == timers
    assert planned(repeats=8).repeats == 8
    assert plan.repeats == 1 and not any(column.link == "local" for column in plan.columns)
    assert sections.of_plan(plan) is SECTION
    assert all(around.of(plan, cell) is not None for cell in cells(plan))
    assert [*planned(links=()).links] == ["wired"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"fault": ()}, "expected a fault, found none"),
        ({"fault": ("earthquake:5s",)}, "earthquake"),
        ({"fault": ("link-down:20m",)}, "0.1 to 600 s, found link-down:1200s"),
        ({"fault": ("link-down",)}, "0.1 to 600 s, found link-down"),
        ({"fault": ("rekey-ike:5s",)}, "expected rekey-ike without a time"),
        ({"rate": 0}, "1 to 10000"),
        (
            {"ipsec": ("on",), "ike": ("nonsense=1",)},
            "--ike: expected settings of a connection",
        ),
        ({"ipsec": ("on",), "ike": ("dpd_delay=1%",)}, "--ike: expected names as strongSwan"),
        ({"ike": ("dpd_delay=10s",)}, "--ike dpd_delay=10s is for IPsec"),
        ({"links": ("wifi",)}, "expected a cable, full duplex, for link-down, found wifi"),
        (
            {"target": "ssh://root@nas", "links": ("wired=eth0",), "fault": ("out-of-range:5s",)},
            "a lab for out-of-range",
        ),
        ({"depths": (1, 2)}, "--depth is for harness run"),
        ({"over": ("replacement_timeout=5",)}, "--over 'replacement_timeout=5': expected several values"),
        ({"over": ("replacement_timeout",)}, "expected several values"),
        ({"over": ("fast_io_fail_tmo=5,15",)}, "there is no iSCSI parameter 'fast_io_fail_tmo'"),
        (
            {"over": ("replacement_timeout=5,86401",)},
            "replacement_timeout: expected 0 to 86400, found '86401'",
        ),
        (
            {"over": ("replacement_timeout=5,15",), "iscsi": ("replacement_timeout=5",)},
            "replacement_timeout was given twice, with --over and --iscsi",
        ),
        (
            {"over": ("replacement_timeout=5,15", "noop_out_timeout=5,15")},
            "expected one --over for iSCSI, found noop_out_timeout, too",
        ),
        (
            {"over": ("MaxBurstLength=512,64K",), "iscsi": ("FirstBurstLength=1K",)},
            "FirstBurstLength up to MaxBurstLength, found 1024 and 512",
        ),
        ({"testbed": "host"}, "expected machines, or a lab with one kernel"),
        ({"target": "ssh://root@nas", "links": ("wired=eth0",), "fault": ("loss-1:5s",)}, "a lab for loss-1"),
        ({"fault": ("disk-errors:5s",)}, "expected a disk like sata-ssd for disk-errors, found none"),
        (
            {"target": "ssh://root@nas", "links": ("wired=eth0",), "fault": ("hop-down:5s",)},
            "a lab for hop-down",
        ),
        (
            {"fault": ("target-rebooted",)},
            "another machine as the target for target-rebooted, found --testbed",
        ),
        (
            {
                "target": "local",
                "initiators": ("ssh://root@pc",),
                "links": ("wired=eth0",),
                "fault": (REBOOT,),
            },
            "for target-rebooted, found local",
        ),
        (
            REBOOTED | {"backing": "file:/tmp/disk"},
            "a file that outlasts a reboot for target-rebooted, found /tmp/disk",
        ),
        (
            REBOOTED | {"backing": "ramdisk"},
            "a file that outlasts a reboot for target-rebooted, found ramdisk",
        ),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        planned(**asked)
    assert said in refused.value.message, refused.value


def test_each_value_of_a_setting_is_a_cell_of_the_transport_that_has_it() -> None:
    plan = planned("loss-100:5s", "link-down:2s", over=("REPLACEMENT_TIMEOUT=5,15",))
    names = {name: fault.parameters for name, fault in SECTION.of(plan).of_jobs.items()}
    assert [*names][:2] == [
        "rand-write-4k-100iops-loss-100-5s-replacement_timeout-5",
        "rand-write-4k-100iops-loss-100-5s-replacement_timeout-15",
    ]
    assert [each["replacement_timeout"] for each in names.values()] == ["5", "15", "5", "15"]
    assert plan.cells == () and len(plan.places) == 4 and "replacement_timeout" in plan.parameters["iscsi"]
    for cell in cells(plan):
        apart = around.of(plan, cell)
        assert apart is not None and apart.parameters == names[cell.workload]


def test_a_name_without_room_for_the_whole_setting_has_its_value() -> None:
    plan = planned("loss-100-to-initiator:150s", over=("MaxRecvDataSegmentLength=512,16777215",))
    lengths = [(job.name[-12:], len(job.name)) for job in plan.jobs]
    assert lengths == [("recvdata-512", 64), ("rec-16777215", 64)]


@pytest.mark.parametrize("wrong", [{"keep_alive_tmo": "5"}, {"replacement_timeout": "1K"}])
def test_a_damaged_setting_is_refused(wrong: dict[str, str]) -> None:
    plan = planned()
    of_jobs = {job.name: Fault("link-down", 5.0, wrong) for job in plan.jobs}
    with pytest.raises(UsageError, match=next(iter(wrong))):
        rules.check(msgspec.structs.replace(plan, sections=SECTION.within(Faults(of_jobs=of_jobs))))


def test_a_machine_boots_as_often_as_was_asked_for() -> None:
    assert (planned(**REBOOTED).retries, planned(retries=1).retries) == (0, 1)


@pytest.mark.parametrize("name", [name for name in MADE if name != "tls"])
def test_a_target_boots_below_protections_that_are_made_again(name: str) -> None:
    asked = REBOOTED | {"protect": (name,)}
    if PROTECTIONS[name].is_made_again:
        assert (name,) in {column.protection for column in planned(**asked).columns}
    else:
        with pytest.raises(UsageError, match=re.escape(f"found {PROTECTIONS[name].title}")):
            planned(**asked)


def test_a_load_waits_until_charon_has_given_up_who_has_booted() -> None:
    def waits_s(*typed: str) -> float:
        plan = planned(**REBOOTED, ipsec=("on",), ike=typed)
        (job,) = plan.jobs
        of = SECTION.of(plan)
        assert int(dict(job.options)["runtime"].removesuffix("us")) == round((3 + 600 + of.after_s) * 10**6)
        return round(of.after_s)

    assert [waits_s(), waits_s("dpd_delay=0s"), waits_s("dpd_delay=10s")] == [60, 60, 235]


def test_connections_have_trap_policies_unless_asked() -> None:
    def settings(*ike: str) -> dict[str, str]:
        (proposal,) = planned(ipsec=("on",), ike=ike).proposals.values()
        return dict(proposal.settings)

    assert settings() == {"start_action": "trap"}
    assert settings("start_action=none", "dpd_delay=10s") == {"start_action": "none", "dpd_delay": "10s"}


def test_a_damaged_section_is_refused() -> None:
    plan = planned()
    damaged: list[dict[str, object]] = [{}, {plan.jobs[0].name: {"kind": "earthquake", "lasts_s": 5.0}}]
    for changed in damaged:
        with pytest.raises(UsageError):
            rules.check(msgspec.structs.replace(plan, sections={"fault": {"of_jobs": changed}}))


def test_a_stall_is_from_the_first_late_request_until_a_second_on_time() -> None:
    assert stalled((5, 0.001, 0)).stall_ns is None and stalled((5, 0.001, 0)).is_over
    whole = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    assert whole.stall_ns == 5 * S + S // 1000 and whole.late == 500 and whole.longest_ns == S // 5
    # Half a second on time does not end it.
    twice = stalled((3, 0.001, 0), (5, 0.2, 0), (0.5, 0.001, 0), (1, 0.2, 0), (2, 0.001, 0))
    assert twice.stall_ns == 6.5 * S + S // 1000
    # A short one before it is not the stall.
    before = stalled((3, 0.001, 0), (0.2, 0.2, 0), (2, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    assert before.stall_ns == 5 * S + S // 1000 and not stalled((3, 0.001, 0), (1, -1e-9, 0)).is_over
    # Throughput is back when one in twenty is late, and no more.
    assert whole.back_ns == whole.over_ns == 8 * S + S // 1000 and stalled((5, 0.001, 0)).back_ns is None
    some = [(0.19, 0.001, 0), (0.01, 0.2, 0)]
    mostly = stalled((3, 0.001, 0), (2, 0.2, 0), *some * 10, (2, 0.001, 0))
    assert mostly.back_ns == 5 * S + S // 1000 and mostly.stall_ns == 4 * S + S // 1000
    worse = stalled((3, 0.001, 0), (2, 0.2, 0), *[(0.09, 0.001, 0), (0.01, 0.2, 0)] * 10, (2, 0.001, 0))
    assert worse.back_ns == 5.5 * S + S // 1000 and worse.over_ns == 6 * S + S // 1000
    # Requests that fail, that are not sent, and that never end.
    failed = stalled((3, 0.001, 0), (1, -1e-9, errno.EAGAIN), (1, 0.3, errno.EIO), (2, -1e-9, 0))
    assert (failed.stall_ns, failed.is_over, failed.unsent, failed.errnos) == (None, False, 100, {"eio": 100})
    assert failed.first_error_ns == 4 * S + 3 * S // 10


def test_programs_are_told_what_people_are() -> None:
    plan = planned()
    stall = stalled((3, 0.001, 0), (5.2, 0.2, 0), (2, 0.001, 0))
    made = [msgspec.structs.replace(record(stall), run_id=run) for run in (plan.run_id, "another")]
    (answer,) = SECTION.found(plan, made)
    assert answer.record.run_id == plan.run_id and answer.stall == stall
    assert str(answer.by_settings) == "5.0 to 6.2"
    assert answer.by_settings is not None and answer.by_settings.holds(answer.stall)
    assert answer.timers == answer.forecasts == []


def test_the_timer_that_decided_is_the_one_that_the_kernel_names() -> None:
    stall = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    assert said_of(stall) == "wired, link-down:5s: I/O stood still for 5.0 s, 1 ms longer than the fault."
    lost = msgspec.structs.replace(
        stall,
        errnos={"eio": 3},
        first_error_ns=133 * S,
        messages=(
            LogLine(at_ns=13 * S, text=" connection3:0: ping timeout of 5 secs expired"),
            LogLine(at_ns=133 * S, text=" session3: session recovery timed out after 120 secs"),
        ),
    )
    said = said_of(lost, recv_tmo="5", ping_tmo="5", recovery_tmo="120")
    assert "10.0 s after the fault began, noop_out_interval (5 s) + noop_out_timeout (5 s) gave the" in said
    assert said.endswith("replacement_timeout (120 s) failed the requests: it decided.")


def test_repeats_are_one_line_and_the_longest_stall_is_the_first_sentence() -> None:
    same = [record(stalled((3, 0.001, 0), (length_s, 0.2, 0), (2, 0.001, 0))) for length_s in (5, 6, 8)]
    longer = stalled((3, 0.001, 0), (7, 0.2, 0), (2, 0.001, 0))
    other = record(msgspec.structs.replace(longer, fault="loss-1:1s"))
    table = printed.table([*same, other])
    assert "6.00 [5.00, 8.00]" in table and len(table.splitlines()) == 4
    first, second = printed.sentences([*same, other])
    assert first.startswith("wired, loss-1:1s: I/O stood still for 7.0 s")
    assert second.endswith("In 3 repeats: 6.00 [5.00, 8.00] s.")
    never = record(stalled((3, 0.001, 0), (7, 0.2, errno.EIO)))
    assert "[5.00, does not end]" in printed.table([*same, never])
    assert Metric.STALL.figure.read(never) is None and Metric.STALL.figure.read(other) == 7 * S + S // 1000


def set_to(
    value: str, length_s: float, error_s: float | None = None, name: str = "replacement_timeout"
) -> Any:
    """The record of a stall of so long, whose first error came so long after the fault began."""
    stall = stalled((3, 0.001, 0), (length_s, 0.2, 0), (2, 0.001, 0))
    stall = msgspec.structs.replace(stall, parameters={name: value})
    if error_s is not None:
        first_ns = stall.began_ns + round(error_s * S)
        stall = msgspec.structs.replace(stall, errnos={"eio": 7}, first_error_ns=first_ns)
    return record(stall)


def test_settings_are_told_apart_from_low_to_high() -> None:
    made = [set_to("60", 6), set_to("5", 5, 4.1), set_to("15", 7)]
    other = record(
        msgspec.structs.replace(stalled((3, 0.001, 0), (6, 0.2, 0), (2, 0.001, 0)), fault="loss-1:1s")
    )
    table = printed.table([*made, other])
    heading, _, *lines = table.splitlines()
    assert heading.split()[:3] == ["column", "fault", "setting"]
    assert [line.split()[2] for line in lines] == [f"replacement_timeout={n}" for n in (5, 15, 60)] + ["-"]
    assert "7 EIO after 4.1 s" in lines[0] and "none" in lines[1]
    assert "setting " not in printed.table([other])
    said = [sentence.partition(": I/O")[0] for sentence in printed.sentences([other, *made])]
    assert said == [f"wired, link-down:5s, replacement_timeout={n}" for n in (5, 15, 60)] + [
        "wired, loss-1:1s"
    ]
    assert [answer.stall.parameters["replacement_timeout"] for answer in printed.answers(made)] == [
        *("5", "15", "60")
    ]


def test_a_stall_is_drawn_over_a_setting() -> None:
    made = [set_to("60", 6), set_to("5", 5, 4.1), set_to("15", 7)]
    (chart,) = SECTION.charts(made, {})
    assert chart.title == "stall over replacement_timeout" and "replacement_timeout [s]" in chart.body
    assert chart.lines == (
        ("wired, link-down:5s", "stall", "5", "5.00"),
        ("wired, link-down:5s", "first error", "5", "4.10"),
        ("wired, link-down:5s", "stall", "15", "7.00"),
        ("wired, link-down:5s", "stall", "60", "6.00"),
    )
    assert ET.fromstring(f"<svg>{chart.body}</svg>") is not None  # noqa: S314 -- our own
    assert "replacement_timeout=5: first error 4.10 s" in chart.body and chart.body.count('"li') == 2
    # More lines than there are colours are in several pictures; words and no values are in none.
    many = [
        record(msgspec.structs.replace(each.stall, fault=f"loss-100:{n}s")) for n in range(9) for each in made
    ]
    assert [len({line[0] for line in chart.lines}) for chart in SECTION.charts(many, {})] == [8, 1]
    (bytes_of,) = SECTION.charts([set_to("512", 5, name="MaxBurstLength")], {})
    assert ">MaxBurstLength; stall [s]<" in bytes_of.body
    assert SECTION.charts([set_to("CRC32C", 5, name="HeaderDigest")], {}) == []


def test_a_load_is_drawn_over_time_with_its_fault(tmp_path: Path) -> None:
    stall = stalled((3, 0.001, 0), (5, 0.2, 0), (2, 0.001, 0))
    plain = record(stall)
    name = "raw/cell/fio.json"
    made = msgspec.structs.replace(plain, raw=(name,))
    folders = {made.run_id: tmp_path}
    assert SECTION.charts([made], folders) == [], "without the raw output there is no picture"
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert SECTION.charts([made], folders) == []
    load = LoadReport(
        start_ns=0, late_ns=S // 10, rows=rows((3, 0.001, 0), (5, 0.2, errno.EIO), (2, 0.001, 0))
    )
    file.write_bytes(msgspec.json.encode(LoadOutput(around=load)))
    of_setting = set_to("5", 5)
    _, chart = SECTION.charts([msgspec.structs.replace(of_setting, raw=(name,), run_id=made.run_id)], folders)
    assert "answered a second, replacement_timeout=5<" in chart.body
    assert chart.lines[0][0] == "link-down:5s, replacement_timeout=5"
    (chart,) = SECTION.charts([made], folders)
    assert chart.title == "wired, link-down:5s" and chart.lines == (
        ("link-down:5s", "5.00 s", "0.20 s", "500", "0"),
    )
    assert ET.fromstring(f"<svg>{chart.body}</svg>") is not None  # noqa: S314 -- our own
    # Of those that failed there is no latency: 3 s before the fault and 2 s after it, in parts of 0.1 s.
    assert chart.body.count("<circle") == 50


def test_lost_writes_are_the_first_sentence() -> None:
    stall = msgspec.structs.replace(stalled((5, 0.001, 0)), lost=2)
    first, _ = printed.sentences([record(stall)])
    assert first == "wired: 2 acknowledged writes are lost."
    assert "2 of 7" in printed.table([record(stall)])
    assert "not read back" in printed.table([record(msgspec.structs.replace(stall, not_read_back="EIO"))])


def test_the_command_says_what_it_would_do(tmp_path: Path) -> None:
    words = ("--fault", "link-down:5s", "--link", "wired", "--ipsec", "off", "--plan")
    done = harness("fault", *words, cwd=tmp_path)
    assert done.returncode == 0 and "link-down-5s" in done.stdout, done


def down(iface: str, routes: str = "") -> LinkDown:
    return LinkDown(iface, 4, routes)


def lun_of(world: World, **changes: Any) -> ConnectedLun:
    """On a link with a hop, whose layer can lose its keys, and whose target can have an outage."""
    usual: dict[str, Any] = {"profile": load_link("wired"), "hops": (world.host("hop", "harness-beef-3-1"),)}
    path = link_path(world, **usual | changes)
    keys = down("keys")
    layer = mock.Mock(breaks=lambda: dict.fromkeys(KINDS, (path.target, keys)))
    watched = (proof.CapturedLayer(path=path, capture=mock.Mock(), layer=layer),)
    return ConnectedLun(
        up=ColumnPath(link=path, path=path, watched=watched),
        disk=Disk(host=path.initiator, sysfs="/sys/block/sda", expected=()),
        session={},
        outages={"target-down": down("server"), "login-refused": down("login")},
    )


def test_after_a_loss_a_link_loses_what_its_profile_says() -> None:
    profile = msgspec.structs.replace(load_link("wired"), loss_percent=1.0)
    lun = lun_of(World(), profile=profile)
    for _, loss in places("loss-100", lun):
        assert isinstance(loss, WorseLink) and "loss random 100%" in loss.meanwhile
        (step,) = loss.undo()
        assert step.argv[-3:] == ("loss", "random", "1%"), step
    (_, one_way), (_, other_way) = places("loss-10", lun)
    assert isinstance(one_way, WorseLink) and "loss random 10.9%" in one_way.meanwhile
    assert isinstance(other_way, WorseLink) and one_way.iface != other_way.iface


def test_a_fault_of_one_direction_is_at_its_sender() -> None:
    lun = lun_of(World())
    for kind, end in (("loss-100-to-target", "initiator"), ("loss-100-to-initiator", "target")):
        ((host, _),) = places(kind, lun)
        assert host is getattr(lun.link, end)
    both = [resource for _, resource in places("delay-100x", lun)]
    delay_us = load_link("wired").delay_us
    assert all(
        isinstance(each, WorseLink) and f"delay {100 * delay_us:g}us" in each.meanwhile for each in both
    )


def test_a_fault_of_a_protection_needs_one() -> None:
    lun = lun_of(World())
    bare = proof.CapturedLayer(path=lun.link, capture=mock.Mock())
    lun = replace(lun, up=replace(lun.up, watched=(bare,)))
    with pytest.raises(RequirementError, match="that rekey-ike can break, found one with no protection"):
        places("rekey-ike", lun)


def test_an_interface_has_its_routes_again() -> None:
    through = "198.18.3.0/24 via 198.18.3.2 \nfe80::/64 proto kernel metric 256 pref medium\n"
    world = World(answers=[(("ip", "route"), (0, through, ""))])
    ((host, resource),) = places("link-down", lun_of(world))
    up, routes = resource.undo()
    assert host.name == "target" and up.argv[-1] == "up" and routes.argv == ("ip", "-batch", "-")
    assert routes.input.splitlines() == [
        "route replace 198.18.3.0/24 via 198.18.3.2 dev hbeeft3",
        "route replace fe80::/64 proto kernel metric 256 pref medium dev hbeeft3",
    ]


def test_a_hop_that_is_down_is_one_in_the_middle_towards_the_target() -> None:
    world = World()
    hops = tuple(world.host(f"hop{number}", f"harness-beef-3-{number}") for number in (1, 2, 3))
    ((host, resource),) = places("hop-down", lun_of(world, hops=hops))
    assert (host.name, resource) == ("hop2", LinkDown("far", 4, ""))
    with pytest.raises(RequirementError, match="a link with hops that hop-down breaks, found wired"):
        places("hop-down", lun_of(world, hops=()))


@pytest.mark.parametrize("kind", (*OF_THE_AIR, ROAM))
def test_a_fault_of_the_air_needs_radios(kind: str) -> None:
    lun = lun_of(World())
    radios = (lun.path.target, down("radio"))
    over_air = replace(lun, up=replace(lun.up, watched=(), air_path=mock.Mock(breaks=lambda: {kind: radios})))
    bare = replace(lun, up=replace(lun.up, watched=()))
    assert places(kind, over_air) == [radios]
    with pytest.raises(RequirementError, match=f"that {kind} can break, found one with no"):
        places(kind, bare)
    for each in KINDS:
        around_it = AroundFault(Faults(of_jobs={}), Fault(each, 1.0), is_here=True)
        assert around_it.may.breaks_air is (each in (*OF_THE_AIR, ROAM))


def test_a_reset_that_finds_no_connection_is_no_fault() -> None:
    world = World(answers=[(("ss",), DONE)])
    ((host, reset),) = places("connection-reset", lun_of(world))
    with pytest.raises(RequirementError, match="found none"):
        reset.acquire(host)


@pytest.mark.parametrize(
    ("fault", "session", "found"),
    [
        # 5.2 and 31.2 s were measured: first ARP asks each second, and then TCP waits for its next timeout.
        (Fault("link-down", 5.0), {}, StallBounds(5.0, 6.2)),
        (Fault("link-down", 22.0), {}, StallBounds(22.0, 37.0)),
        (Fault("hop-down", 5.0), {}, StallBounds(5.0, 8.7)),
        (Fault("loss-100", 2.0), {}, StallBounds(3.0, 3.6)),
        # Before TCP sends again, iSCSI gives the connection up.
        (Fault("loss-100", 15.0), {"recv_tmo": "5", "ping_tmo": "5"}, None),
        (Fault("target-down", 5.0), {}, StallBounds(5.9, 6.2)),
        (Fault("rekey-child"), {}, NONE),
        (Fault("loss-10", 5.0), {}, None),
    ],
)
def test_settings_say_how_long_a_stall_is(
    fault: Fault, session: dict[str, str], found: StallBounds | None
) -> None:
    assert_settings_say("iscsi", fault, session, found)


@pytest.mark.parametrize(
    ("round_trip_ms", "most_s"),
    # 1.99, 3.03, 3.24 and 3.63 s were measured with wired:rtt=…
    [(0.437, 2.1), (1.137, 3.2), (20.137, 3.4), (50.137, 3.8)],
)
def test_a_login_takes_its_round_trips(round_trip_ms: float, most_s: float) -> None:
    stall = msgspec.structs.replace(stalled((5, 0.001, 0)), fault="connection-reset", ended_ns=3 * S)
    made = record(stall)
    assert made.read is not None
    latency = msgspec.structs.replace(made.read.latency, min_ns=round_trip_ms * 1e6)
    made = msgspec.structs.replace(made, write=msgspec.structs.replace(made.read, latency=latency))
    say = expected(made, stall)
    assert say is not None and (round(say.least_s, 1), round(say.most_s, 1)) == (2.0, most_s)


def test_a_target_that_has_booted_is_made_again_before_the_load_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(
        silent=frozenset({"boot"}),
        answers=[(("ip", "-o"), (0, "2: eth0    inet 198.18.3.2/30 scope global eth0", ""))],
    )
    lun = lun_of(world)
    monkeypatch.setattr(FakeHost, "reboot", lambda host, within_s: host.run(["boot", f"{within_s:g}"]))
    monkeypatch.setattr("harness.questions.fault.around.kernel_of", lambda host: host.name)
    journal = Journal(tmp_path / "journal.jsonl")
    broken = AroundFault(Faults(of_jobs={}, before_s=0.01), Fault(REBOOT), ["nbd nbds_max=0"], is_here=True)
    *_, told, most_s = broken.program.argv
    assert most_s == "60"
    with (
        journal.hold(lun.path.target, down("export")),
        broken.while_it_runs(lun, journal, tmp_path),
    ):
        until = time.monotonic() + 60
        while f"write {told}" not in (said := world.said):
            assert time.monotonic() < until, said
            time.sleep(0.01)
    acts = [said for said in world.said if said.split()[0] in ("boot", "modprobe", "write") or "down" in said]
    made = [said for said in acts if "down" in said]
    assert acts == [made[0], "boot 600", "modprobe nbd nbds_max=0", made[0], f"write {told}"]
    assert not journal.open_entries() and not journal.leaks


def test_a_reboot_that_would_end_more_than_the_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.questions.fault.around.kernel_of", lambda _host: "one")
    with pytest.raises(RequirementError, match="another machine as the target, found this one"):
        places(REBOOT, lun_of(World()))
    monkeypatch.setattr("harness.questions.fault.around.kernel_of", lambda host: host.name)
    (world := World()).secret_files[f"{PRIVATE.parent}/initiator.lock"] = "run-7"
    with pytest.raises(RequirementError, match="a target that no other run uses"):
        places(REBOOT, lun_of(world))


@pytest.mark.parametrize("kind", sorted({*KINDS} - {REBOOT}))
def test_what_breaks_is_whole_again(kind: str, tmp_path: Path) -> None:
    world = World(answers=[(("ss",), (0, "ESTAB", ""))])
    fault = Fault(kind, 0.0 if kind in MOMENTARY else 0.1)
    lun = lun_of(world)
    journal = Journal(tmp_path / "journal.jsonl")
    broken = AroundFault(Faults(of_jobs={}, before_s=0.01), fault, is_here=True)
    with broken.while_it_runs(lun, journal, tmp_path):
        until = time.monotonic() + 60
        while not broken._ended_ns:
            assert time.monotonic() < until, broken
            time.sleep(0.01)
    acts = [command.argv for command in world.commands if command.argv[0] != "daemon"]
    acts = [act for act in acts if "show" not in act and "-batch" not in act]
    # Each but a reset is undone, at each end at which it was done.
    once = sum(isinstance(resource, Reset) for _, resource in places(kind, lun))
    assert len(acts) == 2 * len(places(kind, lun)) - once, acts
    assert len({*acts}) == len(acts), acts
    assert not journal.open_entries() and not journal.leaks
    assert broken._ended_ns - broken._began_ns >= fault.lasts_s * S
