"""The lab before it boots: where its files and its memory go, its settings, and the library of its timers."""

from __future__ import annotations

import ipaddress
import os
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from harness.hosts.journal import Journal
from harness.hosts.undo import carry_out
from harness.model import Clock, Column, LabKernel
from harness.model.errors import RequirementError, TestbedError
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.testbeds import testbed
from harness.testbeds.lab import boot, per_host
from harness.testbeds.lab.boot import Lab, require_visible, sandbox
from harness.testbeds.lab.boot.scratch import MIB, ScratchFolder, roomy_folder
from harness.testbeds.lab.per_host import management
from tests.unit.fakes import World
from tests.unit.results_folder import made_plan
from tests.unit.testbeds.refusals import refusal

HOSTILE = ["plain", "a b", "it's", '$(touch PWNED)`touch PWNED`"; touch PWNED', "new\nline", "-n", "ü\\n*?"]
KERNEL = boot.Kernel(binary=Path("/usr/bin/linux.uml"), modules=boot.MODULES)


PLENTY = {"f_flag": 0, "f_bavail": 10**9, "f_frsize": 4096, "f_files": 10**6, "f_favail": 1000}
Taken = Callable[..., int]


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """Which of two folders is taken for so much, if statvfs(2) says this of them instead of ``PLENTY``."""
    monkeypatch.delenv("TMPDIR", raising=False)
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()

    def ask(size_bytes: int = MIB, *given: dict[str, int]) -> int:
        each = dict(zip(map(str, folders), (*given, {}, {}), strict=False))
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**PLENTY | each.get(path, {})))
        return folders.index(roomy_folder(size_bytes, list(each)))

    return ask


