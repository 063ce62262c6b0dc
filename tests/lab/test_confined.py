"""What is in the lab cannot get out of it: not root there, and not whatever root made of the lab's kernel."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hosts.journal import Journal
from harness.hosts.state import exclusive
from harness.model.errors import BusyError
from harness.testbeds.lab import boot
from harness.testbeds.lab.boot import sandbox
from tests.lab.cli import COMMAND_DEADLINE_S, PATIENCE_S, PROJECT, ended, python_inside

pytestmark = pytest.mark.lab

EVERYWHERE = ("/etc", "/var/tmp", "/dev/shm", "/tmp", "/run", "/dev", str(PROJECT), str(Path.home()))

IF_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="its namespaces take root")
WHO = pytest.mark.parametrize(
    "uid", [pytest.param(0, id="as root", marks=IF_ROOT), pytest.param(1000, id="as a user")]
)
"""Whom the lab takes us for: root, if it may, makes its namespaces without another user namespace."""

NATIVE = """
import ctypes, os, socket, sys
victim, results, device = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")

def connect():
    socket.socket(socket.AF_UNIX).connect(victim + "/socket")

def new_rights():
    call(libc.unshare(0x10000000 | 0x20000))  # CLONE_NEWUSER, CLONE_NEWNS
    call(libc.mount(b"none", b"/", None, 0x1000 | 0x20, None))  # MS_REMOUNT | MS_BIND, and no MS_RDONLY
    open(victim + "/escaped", "w")

tries = {
    "mount again": lambda: call(libc.mount(b"none", b"/", None, 0x1000 | 0x20, None)),
    "mount over": lambda: call(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None)),
    "unmount what hides": lambda: call(libc.umount2(b"/run", 2)),
    "write a file": lambda: open(victim + "/file", "a"),
    "change a mode": lambda: os.chmod(victim + "/file", 0o777),
    "make a device": lambda: os.mknod(results + "/null", 0o20666, os.makedev(1, 3)),
    "open a device": lambda: os.open(device, os.O_RDWR),
    "speak to a daemon": connect,
    "ask the kernel to connect": lambda: call(libc.syscall(425, 1, ctypes.create_string_buffer(120))),
    "change the machine's kernel": lambda: open("/proc/sys/kernel/hostname", "w"),
    "use a key": lambda: call(libc.syscall(250, 0, -4, 1)),
    "enter the machine's namespaces": lambda: call(libc.setns(os.open("/proc/1/ns/mnt", 0), 0)),
    "change the root": lambda: os.chroot("/tmp"),
    "get new rights": new_rights,
}
for name, attempt in tries.items():
    try:
        attempt()
        print("succeeded:", name)
    except OSError:
        pass
open(results + "/mine", "w").write("may be written")
print("tried all")
"""


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder that nothing in the lab may change, with a file and a daemon's socket."""
    folder = tmp_path / "victim"
    folder.mkdir()
    file = folder / "file"
    file.write_text("as it was", encoding="utf-8")
    file.chmod(0o640)
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(os.path.relpath(folder / "socket"))
        daemon.listen()
        yield folder
    assert sorted(path.name for path in folder.iterdir()) == ["file", "socket"]
    assert (file.read_text(encoding="utf-8"), stat.S_IMODE(file.stat().st_mode)) == ("as it was", 0o640)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


@pytest.fixture
def state() -> Iterator[Path]:
    """Hold the testbed, which somebody else's run may have."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with exclusive("a test") as folder:
                yield folder
                return
        except BusyError:
            assert time.monotonic() < end
            time.sleep(1)


@WHO
def test_root_in_the_lab_changes_nothing_of_the_machine(
    tmp_path: Path, victim: Path, results: Path, state: Path, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    names = [Path(folder, f"escaped-{secrets.token_hex(4)}") for folder in EVERYWHERE]
    console = tmp_path / "console"
    command = python_inside("inside.escape", str(victim), *map(str, names))
    journal = Journal(state / "journal-escape.jsonl")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with boot.booted(command, journal=journal, console=console, results=results) as booted:
        assert booted.process.wait(timeout=COMMAND_DEADLINE_S) == 0, booted.last_words()
    journal.end()
    said = booted.said().decode()
    assert "tried all" in said and "succeeded" not in said, said
    assert not [name for name in names if os.path.lexists(name)]
    assert (results / "mine").read_text(encoding="utf-8") == "may be written"
    assert not (results / "null").exists() and not (results / "hard").exists()


@WHO
def test_a_kernel_that_was_taken_over_changes_nothing_of_the_machine(
    tmp_path: Path, victim: Path, results: Path, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    """Root in the lab may load any module, and be the process on the machine that the lab's kernel is."""
    device = tmp_path / "device"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:  # not on CI, where root is that of a user namespace
        device = Path("/dev/zero")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    attack = (sys.executable, "-I", "-c", NATIVE, str(victim), str(results), str(device))
    done = ended([*sandbox.wrapper([results]), *attack])
    assert (done.status, done.out) == (0, "tried all\n"), done
