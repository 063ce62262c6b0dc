"""QEMU, which runs Debian's own kernel: a machine's command, and what took long to come to, kept for later.

Without KVM a boot takes a minute of a processor to itself, and what doctor says to install takes several. So
each is done once: what memory and disk are like afterwards is next to the disks, and other machines go on
from there.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.machines.images import Disks

MEMORY_MIB = 1280
SAVING_DEADLINE_S = 120.0
EXIT_BY_ITSELF = b"\xb0\x10\xba\xf4\x00\xee".ljust(510, b"\0") + b"\x55\xaa"
"""A boot sector: mov al, 16; mov dx, 0xf4; out dx, al. QEMU's isa-debug-exit makes it the status 33."""


@functools.cache
def accelerator() -> str:
    """What runs a guest's instructions: ``kvm`` where that works, else ``tcg``.

    Some machines have /dev/kvm, and nothing ever comes of it.
    """
    with tempfile.NamedTemporaryFile() as sector:
        sector.write(EXIT_BY_ITSELF)
        sector.flush()
        argv = [
            *("qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "16", "-nodefaults"),
            *("-display", "none", "-device", "isa-debug-exit", "-drive", f"file={sector.name},format=raw"),
        ]
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run(argv, capture_output=True, timeout=3, check=False).returncode == 33:
                return "kvm"
    return "tcg"


@functools.cache
def _version() -> str:
    """The version of QEMU: one does not always resume what another has saved."""
    said = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[3]


@dataclass(kw_only=True)
class LabState:
    """A machine as it was once: what it had changed on its disk, and its memory."""

    folder: Path

    def __post_init__(self) -> None:
        self.changes, self.memory = self.folder / "changes.qcow2", self.folder / "memory"


def kept(disks: Disks, name: str, stage: str) -> LabState:
    """What a machine was like at a stage, or will be once ``keep`` was called."""
    return LabState(folder=disks.folder / f"{name}.{stage}-{accelerator()}-{_version()}")


def new_changes(base: Path, changes: Path) -> None:
    kind = "qcow2" if base.suffix == ".qcow2" else "raw"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", kind, "-b", str(base), str(changes)]
    subprocess.run(argv, check=True)


def command(
    disks: Disks, changes: Path, taps: Sequence[str], macs: Sequence[str], monitor: Path, memory: Path | None
) -> list[str]:
    """What runs a machine, by the processor's help where that is to be had; it goes on from ``memory``."""
    # Without these, Debian's kernels stop at their first page tables under TCG.
    processor = "host" if accelerator() == "kvm" else "max,la57=off,smap=off,smep=off"
    # On a busy machine services take longer to start than they may, journald among them.
    words = "console=ttyS0 quiet panic=-1 systemd.default_timeout_start_sec=10min systemd.service_watchdogs=0"
    # TCG speculates nothing, so there is nothing to mitigate.
    words += " mitigations=off" if accelerator() == "tcg" else ""
    networks: list[str] = []
    for index, (tap, mac) in enumerate(zip(taps, macs, strict=True)):
        networks += ["-netdev", f"tap,id=net{index},ifname={tap},script=no,downscript=no"]
        networks += ["-device", f"virtio-net-pci,netdev=net{index},mac={mac},addr={index + 2}"]
    return [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-machine", "q35"),
        *("-accel", accelerator(), "-cpu", processor, "-m", str(MEMORY_MIB)),
        *("-display", "none", "-nodefaults", "-no-user-config", "-serial", "stdio"),
        *("-monitor", f"unix:{monitor},server=on,wait=off"),
        *("-kernel", str(disks.folder / "vmlinuz"), "-initrd", str(disks.folder / "initrd.img")),
        *("-append", f"root={disks.hardware.root} rw {words}"),
        *("-drive", f"file={changes},if=virtio,format=qcow2,cache=unsafe", *networks),
        # Tells the kernel that it is a copy: who goes on from the same memory has other random numbers.
        *("-device", "vmgenid,guid=auto"),
        *(("-incoming", f"exec:cat '{memory}'") if memory else ()),
    ]


def keep(wanted: LabState, running: subprocess.Popen[bytes], changes: Path, monitor: Path) -> None:
    """Have a machine's memory saved, which ends it, and its disk with it."""
    work = Path(tempfile.mkdtemp(prefix="saving-", dir=wanted.folder.parent))
    try:
        memory = work / wanted.memory.name
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(monitor))
            asked.sendall(f"migrate \"exec:cat >'{memory}'\"\nquit\n".encode())
            running.wait(SAVING_DEADLINE_S)
        assert memory.stat().st_size > 0, "QEMU saved no memory"
        shutil.move(changes, work / wanted.changes.name)
        with contextlib.suppress(OSError):  # another has kept the same meanwhile
            work.rename(wanted.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