def test_the_first_roomy_folder_wins(taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size_bytes, first, number in (
        (512 * MIB, {}, 0),
        (512 * MIB, {"f_bavail": 511 * 256}, 1),
        (512 * MIB, {"f_bavail": 512 * 256}, 0),
        (MIB, {"f_flag": os.ST_NOEXEC}, 1),
        (1, {"f_favail": 0}, 1),
    ):
        assert taken(size_bytes, first) == number, first
    refusal(RequirementError, "no inodes left", taken, 1, {"f_favail": 0}, {"f_favail": 0})
    # The user's choice goes before all others.
    monkeypatch.setenv("TMPDIR", str(tmp_path / "second"))
    assert taken() == 1 and taken(MIB, {}, {"f_bavail": 0}) == 0
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(os, "access", lambda path, _mode: path != str(tmp_path / "first"))
    assert taken() == 1, "the first may not be written"


def test_other_folders_are_passed_by(taken: Taken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    for name in ("a b", "a,b", "a=b", "quo'te", "x\ny", "$x", "relative"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("TMPDIR", name if name == "relative" else str(tmp_path / name))
        assert taken(1) == 0, name
    for name in ("FILE", "MISSING"):
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        assert taken(1) == 0, name
    # Without room all that was tried is named.
    monkeypatch.setenv("TMPDIR", str(tmp_path / "a b"))
    said = r"a folder with 544 MiB free that allows execution.*a b' \(not absolute, or unusual characters.*"
    tried = r"first \(64 MiB free\).*second \(noexec\)"
    little, noexec = {"f_bavail": 64 * 256}, {"f_flag": os.ST_NOEXEC}
    assert "TMPDIR" in refusal(RequirementError, said + tried, taken, 544 * MIB, little, noexec)


def as_init_reads(state: Path, script: str) -> str:
    """What a script prints in place of init.sh: the settings are sourced."""
    argv = ["/bin/sh", "-euc", f'. "$1/settings"; {script}', "sh", str(state)]
    return subprocess.run(argv, capture_output=True, text=True, cwd=state.parent, check=True).stdout


@pytest.mark.parametrize("word", HOSTILE)
def test_the_command_and_the_folders_reach_the_lab_word_by_word(tmp_path: Path, word: str) -> None:
    state, results = tmp_path / "state", tmp_path / "res ults"
    hostile = tmp_path / word.replace("/", "_")
    for folder in (state, results, hostile):
        folder.mkdir()
    boot.write_settings(state, KERNEL, ["printf", "%s|", word, "last"], results=results)
    script = 'test "$STATE" = "$1" || exit 9; printf "%s/" "$RESULTS"; eval "$COMMAND"'
    assert as_init_reads(state, script) == f"yes/{word}|last|"
    assert (state / "results").resolve() == results
    assert (state / "init.sh").read_bytes() == (boot.HERE / "init.sh").read_bytes()
    boot.write_settings(hostile, KERNEL, ["true"])
    assert as_init_reads(hostile, 'printf "%s|%s" "$STATE" "$RESULTS"') == f"{hostile}|"
    assert not (hostile / "results").exists() and not (tmp_path / "PWNED").exists()


def test_what_the_lab_cannot_see_is_refused_and_all_else_let_through(tmp_path: Path) -> None:
    for path in ("/run/user/1000/venv", "/dev/shm/venv", "/proc/self", "/sys", "/run"):
        said = rf"the harness is {path}, which the lab cannot see"
        assert refusal(RequirementError, said, require_visible, Path(path), "the harness")
    (tmp_path / "venv").symlink_to("/dev/shm/venv")
    link = tmp_path / "venv" / "bin"
    refusal(RequirementError, "it has its own /dev", require_visible, link, "the harness")
    for path in ("/home/me/venv", "/usr", "/runner/x", "/developer", "/srv/run/x"):
        require_visible(Path(path), "the harness")


def test_the_scratch_folder_is_private_and_goes(tmp_path: Path) -> None:
    world = World()
    host, folder = world.host("machine"), ScratchFolder(str(tmp_path / "harness-lab-1"))
    folder.acquire(host)
    assert carry_out(folder.undo(), host.run).problems == []
    made, removed = (command.argv for command in world.commands)
    assert made == ("mkdir", "-m", "0700", folder.path)
    assert removed == ("rm", "-rf", "--one-file-system", folder.path)


PANICKED = """\
mount: /mnt/root/run/results: fsconfig() failed: hostfs: Unknown parameter '/tmp/results'.
       dmesg(1) may have more information after failed mount system call.
Kernel panic - not syncing: Attempted to kill init! exitcode=0x00002000
CPU: 0 UID: 0 PID: 1 Comm: sh Not tainted 6.12.101 #1
"""
"""What Debian 13's kernel said where init.sh could not mount the folder of results."""
PANICKED_SAYS = " / ".join(line.strip() for line in PANICKED.splitlines()[:3])


def test_the_console_has_the_status_of_the_command_and_what_led_to_a_panic(tmp_path: Path) -> None:
    console, earlier = tmp_path / "console", f"harness-lab-exit 3\n{PANICKED}"
    lab = Lab(process=Mock(), console=console, begin=len(earlier))
    for said, status, words in (
        (PANICKED, None, PANICKED_SAYS),
        ("Kernel panic - not syncing: no init\nCPU: 0\n", None, "Kernel panic - not syncing: no init"),
        ("booting\nharness-lab-exit 0\nHalting.\n", 0, "booting / harness-lab-exit 0 / Halting."),
        ("harness-lab-exit 1\nharness-lab-exit 137\n", 137, "harness-lab-exit 1 / harness-lab-exit 137"),
        ("a\nb\nc\nd\n", None, "b / c / d"),
        ("it said: Kernel panic\nand went on\n", None, "it said: Kernel panic / and went on"),
        ("", None, "its log is empty"),
        ("can change system call numbers...ptrace: Operation not permitted\n", None, boot.FORBIDS_PTRACE),
    ):
        console.write_text(earlier + said, encoding="utf-8")
        assert (lab.said(), lab.exit_status(), lab.last_words()) == (said.encode(), status, words)


def test_a_run_whose_kernel_panicked_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_plan(RunRequest(links=("local",)))
    (tmp_path / "console.log").write_text("of the run that is gone on with\n" * 9, encoding="utf-8")

    @contextmanager
    def start(*_: object) -> Iterator[SimpleNamespace]:
        with (tmp_path / "console.log").open("a", encoding="utf-8") as console:
            console.write(PANICKED)
        yield SimpleNamespace(poll=lambda: 134)

    monkeypatch.setattr(testbed, "_in_lab", start)
    events = testbed.events(made, tmp_path, Journal(tmp_path / "journal"), tmp_path)
    said = re.escape(f"the lab testbed ended without finishing the run: {PANICKED_SAYS}")
    refusal(TestbedError, rf"^{said} \(its console is in ", list, events)


def test_tools_are_looked_for_while_a_kernel_boots_but_before_one_with_virtual_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    @contextmanager
    def booted(*_: object, **__: object) -> Iterator[Lab]:
        order.append("boots")
        yield Lab(process=Mock(), console=tmp_path / "console")
        order.append("ends")

    monkeypatch.setattr(boot, "booted", booted)
    monkeypatch.setattr(testbed, "_kernel", lambda _plan: KERNEL)
    monkeypatch.setattr(testbed, "_keep_compiled", lambda: None)
    monkeypatch.setattr(testbed, "_note_machine", lambda *_: order.append("noted"))
    real = make_plan(RunRequest(links=("local",)))
    setting = msgspec.structs.replace(real.setting, clock=Clock.VIRTUAL, lab_kernel=LabKernel.CUSTOM)
    for made, first in ((real, "boots"), (msgspec.structs.replace(real, setting=setting), "noted")):
        order.clear()
        with testbed._in_lab(made, tmp_path, tmp_path / "console", Journal(tmp_path / "journal")):
            assert sorted(order) == ["boots", "noted"] and order[0] == first


def test_folders_of_the_machine_are_mounted_by_mount_2() -> None:
    """With libmount 2.39 and later, fsconfig(2) would be tried, which hostfs takes no folder from."""
    lines = (boot.HERE / "init.sh").read_text(encoding="utf-8").splitlines()
    mounts = [line.strip() for line in lines if "-t hostfs" in line]
    assert mounts and all(line.startswith("LIBMOUNT_FORCE_MOUNT2=always mount ") for line in mounts)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of ssh-keygen(1): a public key names the kernel it was made for."""

    def make(path: Path) -> None:
        path.with_suffix(".pub").write_text(f"ssh-ed25519 {path.parent.parent.name}\n", encoding="utf-8")

    monkeypatch.setattr(management, "_make_key", make)


@pytest.mark.usefixtures("keys")
def test_the_first_initiator_knows_all_others_by_their_host_keys(tmp_path: Path) -> None:
    for name in ("initiator1", "target", "initiator2"):
        (tmp_path / name).mkdir()
    client = tmp_path / "initiator1" / "ssh"
    management.make_client(client)
    servers = {peer: tmp_path / peer / "sshd" for peer in ("target", "initiator2")}
    for folder in servers.values():
        sshd, *words = management.serve(folder, client)
        assert Path(sshd).name == "sshd" and words == ["-D", "-e", "-f", str(folder / "config")]
        said = (folder / "config").read_text(encoding="utf-8").splitlines()
        of_keys = f"HostKey {folder}/host_key", f"AuthorizedKeysFile {client}/id.pub"
        assert {*of_keys, "AuthenticationMethods publickey"} <= {*said}
    management.introduce(client, servers)
    known = (client / "known_hosts").read_text(encoding="utf-8")
    assert known == "target ssh-ed25519 target\ninitiator2 ssh-ed25519 initiator2\n"
    config = (client / "config").read_text(encoding="utf-8")
    assert "Host target\n  HostName 198.19.1.1\n  HostKeyAlias target\n" in config
    assert "Host initiator2\n  HostName 198.19.2.2\n  HostKeyAlias initiator2\n" in config
    assert "  StrictHostKeyChecking yes\n" in config
    for folder in (client, *servers.values()):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "config").stat().st_mode & 0o777 == 0o600


def test_the_target_is_between_the_initiators() -> None:
    def addresses(batch: str) -> list[ipaddress.IPv4Interface]:
        return [ipaddress.IPv4Interface(word) for word in batch.split() if word.endswith("/30")]

    ends = {address.ip: address.network for address in addresses(management.target_network(16))}
    assert len(set(ends.values())) == 16
    for number in range(1, 17):
        batch = management.initiator_network(number)
        (address,) = addresses(batch)
        via = ipaddress.IPv4Address(f"198.19.{number}.1")
        assert f"route add 198.19.0.0/16 via {via}\n" in batch
        assert ends[via] == address.network


def boot_per_host(folder: Path) -> None:
    """Boot two kernels, which must not succeed."""
    console, journal = folder / "console.log", Journal(folder / "journal")
    with per_host.booted(["true"], initiators=1, journal=journal, console=console):
        pytest.fail("it booted")


def test_without_sshd_kernels_apart_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None if name == "sshd" else f"{path}/{name}")
    hint = refusal(RequirementError, "over SSH, but sshd of OpenSSH was not found", boot_per_host, tmp_path)
    assert "openssh-server" in hint and list(tmp_path.iterdir()) == []


class Booting:
    """In place of kernels: what each is booted with; ``says`` is what it says at once, by its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, says: dict[str, str]) -> None:
        self.says = says
        self.argv: dict[str, list[str]] = {}
        self.settings: dict[str, str] = {}
        self.ends: dict[str, set[int]] = {}
        monkeypatch.setattr(sandbox, "wrapper", lambda writable: [f"writable={each}" for each in writable])
        monkeypatch.setattr(per_host, "PEERS_DEADLINE_S", 0.2)
        monkeypatch.setattr(boot, "KERNEL", "true")
        monkeypatch.setattr(boot, "MODULES", Path("/"))
        monkeypatch.setattr(boot, "NamespaceHost", World().host)
        monkeypatch.setattr(management, "require_ssh", lambda: None)
        monkeypatch.setattr("harness.hosts.runner.piped", self._piped)
        monkeypatch.setattr("harness.hosts.runner.run", lambda _argv: None)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})

    @contextmanager
    def _piped(self, argv: list[str], *, output: Path, pass_fds: list[int], **_: Any) -> Iterator[Mock]:
        folder = Path(argv[-1])
        self.argv[folder.name] = argv
        self.settings[folder.name] = (folder / "settings").read_text(encoding="utf-8")
        self.ends[folder.name] = {os.fstat(fd).st_ino for fd in pass_fds}
        with output.open("a", encoding="utf-8") as file:
            file.write(self.says.get(folder.name, ""))
        yield Mock(poll=lambda: None)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lab keeps its folder, which is made beforehand: the world's hosts make nothing."""
    monkeypatch.setattr("harness.testbeds.lab.boot.scratch.roomy_folder", lambda _size, _candidates: tmp_path)
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / "harness-lab-00000000").mkdir()
    return tmp_path


