"""Virtual time, modelled disks and radios in a plan: what goes together, and what the kernel has to be."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from harness.cli.console import print_plan
from harness.hosts.journal import Journal
from harness.model import (
    Cell,
    Ciphers,
    Clock,
    Column,
    Job,
    LabKernel,
    LinkProfile,
    OtherKernel,
    Plan,
    Security,
)
from harness.model.errors import RequirementError, TestbedError, UsageError
from harness.network import links
from harness.planning import plan
from harness.planning.plan import make_plan
from harness.planning.request import DEFAULT_VIRTUAL_DISK, Kernels, RunRequest
from harness.results.events import CellStarted, Event, writer
from harness.results.store import RunFolder
from harness.runs.cells import CellComposer
from harness.runs.columns import Hosts
from harness.testbeds import testbed
from harness.testbeds.heartbeat import HEARTBEAT, beating
from harness.testbeds.lab import persistent
from harness.testbeds.lab.boot import Kernel
from harness.testbeds.lab.kernels import ciphers, kernel
from tests import flat
from tests.unit.fakes import World


def is_built(monkeypatch: pytest.MonkeyPatch, *, built: bool) -> None:
    def own_kernel(key: str = "") -> Kernel:
        del key
        if not built:
            raise RequirementError("the lab's own kernel has not been built", hint="make lab-kernel")
        return Kernel(binary=Path("/linux"), modules=Path("/modules"))

    monkeypatch.setattr(kernel, "own_kernel", own_kernel)
    monkeypatch.setattr(kernel, "has_radios", lambda _=None: True)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    is_built(monkeypatch, built=True)


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    is_built(monkeypatch, built=False)


# Plans


@pytest.mark.usefixtures("built")
def test_virtual_time_is_the_same_again_by_default() -> None:
    made = make_plan(RunRequest(links=("local", "wired"), virtual_time=True))
    assert made.setting.is_virtual and made.setting.is_own
    assert made.seed == plan.DEFAULT_VIRTUAL_SEED
    assert made.storage.disk is not None and made.storage.disk.name == DEFAULT_VIRTUAL_DISK
    again = msgspec.json.decode(msgspec.json.encode(made), type=Plan)
    assert again == made, "the profile of the disk is in the plan"


@pytest.mark.usefixtures("built")
def test_a_backing_that_is_named_takes_the_place_of_the_disk() -> None:
    assert make_plan(RunRequest(links=("wired",), virtual_time=True, backing="ramdisk")).storage.disk is None
    assert make_plan(RunRequest(links=("wired",), disk="hdd-7200")).setting.lab_kernel is LabKernel.OWN


@pytest.mark.usefixtures("built")
def test_wifi_is_emulated_where_the_own_kernel_has_no_radios(monkeypatch: pytest.MonkeyPatch) -> None:
    request = RunRequest(links=("wifi",), virtual_time=True)
    made = make_plan(request)
    assert made.has_radio(made.links["wifi"]) and "hwsim" in made.links["wifi"].title
    monkeypatch.setattr(kernel, "has_radios", lambda _=None: False)
    made = make_plan(request)
    assert not made.has_radio(made.links["wifi"]) and made.links["wifi"].title == "WiFi 802.11n"


@pytest.mark.usefixtures("built")
def test_ciphers_are_the_processors_unless_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    own = RunRequest(links=("wired",), lab_kernel=LabKernel.OWN)
    debian = RunRequest(links=("wired",))
    monkeypatch.setattr(kernel, "lacking_instructions", tuple)
    monkeypatch.setattr(ciphers, "cached", lambda: None)
    assert make_plan(own).setting.ciphers is Ciphers.MACHINE
    assert make_plan(debian).setting.ciphers is Ciphers.PORTABLE, (
        "Debian's kernel has no others until they are built"
    )
    monkeypatch.setattr(ciphers, "cached", lambda: Kernel(binary=Path("linux"), modules=Path("modules")))
    assert make_plan(debian).setting.ciphers is Ciphers.MACHINE
    for each in (own, debian):
        portable = msgspec.structs.replace(each, cipher_driver=Ciphers.PORTABLE)
        made = make_plan(portable)
        assert (made.setting.lab_kernel, made.setting.ciphers) == (
            make_plan(each).setting.lab_kernel,
            Ciphers.PORTABLE,
        )
        apart = msgspec.structs.replace(portable, kernels=Kernels.APART)
        assert make_plan(apart).setting.ciphers is Ciphers.PORTABLE, "each host's kernel"
    monkeypatch.setattr(kernel, "lacking_instructions", lambda: ("aes",))
    assert make_plan(own).setting.ciphers is make_plan(debian).setting.ciphers is Ciphers.PORTABLE


@pytest.mark.usefixtures("built")
def test_portable_ciphers_are_not_those_of_a_persistent_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "lacking_instructions", tuple)
    own = make_plan(RunRequest(links=("wired",), lab_kernel=LabKernel.OWN))
    portable = flat.changed(own, ciphers=Ciphers.PORTABLE)
    up = persistent.terms(LabKernel.OWN, kernel.own_kernel(), own.storage.backing.size_bytes, tmp_path)
    monkeypatch.setattr(persistent, "ask", lambda *_, **_all: SimpleNamespace(terms=up, fault=""))
    found = [testbed._persistent_lab(plan, tmp_path / plan.run_id, tmp_path) for plan in (own, portable)]
    assert found[0][0] is not None
    can, why = found[1]
    assert not can and kernel.PORTABLE_CIPHERS in why


@pytest.mark.usefixtures("built")
def test_a_plan_tells_of_portable_ciphers_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = RunRequest(links=("wired",), lab_kernel=LabKernel.OWN)
    monkeypatch.setattr(kernel, "lacking_instructions", tuple)
    print_plan(make_plan(own))
    assert "ciphers" not in capsys.readouterr().out
    print_plan(make_plan(msgspec.structs.replace(own, cipher_driver=Ciphers.PORTABLE)))
    assert "testbed lab, own kernel, portable ciphers, storage" in capsys.readouterr().out
    monkeypatch.setattr(kernel, "lacking_instructions", lambda: ("aes", "ssse3"))
    print_plan(make_plan(own))
    reported = "portable ciphers (this processor lacks aes, ssse3), storage"
    assert reported in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("unbuilt")
@pytest.mark.parametrize(
    "request_",
    [
        RunRequest(virtual_time=True),
        RunRequest(disk="ram"),
        RunRequest(lab_kernel=LabKernel.OWN),
    ],
)
def test_what_needs_the_kernel_says_how_to_get_it(request_: RunRequest) -> None:
    with pytest.raises(RequirementError) as refused:
        make_plan(request_)
    assert refused.value.hint and "make lab-kernel" in refused.value.hint


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (RunRequest(virtual_time=True, lab_kernel=LabKernel.DEBIAN), "found --lab-kernel debian"),
        (RunRequest(virtual_time=True, testbed="host"), "found --testbed host"),
        (RunRequest(lab_kernel=LabKernel.DEBIAN, testbed="host"), "--lab-kernel is for the lab"),
        (
            RunRequest(cipher_driver=Ciphers.PORTABLE, testbed="host"),
            "--cipher-driver portable is for the lab",
        ),
        (RunRequest(disk="ram", backing="file"), "found ram and file"),
        (RunRequest(disk="floppy"), "floppy"),
    ],
)
def test_what_does_not_go_together_is_refused(request_: RunRequest, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        make_plan(request_)
    assert said in refused.value.message and refused.value.hint


@pytest.mark.usefixtures("built")
def test_kernels_apart_share_a_time_and_no_air() -> None:
    made = make_plan(RunRequest(links=("wifi",), virtual_time=True, kernels=Kernels.APART))
    assert (made.setting.lab_kernel, made.setting.clock, made.traits.shares_kernel) == (
        LabKernel.OWN,
        Clock.VIRTUAL,
        False,
    )
    assert not made.has_radio(made.links["wifi"])
    assert made.links["wifi"].title == "WiFi 802.11n"


@pytest.mark.parametrize("built", [True, False])
def test_wifi_is_real_where_the_kernel_is_built(monkeypatch: pytest.MonkeyPatch, built: bool) -> None:
    is_built(monkeypatch, built=built)
    made = make_plan(RunRequest(links=("wired", "wifi")))
    assert made.setting.lab_kernel is (LabKernel.OWN if built else LabKernel.DEBIAN)
    assert made.has_radio(made.links["wifi"]) is built and not made.has_radio(made.links["wired"])
    assert made.links["wifi"].title == ("WiFi (hwsim, WPA2)" if built else "WiFi 802.11n")


@pytest.mark.usefixtures("built")
def test_the_user_has_the_last_word_on_the_kernel() -> None:
    debians = make_plan(RunRequest(links=("wifi",), lab_kernel=LabKernel.DEBIAN))
    assert debians.setting.lab_kernel is LabKernel.DEBIAN and debians.links["wifi"].title == "WiFi 802.11n"
    assert make_plan(RunRequest(links=("wired",))).setting.lab_kernel is LabKernel.DEBIAN, (
        "nothing asks for the own"
    )
    apart = make_plan(RunRequest(links=("wifi",), kernels=Kernels.APART))
    assert apart.setting.lab_kernel is LabKernel.DEBIAN, "its radios could not hear each other"
    nvme = RunRequest(links=("wired",), kernels=Kernels.APART, transports=("nvme-tcp",))
    assert make_plan(nvme).setting.lab_kernel is LabKernel.OWN
    own = RunRequest(links=("wired",), kernels=Kernels.APART, lab_kernel=LabKernel.OWN)
    assert make_plan(own).setting.lab_kernel is LabKernel.OWN


@pytest.mark.usefixtures("unbuilt")
def test_another_kernel_is_named_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    other = OtherKernel(key="0123456789ab", release="6.12.117-harness", commit="fedcba987654")
    assert other.name == "6.12.117-harness 0123456789ab"
    found = SimpleNamespace(built=other)
    monkeypatch.setattr(kernel, "named", {"linux-source-6.12": found, other.key: found}.__getitem__)
    for word in ("linux-source-6.12", other.key):
        made = make_plan(RunRequest(links=("wired",), lab_kernel=word))
        assert (made.setting.lab_kernel, made.setting.other_kernel) == (LabKernel.OWN, other)
        assert (
            make_plan(RunRequest(links=("wired",), virtual_time=True, lab_kernel=word)).setting.other_kernel
            == other
        )
    with pytest.raises(UsageError, match=r"--lab-kernel 6\.12\.117-harness 0123456789ab is for the lab"):
        make_plan(RunRequest(links=("wired",), lab_kernel="linux-source-6.12", testbed="host"))


@pytest.mark.usefixtures("built")
def test_networks_of_another_security_are_other_columns() -> None:
    made = make_plan(RunRequest(links=("local", "wifi"), ipsec=("off",), wifi_security=Security.WPA3))
    assert [column.label for column in made.columns] == ["local", "wifi-wpa3"]
    assert made.links["wifi-wpa3"].title == "WiFi (hwsim, WPA3)"


# Links


def test_frame_by_frame_each_frame_pays_its_overhead(tmp_path: Path) -> None:
    profile = LinkProfile(name="x", title="X", emulated=True, rate_bit_s=10**9, delay_us=50)
    assert links.netem(profile, frame_by_frame=True) == "limit 10000 delay 50us rate 1000000000bit 24"
    world = World()
    near = world.host("initiator")
    for frame_by_frame in (False, True):
        world.commands.clear()
        journal = Journal(tmp_path / f"{frame_by_frame}.jsonl")
        with links.bring_up(
            links.LinkPlace(journal, near, profile, tag="beef", index=0, frame_by_frame=frame_by_frame)
        ):
            limited = [c for c in world.commands if c.input and "gso_max_segs 1\n" in c.input]
            assert len(limited) == (2 if frame_by_frame else 0)


# Randomness


@pytest.mark.usefixtures("built")
def test_what_is_left_to_chance_is_said(tmp_path: Path) -> None:
    made = make_plan(RunRequest(links=("wired",), ipsec=("off",), virtual_time=True))
    lossy = msgspec.structs.replace(made.links["wired"], loss_percent=1.0, jitter_us=5.0)
    host = World().host("initiator")
    cell = Cell(Column("wired"), "x", 1)
    repeatable = Job(name="x", options=(("rw", "read"),))
    fresh = Job(name="x", options=(("rw", "randread"), ("randrepeat", "0")))

    def warnings(of: Plan, workload: Job) -> list[str]:
        composer = CellComposer(
            of,
            RunFolder(tmp_path),
            lambda _event: None,
            hosts=Hosts(target=host, initiators=(host,)),
            journal=Journal(tmp_path / "journal.jsonl"),
            private=tmp_path,
        )
        return composer._sources_of_randomness(cell, workload)

    assert warnings(made, repeatable) == []
    several = warnings(msgspec.structs.replace(made, links={"wired": lossy}), fresh)
    assert [words.rpartition(": ")[2] for words in several] == [
        "its link loses packets at random",
        "its link delays packets by random jitter",
        "its workload has randrepeat=0",
    ]
    real = flat.changed(made, links={"wired": lossy}, virtual_time=False)
    assert warnings(real, fresh) == [], "in real time nobody expects the same figures twice"


# A stalled guest


class Guest:
    """A process that runs for ever."""

    def poll(self) -> int | None:
        return None


@pytest.fixture
def watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: None
) -> Iterator[tuple[Path, Iterator[Event]]]:
    del built
    made = make_plan(RunRequest(links=("local",), virtual_time=True))
    monkeypatch.setattr(testbed, "STALL_S", 0.3)

    @contextlib.contextmanager
    def start(*_: object) -> Iterator[Guest]:
        writer(tmp_path / "events.jsonl")(CellStarted("wired.seq-read-4k.r1", 1, 8))
        yield Guest()

    monkeypatch.setattr(testbed, "_in_lab", start)
    yield tmp_path, testbed.events(made, tmp_path, Journal(tmp_path / "journal.jsonl"), tmp_path)


def test_a_guest_whose_time_stands_still_is_named(watched: tuple[Path, Iterator[Event]]) -> None:
    _, events = watched
    with pytest.raises(TestbedError) as stalled:
        list(events)
    assert "virtual time stood still" in stalled.value.message
    assert "measuring the cell wired.seq-read-4k.r1" in stalled.value.message


def test_a_beating_heart_is_waited_for(
    watched: tuple[Path, Iterator[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, events = watched
    beats = itertools.count()
    until = time.monotonic() + 0.5

    def sleep(_seconds: float) -> None:
        if time.monotonic() < until:
            (folder / HEARTBEAT).write_text(str(next(beats)), encoding="utf-8")

    monkeypatch.setattr("harness.testbeds.testbed.time.sleep", sleep)
    with pytest.raises(TestbedError):
        list(events)
    assert time.monotonic() > until


def test_the_heart_beats_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.testbeds.heartbeat.BEAT_S", 0.001)
    with beating(tmp_path):
        end = time.monotonic() + 60
        while not (tmp_path / HEARTBEAT).exists() and time.monotonic() < end:
            pass
        assert (tmp_path / HEARTBEAT).exists()
    assert not (tmp_path / HEARTBEAT).exists()
