"""The lab before it boots: where its files and its memory go, its settings, and the library of its timers."""

from __future__ import annotations

import ipaddress
import os
import re
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.hosts.journal import Journal
from harness.hosts.undo import carry_out
from harness.model import Column
from harness.model.errors import RequirementError, TestbedError
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.testbeds import testbed
from harness.testbeds.lab import apart, boot
from harness.testbeds.lab.apart import management
from harness.testbeds.lab.boot import Lab, require_visible, sandbox
from harness.testbeds.lab.boot.scratch import MIB, ScratchFolder, roomy_folder
from tests.unit.fakes import World
from tests.unit.results_folder import made_plan
from tests.unit.testbeds.refusals import refusal

HOSTILE = ["plain", "a b", "it's", '$(touch PWNED)`touch PWNED`"; touch PWNED', "new\nline", "-n", "ü\\n*?"]
KERNEL = boot.Kernel(binary=Path("/usr/bin/linux.uml"), modules=boot.MODULES)


@pytest.fixture(autouse=True)
def _no_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)


class FileSystems:
    """In place of statvfs(2) for two folders: megabytes free, inodes and flags; plenty and none elsewhere."""

    def __init__(self, first: str, second: str) -> None:
        self.folders = (first, second)
        self.free_mib: dict[str, int] = {}
        self.flags: dict[str, int] = {}
        self.inodes: dict[str, int] = {}

    def statvfs(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(
            f_flag=self.flags.get(path, 0),
            f_bavail=self.free_mib.get(path, 10**6) * 256,
            f_frsize=4096,
            f_files=10**6,
            f_favail=self.inodes.get(path, 1000),
        )

    def taken(self, size_bytes: int = MIB) -> int:
        """Which of the folders is taken for so much."""
        return list(map(Path, self.folders)).index(roomy_folder(size_bytes, self.folders))


@pytest.fixture
def file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystems:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    made = FileSystems(str(tmp_path / "first"), str(tmp_path / "second"))
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


def test_the_first_folder_with_room_wins(file_systems: FileSystems, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = file_systems.folders
    assert file_systems.taken(512 * MIB) == 0
    for free_mib, number in ((511, 1), (512, 0)):
        file_systems.free_mib[first] = free_mib
        assert file_systems.taken(512 * MIB) == number
    file_systems.flags[first] = os.ST_NOEXEC
    assert file_systems.taken() == 1
    file_systems.flags.clear()
    # The user's choice goes before all others.
    monkeypatch.setenv("TMPDIR", second)
    assert file_systems.taken() == 1
    file_systems.free_mib[second] = 0
    assert file_systems.taken() == 0
    monkeypatch.delenv("TMPDIR")
    file_systems.inodes[first] = 0
    file_systems.free_mib.clear()
    assert file_systems.taken(1) == 1
    file_systems.inodes[second] = 0
    refusal(RequirementError, "no inodes left", file_systems.taken, 1)
    file_systems.inodes.clear()
    monkeypatch.setattr(os, "access", lambda path, _mode: path != first)
    assert file_systems.taken() == 1, "the first may not be written"


def test_a_choice_that_no_kernel_could_be_reported_is_passed_over(
    tmp_path: Path, file_systems: FileSystems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("", encoding="utf-8")
    for name in ("a b", "a,b", "a=b", "quo'te", "x\ny", "$x", "relative"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("TMPDIR", name if name == "relative" else str(tmp_path / name))
        assert file_systems.taken(1) == 0, name
    for name in ("FILE", "MISSING"):
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        assert file_systems.taken(1) == 0, name


def test_without_room_all_that_was_tried_is_named(
    tmp_path: Path, file_systems: FileSystems, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = file_systems.folders
    (odd := tmp_path / "o dd").mkdir()
    monkeypatch.setenv("TMPDIR", str(odd))
    file_systems.free_mib[first] = 64
    file_systems.flags[second] = os.ST_NOEXEC
    with pytest.raises(RequirementError) as refused:
        roomy_folder(544 * MIB, file_systems.folders)
    tried = (f"{first} (64 MiB free)", f"{second} (noexec)", "o dd' (not absolute, or unusual characters")
    for words in ("a folder with 544 MiB free that allows execution", *tried):
        assert words in refused.value.message
    assert "TMPDIR" in (refused.value.hint or "")


def as_init_reads(state: Path, script: str) -> str:
    """What a script prints in place of init.sh: the settings are sourced."""
    argv = ["/bin/sh", "-euc", f'. "$1/settings"; {script}', "sh", str(state)]
    return subprocess.run(argv, capture_output=True, text=True, cwd=state.parent, check=True).stdout


@pytest.mark.parametrize("word", HOSTILE)
def test_the_command_and_the_folders_reach_the_lab_word_by_word(tmp_path: Path, word: str) -> None:
    """As init.sh reads it: the settings are sourced, the command is evaluated."""
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


@contextmanager
def ended(console: Path, said: str, earlier: str = "") -> Iterator[Lab]:
    """A lab that said this, on a console that an earlier one wrote to."""
    console.write_text(earlier + said, encoding="utf-8")
    with subprocess.Popen(["true"]) as process:
        yield Lab(process=process, console=console, begin=len(earlier))


def test_the_status_of_the_command_is_reported_on_the_console(tmp_path: Path) -> None:
    for earlier, said, status in (
        ("", "", None),
        ("", "booting\nharness-lab-exit 0\nHalting.\n", 0),
        ("", "harness-lab-exit 1\nharness-lab-exit 137\n", 137),
        ("", "Kernel panic - not syncing\n", None),
        ("harness-lab-exit 3\n", "booting\n", None),
    ):
        with ended(tmp_path / "console", said, earlier) as booted:
            assert booted.exit_status() == status
            assert booted.said() == said.encode()


PANICKED = """\
mount: /mnt/root/run/results: fsconfig() failed: hostfs: Unknown parameter '/tmp/results'.
       dmesg(1) may have more information after failed mount system call.
Kernel panic - not syncing: Attempted to kill init! exitcode=0x00002000
CPU: 0 UID: 0 PID: 1 Comm: sh Not tainted 6.12.101 #1
Call Trace:
 [<6002e819>] ? interrupt_end+0x0/0xe0
Aborted"""
"""What Debian 13's kernel said where init.sh could not mount the folder of results."""

PANICKED_SAYS = " / ".join(line.strip() for line in PANICKED.splitlines()[:3])


def test_of_a_panic_the_user_is_reported_what_led_to_it(tmp_path: Path) -> None:
    for said, words in (
        (PANICKED, PANICKED_SAYS),
        ("Kernel panic - not syncing: no init\nCPU: 0\n", "Kernel panic - not syncing: no init"),
        ("a\nb\nc\nd\n", "b / c / d"),
        ("it said: Kernel panic\nand went on\n", "it said: Kernel panic / and went on"),
        ("", "its log is empty"),
        ("can change system call numbers...ptrace: Operation not permitted\n", boot.FORBIDS_PTRACE),
    ):
        with ended(tmp_path / "console", said, f"{PANICKED}\n") as booted:
            assert booted.last_words() == words


def test_a_run_whose_kernel_panicked_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_plan(RunRequest(links=("local",)))
    (tmp_path / "console.log").write_text("of the run that is gone on with\n" * 9, encoding="utf-8")

    @contextmanager
    def start(*_: object) -> Iterator[SimpleNamespace]:
        with (tmp_path / "console.log").open("a", encoding="utf-8") as console:
            console.write(PANICKED)
        yield SimpleNamespace(poll=lambda: 134)

    monkeypatch.setattr(testbed, "_in_lab", start)
    with pytest.raises(TestbedError) as lost:
        list(testbed.events(made, tmp_path, Journal(tmp_path / "journal"), tmp_path))
    assert lost.value.message == f"the lab testbed ended without finishing the run: {PANICKED_SAYS}"


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
    assert (client / "known_hosts").read_text(encoding="utf-8").splitlines() == [
        "target ssh-ed25519 target",
        "initiator2 ssh-ed25519 initiator2",
    ]
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


def boot_apart(folder: Path) -> None:
    """Boot two kernels, which must not succeed."""
    console, journal = folder / "console.log", Journal(folder / "journal")
    with apart.booted(["true"], initiators=1, journal=journal, console=console):
        pytest.fail("it booted")


def test_without_sshd_kernels_apart_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None if name == "sshd" else f"{path}/{name}")
    hint = refusal(RequirementError, "over SSH, but sshd of OpenSSH was not found", boot_apart, tmp_path)
    assert "openssh-server" in hint
    assert list(tmp_path.iterdir()) == []


class Booting:
    """In place of kernels: what each is booted with; ``says`` is what it says at once, by its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, says: dict[str, str]) -> None:
        self.says = says
        self.argv: dict[str, list[str]] = {}
        self.settings: dict[str, str] = {}
        self.ends: dict[str, set[int]] = {}
        monkeypatch.setattr(
            sandbox, "wrapper", lambda writable: [f"writable={folder}" for folder in writable]
        )
        monkeypatch.setattr(apart, "PEERS_DEADLINE_S", 0.2)
        monkeypatch.setattr(boot, "KERNEL", "true")
        monkeypatch.setattr(boot, "MODULES", Path("/"))
        monkeypatch.setattr(boot, "NamespaceHost", World().host)
        monkeypatch.setattr(management, "require_ssh", lambda: None)
        monkeypatch.setattr("harness.hosts.runner.piped", self._piped)
        monkeypatch.setattr("harness.hosts.runner.run", lambda _argv: None)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})

    @contextmanager
    def _piped(
        self, argv: list[str], *, output: Path, env: dict[str, str], pass_fds: list[int]
    ) -> Iterator[SimpleNamespace]:
        del env
        folder = Path(argv[-1])
        self.argv[folder.name] = argv
        self.settings[folder.name] = (folder / "settings").read_text(encoding="utf-8")
        self.ends[folder.name] = {os.fstat(fd).st_ino for fd in pass_fds}
        with output.open("a", encoding="utf-8") as file:
            file.write(self.says.get(folder.name, ""))
        yield SimpleNamespace(poll=lambda: None)


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

    def may_not(_what: int, _wanted: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    def boot_it() -> None:
        journal, console = Journal(scratch / "journal"), scratch / "c"
        with boot.booted(["true"], journal=journal, console=console, kernel=KERNEL):
            pytest.fail("it was booted")

    limits[-1] = (64, 64)
    monkeypatch.setattr(resource, "setrlimit", may_not)
    refusal(RequirementError, "needs 4096 open files, but the hard limit is 64", boot_it)
    for enough in (sandbox.OPEN_FILES, resource.RLIM_INFINITY):
        limits[-1] = (64, enough)
        sandbox.require_open_files()


@pytest.mark.usefixtures("keys")
def test_each_kernel_has_core_memory_and_trunks(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booting = Booting(monkeypatch, {"initiator1": "hello\nharness-lab-begins\nsaid\n"})
    console, results = scratch / "console.log", scratch / "results"
    console.write_text("of an earlier boot\nharness-lab-begins\n", encoding="utf-8")
    with apart.booted(
        ["say", "hello"],
        initiators=3,
        journal=Journal(scratch / "journal"),
        console=console,
        results=results,
        storage_bytes=400 * MIB,
        mtu_bytes=9000,
    ) as booted:
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
    with pytest.raises(TestbedError) as lost:
        boot_apart(scratch)
    assert "0.2 s passed before all kernels could be reached over ssh" in lost.value.message
    assert "target: no room; initiator1: Connection refused" in lost.value.message


def test_many_layers_have_more_memory() -> None:
    """Sixteen links filled what eight are content with, and so did seven with nine protections."""
    links = [Column("local"), *(Column(f"link{number}") for number in range(16))]
    stacks = (("macsec",), ("macsec", "wireguard"), ("macsec", "aes128gcm16"), ("wireguard", "aes128gcm16"))
    stacked = [Column(link, stack) for link in ("wired", "wifi") for stack in stacks]
    for columns, layers in ((links[:9], 0), (links, 4), (stacked, 10)):
        made = made_plan(columns=tuple(columns))
        assert testbed.room_bytes(made) == made.storage.backing.size_bytes + layers * boot.LAYER_BYTES


DRIVER = Path(__file__).with_name("interrupts.c")
"""It sets timers and waits as the kernel does."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the driver, and of the library that has a user-mode kernel's timers."""
    folder = tmp_path_factory.mktemp("interrupts")
    sources = [str(boot.HERE / name) for name in ("traced.c", "interrupts.c")]
    library = ["-shared", "-fPIC", "-o", str(folder / "shims.so"), *sources, "-ldl"]
    for words in (["-o", str(folder / "interrupts"), str(DRIVER), "-lrt"], library):
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
    ):
        assert _seen(built, scenario, is_preloaded=True) == seen
        if scenario != "clock":
            found = _seen(built, scenario, is_preloaded=False)
            assert found == without if without else found != seen


def _seen(built: Path, scenario: str, *, is_preloaded: bool) -> str:
    env = {**os.environ, "LD_PRELOAD": str(built / "shims.so")} if is_preloaded else None
    argv = [str(built / "interrupts"), scenario]
    return subprocess.run(
        argv, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout.strip()