def test_few_open_files_are_made_more_or_refused(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(64, 64)]
    monkeypatch.setattr(resource, "getrlimit", lambda _what: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _what, wanted: limits.append(wanted))
    sandbox.require_open_files()
    sandbox.require_open_files()
    assert limits == [(64, 64), (64, sandbox.OPEN_FILES)]

    def boot_it() -> None:
        journal, console = Journal(scratch / "journal"), scratch / "c"
        with boot.booted(["true"], journal=journal, console=console, kernel=KERNEL):
            pytest.fail("it was booted")

    limits[-1] = (64, 64)
    monkeypatch.setattr(resource, "setrlimit", Mock(side_effect=ValueError("not allowed to raise it")))
    refusal(RequirementError, "needs 4096 open files, but the hard limit is 64", boot_it)
    for enough in (sandbox.OPEN_FILES, resource.RLIM_INFINITY):
        limits[-1] = (64, enough)
        sandbox.require_open_files()


@pytest.mark.usefixtures("keys")
def test_each_kernel_has_core_memory_and_trunks(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booting = Booting(monkeypatch, {"initiator1": "hello\nharness-lab-begins\nsaid\n"})
    console, results = scratch / "console.log", scratch / "results"
    console.write_text("of an earlier boot\nharness-lab-begins\n", encoding="utf-8")
    command, journal = ["say", "hello"], Journal(scratch / "journal")
    lab = partial(per_host.booted, command, journal=journal, console=console, results=results)
    with lab(initiators=3, storage_bytes=400 * MIB, mtu_bytes=9000) as booted:
        assert (booted.console, booted.said()) == (console, b"said\n")
    assert list(booting.argv) == ["target", "initiator2", "initiator3", "initiator1"], "the first comes last"
    words = {name: " ".join(argv) for name, argv in booting.argv.items()}
    mine = scratch / "harness-lab-00000000"
    for name, core, mib, trunks, more in (
        ("target", 2, 884, 3, []),
        ("initiator1", 1, 384, 1, [results]),
        ("initiator2", 0, 384, 1, []),
        ("initiator3", 1, 384, 1, []),
    ):
        assert f"taskset -c {core} " in words[name] and f" mem={mib}M " in words[name]
        own = [mine / name, mine, *more]
        assert re.findall("writable=([^ ]*)", words[name]) == list(map(str, own))
        assert words[name].count(":transport=fd,depth=128,mtu=9000,fd=") == len(booting.ends[name]) == trunks
    assert len(set.union(*booting.ends.values())) == 6
    assert "COMMAND='say hello'\nPEERS='target initiator2 initiator3'\n" in booting.settings["initiator1"]
    assert all("PEERS=''\n" in booting.settings[name] for name in ("target", "initiator2", "initiator3"))
    assert (scratch / "console-target.log").exists()


@pytest.mark.usefixtures("keys")
def test_kernels_out_of_reach_say_their_last_words(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Booting(monkeypatch, {"target": "no room\n", "initiator1": "Connection refused\n"})
    said = r"0\.2 s passed before all kernels could be reached over ssh; .*"
    refusal(TestbedError, f"{said}target: no room; initiator1: Connection refused", boot_per_host, scratch)


def test_many_layers_have_more_memory() -> None:
    """Sixteen links filled what eight are content with, and so did seven with nine protections."""
    links = [Column("local"), *(Column(f"link{number}") for number in range(16))]
    stacks = (("macsec",), ("macsec", "wireguard"), ("macsec", "aes128gcm16"), ("wireguard", "aes128gcm16"))
    stacked = [Column(link, stack) for link in ("wired", "wifi") for stack in stacks]
    for columns, layers in ((links[:9], 0), (links, 4), (stacked, 10)):
        made = made_plan(columns=tuple(columns))
        assert testbed.room_bytes(made) == made.storage.backing.size_bytes + layers * boot.LAYER_BYTES


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the driver, and of the library that has a user-mode kernel's timers."""
    folder = tmp_path_factory.mktemp("interrupts")
    sources = [str(boot.HERE / name) for name in ("traced.c", "interrupts.c")]
    here = Path(__file__).parent
    library = ["-shared", "-fPIC", "-o", str(folder / "shims.so"), *sources, "-ldl"]
    preempted = ["-shared", "-fPIC", "-o", str(folder / "preempted.so"), str(here / "preempted.c")]
    driver = ["-o", str(folder / "interrupts"), str(here / "interrupts.c"), "-lrt"]
    for words in (driver, library, preempted):
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", *words], check=True)
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("is_preloaded", [False, True], ids=["machine", "lab"])
@pytest.mark.parametrize(
    ("scenario", "seen"),
    [
        ("idle", "fired 4 early 0"),
        ("poll", "fired 40 early 0 prompt 1"),
        ("busy", "fired 1 early 0"),
        ("process", "fired 1 early 0 during 1"),
        ("futex", "fired 40 early 0 prompt 1"),
        ("off", "fired 0 left 0"),
        ("left", "left 1"),
        ("periodic", "fired 3\nfired 1 early 0"),
    ],
)
def test_timers_fire_once_and_not_early(built: Path, scenario: str, seen: str, is_preloaded: bool) -> None:
    assert _seen(built, scenario, is_preloaded=is_preloaded) == seen


@pytest.mark.thorough
def test_what_only_the_library_has(built: Path) -> None:
    for scenario, seen, without in (
        ("clock", "fired 1 early 0", ""),  # who reads the clock hears of a timer that is due
        ("missed", "woke 1", "woke 0"),  # an interrupt before the sleep ends it; else it is slept through
        ("stopped", "stops STOP USR1", ""),  # who is stopped and goes on does so unseen; else it panics
        ("starting", "ready 1", "ready 0"),  # nor is who is not set up yet taken for one who is
        ("preempted", "fired 1 early 0", ""),  # an interrupt while it sets its timer loses none
    ):
        assert _seen(built, scenario, is_preloaded=True) == seen
        if scenario not in ("clock", "preempted"):
            found = _seen(built, scenario, is_preloaded=False)
            assert found == without if without else found != seen


def _seen(built: Path, scenario: str, *, is_preloaded: bool) -> str:
    libraries = f"{built / 'shims.so'} {built / 'preempted.so'}"
    env = {**os.environ, "LD_PRELOAD": libraries} if is_preloaded else None
    argv = [str(built / "interrupts"), scenario]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return done.stdout.strip()
