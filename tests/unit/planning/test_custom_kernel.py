"""Virtual time, modelled disks and radios in a plan: what goes together, and what the kernel has to be."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness import model
from harness.hosts.journal import Journal
from harness.model import Ciphers, Clock, Column, Job, LabKernel, LinkProfile, OtherKernel, Plan
from harness.model.errors import RequirementError, TestbedError, UsageError
from harness.network import links
from harness.planning import plan
from harness.planning.plan import make_plan
from harness.planning.request import DEFAULT_VIRTUAL_DISK, Kernels, RunRequest
from harness.results.events import CellStarted, writer
from harness.terminal.console import print_plan
from harness.testbeds import testbed
from harness.testbeds.heartbeat import HEARTBEAT, beating
from harness.testbeds.lab import persistent
from harness.testbeds.lab.boot import Kernel
from harness.testbeds.lab.kernels import ciphers, kernel
from tests import flat
from tests.unit.fakes import World
from tests.unit.planning.test_simulated_cpu_costs import composer

OWN, DEBIAN, PORTABLE = LabKernel.CUSTOM, LabKernel.DEBIAN, Ciphers.GENERIC
EMULATED, RADIOS = (False, "WiFi 802.11n"), (True, "WiFi (hwsim, WPA2)")


def is_built(monkeypatch: pytest.MonkeyPatch, *, built: bool = True) -> None:
    def custom_kernel(_key: str = "") -> Kernel:
        if not built:
            raise RequirementError("the custom kernel has not been built", hint="make lab-kernel")
        return Kernel(binary=Path("/linux"), modules=Path("/modules"))

    monkeypatch.setattr(kernel, "custom_kernel", custom_kernel)
    monkeypatch.setattr(kernel, "has_radios", lambda _=None: True)


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    is_built(monkeypatch)


def planned(*links: str, **asked: Any) -> Plan:
    return make_plan(RunRequest(links=links or ("wired",), **asked))


def test_virtual_time_is_the_same_again_by_default() -> None:
    made = planned("local", "wired", virtual_time=True)
    assert made.setting.is_virtual and made.setting.is_custom
    assert made.seed == plan.DEFAULT_VIRTUAL_SEED
    assert made.storage.disk is not None and made.storage.disk.name == DEFAULT_VIRTUAL_DISK
    again = msgspec.json.decode(msgspec.json.encode(made), type=Plan)
    assert again == made, "the profile of the disk is in the plan"
    # A backing that is named takes the place of the disk.
    assert planned(virtual_time=True, backing="ramdisk").storage.disk is None
    assert planned(disk="hdd-7200").setting.lab_kernel is OWN


def wifi(made: Plan) -> tuple[bool, str]:
    """Whether the WiFi of a plan has radios, and what it is called."""
    return made.has_radio(made.links["wifi"]), made.links["wifi"].title


def test_wifi_is_real_where_the_custom_kernel_is_built_and_has_radios(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for lab_kernel, expected in ((OWN, RADIOS), (DEBIAN, EMULATED)):
        is_built(monkeypatch, built=lab_kernel is OWN)
        made = planned("wired", "wifi")
        assert made.setting.lab_kernel is lab_kernel and wifi(made) == expected
        assert not made.has_radio(made.links["wired"])
    is_built(monkeypatch)
    assert wifi(planned("wifi", virtual_time=True)) == RADIOS
    # Kernels per host share a time and no air.
    apart = planned("wifi", virtual_time=True, kernels=Kernels.PER_HOST)
    assert (apart.setting.lab_kernel, apart.setting.clock) == (OWN, Clock.VIRTUAL)
    assert not apart.capabilities.shares_kernel and wifi(apart) == EMULATED
    # Networks of another security are other columns.
    other = planned("local", "wifi", ipsec=("off",), wifi_security=model.Security.WPA3)
    assert [column.label for column in other.columns] == ["local", "wifi-wpa3"]
    assert other.links["wifi-wpa3"].title == "WiFi (hwsim, WPA3)"
    monkeypatch.setattr(kernel, "has_radios", lambda _=None: False)
    assert wifi(planned("wifi", virtual_time=True)) == EMULATED


def test_ciphers_are_the_processors_unless_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned_ciphers(lab_kernel: LabKernel | None = None, **asked: Any) -> Ciphers | None:
        return planned(**asked, **({"lab_kernel": lab_kernel} if lab_kernel else {})).setting.ciphers

    monkeypatch.setattr(kernel, "lacking_instructions", tuple)
    monkeypatch.setattr(ciphers, "cached", lambda: None)
    assert planned_ciphers(OWN) is Ciphers.ACCELERATED
    assert planned_ciphers() is PORTABLE, "Debian's kernel has no others until they are built"
    monkeypatch.setattr(ciphers, "cached", lambda: Kernel(binary=Path("linux"), modules=Path("modules")))
    assert planned_ciphers() is Ciphers.ACCELERATED
    for asked in ({"lab_kernel": OWN}, {}):
        made = planned(**asked, cipher_driver=PORTABLE).setting
        assert (made.lab_kernel, made.ciphers) == (planned(**asked).setting.lab_kernel, PORTABLE)
        apart = planned(**asked, cipher_driver=PORTABLE, kernels=Kernels.PER_HOST)
        assert apart.setting.ciphers is PORTABLE, "each host's kernel"
    monkeypatch.setattr(kernel, "lacking_instructions", lambda: ("aes",))
    assert planned_ciphers(OWN) is planned_ciphers() is PORTABLE


def test_portable_ciphers_are_not_a_persistent_lab_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "lacking_instructions", tuple)
    own = planned(lab_kernel=OWN)
    up = persistent.terms(OWN, kernel.custom_kernel(), own.storage.backing.size_bytes, tmp_path)
    monkeypatch.setattr(persistent, "ask", lambda *_, **_all: SimpleNamespace(terms=up, fault=""))
    assert testbed._persistent_lab(own, tmp_path / own.run_id, tmp_path)[0] is not None
    can, why = testbed._persistent_lab(flat.changed(own, ciphers=PORTABLE), tmp_path / own.run_id, tmp_path)
    assert not can and kernel.GENERIC_CIPHERS in why


def test_a_plan_says_it_and_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def reported(**asked: Any) -> str:
        print_plan(planned(lab_kernel=OWN, **asked))
        return " ".join(capsys.readouterr().out.split())

    monkeypatch.setattr(kernel, "lacking_instructions", tuple)
    assert "ciphers" not in reported()
    assert "testbed lab, custom kernel, generic ciphers, storage" in reported(cipher_driver=PORTABLE)
    monkeypatch.setattr(kernel, "lacking_instructions", lambda: ("aes", "ssse3"))
    assert "generic ciphers (this processor lacks aes, ssse3), storage" in reported()


def test_what_does_not_go_together_or_has_no_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: tuple[tuple[dict[str, Any], str], ...] = (
        ({"virtual_time": True, "lab_kernel": DEBIAN}, "found --lab-kernel debian"),
        ({"virtual_time": True, "testbed": "host"}, "found --testbed host"),
        ({"lab_kernel": DEBIAN, "testbed": "host"}, "--lab-kernel is for the lab"),
        ({"cipher_driver": PORTABLE, "testbed": "host"}, "--cipher-driver generic is for the lab"),
        ({"disk": "ram", "backing": "file"}, "found ram and file"),
        ({"disk": "floppy"}, "floppy"),
    )
    for wrong, said in asked:
        with pytest.raises(UsageError) as refused:
            make_plan(RunRequest(**wrong))
        assert said in refused.value.message and refused.value.hint
    is_built(monkeypatch, built=False)
    needs: list[dict[str, Any]] = [{"virtual_time": True}, {"disk": "ram"}, {"lab_kernel": OWN}]
    for wanted in needs:
        with pytest.raises(RequirementError) as lacking:
            make_plan(RunRequest(**wanted))
        assert "make lab-kernel" in (lacking.value.hint or ""), wanted


def test_the_user_has_the_last_word_on_the_kernel() -> None:
    debians = planned("wifi", lab_kernel=DEBIAN)
    assert debians.setting.lab_kernel is DEBIAN and wifi(debians) == EMULATED
    assert planned().setting.lab_kernel is DEBIAN, "nothing asks for the own"
    apart = planned("wifi", kernels=Kernels.PER_HOST)
    assert apart.setting.lab_kernel is DEBIAN, "its radios could not hear each other"
    assert planned(kernels=Kernels.PER_HOST, lab_kernel=OWN).setting.lab_kernel is OWN


def test_another_kernel_is_named_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    is_built(monkeypatch, built=False)
    other = OtherKernel(key="0123456789ab", release="6.12.117-harness", commit="fedcba987654")
    assert other.name == "6.12.117-harness 0123456789ab"
    found = SimpleNamespace(built=other)
    monkeypatch.setattr(kernel, "named", {"linux-source-6.12": found, other.key: found}.__getitem__)
    for word in ("linux-source-6.12", other.key):
        made = planned(lab_kernel=word).setting
        assert (made.lab_kernel, made.other_kernel) == (OWN, other)
        assert planned(virtual_time=True, lab_kernel=word).setting.other_kernel == other
    with pytest.raises(UsageError, match=r"--lab-kernel 6\.12\.117-harness 0123456789ab is for the lab"):
        planned(lab_kernel="linux-source-6.12", testbed="host")


def test_frame_by_frame_each_frame_pays_its_overhead(tmp_path: Path) -> None:
    profile = LinkProfile(name="x", title="X", emulated=True, rate_bit_s=10**9, delay_us=50)
    assert links.netem(profile, frame_by_frame=True) == "limit 10000 delay 50us rate 1000000000bit 24"
    world = World()
    near = world.host("initiator")
    for frame_by_frame in (False, True):
        world.commands.clear()
        journal = Journal(tmp_path / f"{frame_by_frame}.jsonl")
        place = links.LinkPlace(journal, near, profile, tag="beef", index=0, frame_by_frame=frame_by_frame)
        with links.bring_up(place):
            limited = [c for c in world.commands if c.input and "gso_max_segs 1\n" in c.input]
            assert len(limited) == (2 if frame_by_frame else 0)


def test_what_is_left_to_chance_is_said(tmp_path: Path) -> None:
    made = planned(ipsec=("off",), virtual_time=True)
    lossy = {"wired": msgspec.structs.replace(made.links["wired"], loss_percent=1.0, jitter_us=5.0)}
    cell, host = model.Cell(Column("wired"), "x", 1), World().host("initiator")

    def warnings(of: Plan, *options: tuple[str, str]) -> list[str]:
        return composer(of, tmp_path, host)._sources_of_randomness(cell, Job(name="x", options=options))

    fresh = (("rw", "randread"), ("randrepeat", "0"))
    assert warnings(made, ("rw", "read")) == []
    several = warnings(msgspec.structs.replace(made, links=lossy), *fresh)
    for warning, words in zip(several, ("loses packets", "random jitter", "randrepeat=0"), strict=True):
        assert words in warning
    real = flat.changed(made, links=lossy, virtual_time=False)
    assert warnings(real, *fresh) == [], "in real time nobody expects the same figures twice"


@pytest.mark.parametrize(
    ("is_virtual", "says"), [(True, "virtual time stood still"), (False, "it was not heard of for 0.3 s")]
)
def test_a_guest_is_waited_for_while_its_heart_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_virtual: bool, says: str
) -> None:
    beats, until = itertools.count(), time.monotonic() + 0.5

    @contextlib.contextmanager
    def start(*_: object) -> Iterator[SimpleNamespace]:
        writer(tmp_path / "events.jsonl")(CellStarted("wired.seq-read-4k.r1", 1, 8))
        yield SimpleNamespace(poll=lambda: None)  # it runs for ever

    def sleep(_seconds: float) -> None:
        if time.monotonic() < until:
            (tmp_path / HEARTBEAT).write_text(str(next(beats)), encoding="utf-8")

    monkeypatch.setattr(testbed, "STALL_S", 0.3)
    monkeypatch.setattr(testbed, "_in_lab", start)
    monkeypatch.setattr("harness.testbeds.testbed.time.sleep", sleep)
    made = planned("local", virtual_time=is_virtual)
    with pytest.raises(TestbedError) as stalled:
        list(testbed.events(made, tmp_path, Journal(tmp_path / "journal.jsonl"), tmp_path))
    assert time.monotonic() > until
    assert says in stalled.value.message
    assert "measuring the cell wired.seq-read-4k.r1" in stalled.value.message


def test_a_guest_that_was_stopped_with_its_command_has_not_stalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr("harness.testbeds.testbed.time.monotonic", lambda: clock.now_s)
    pulse = testbed.Pulse(tmp_path, planned("local"))

    def look_until(end_s: float) -> None:
        while clock.now_s < end_s:
            clock.now_s += 1
            pulse.require()

    look_until(150)
    clock.now_s = 9000
    look_until(9030)
    with pytest.raises(TestbedError):
        look_until(9050)


def test_the_heart_beats_and_leaves_nothing(tmp_path: Path) -> None:
    with beating(tmp_path, 0.001):
        end = time.monotonic() + 60
        while not (tmp_path / HEARTBEAT).exists():
            assert time.monotonic() < end
    assert not (tmp_path / HEARTBEAT).exists()
