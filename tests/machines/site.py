"""A site: stock machines that are switched on, a switch for each of their two networks, and us.

    sh tests/lab/isolated.sh FOLDER unshare --net python -m tests.machines.site uml bookworm [COMMAND...]

gives you a shell next to two of them. Whoever imports this sits in such a network namespace, where the
switches are bridges and the machines' interfaces are taps. The machines are user-mode kernels or QEMU's with
Debian's own systemd as their first process; what is known of them is known over ssh.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.testbeds.lab.kernels import kernel
from tests.machines import qemu
from tests.machines.images import HARDWARE, HOME_NETWORK, NAMES, QEMU, Disks, address, disks

SWITCHES = ("home", "storage")
"""By the number of a machine's interface that is plugged into it."""

HOME, STORAGE = 0, 1
HERE_HOST = 1
"""Our own place in the home network."""

MEMORY_MIB = 768
BOOT_DEADLINE_S = 600.0
SHUTDOWN_DEADLINE_S = 120.0
CONNECT_S = 30.0
"""ssh(1) counts what sshd takes until it says who it is, and on a busy machine that starts slowly."""

UP = "systemctl is-system-running --wait; systemctl list-jobs --no-legend"
"""On a machine: a word for how it is, and what it has still to start."""
BOOTED = "booted"
"""The stage of a machine that was switched on for the first time."""
SSH_CONFIG = Path("/etc/ssh/ssh_config")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command on a machine, or a harness here, answered."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


def said(argv: Sequence[str], *, input: str = "", timeout_s: float | None = None, **more: Any) -> Said:
    more |= {"input": input, "timeout": timeout_s, "encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(argv, capture_output=True, check=False, **more)
    return Said(status=done.returncode, out=done.stdout, err=done.stderr)


def sh(*argv: str, input: str = "") -> str:
    """What a command here prints; a failure shows its words."""
    found = said(argv, input=input)
    assert found.status == 0, f"{argv}: {found.text}"
    return found.out


def ip(commands: Iterable[str]) -> None:
    """ip(8) here."""
    sh("ip", "-batch", "-", input="\n".join(commands))


@dataclass(kw_only=True)
class Machine:
    """One machine: it keeps its disk when it is switched off, as machines do."""

    name: str
    folder: Path
    disks: Disks
    process: subprocess.Popen[bytes] | None = None
    clock_stood_still: bool = False

    def __post_init__(self) -> None:
        self.patience, self.disk = self.disks.hardware.patience, self.disks.disk(self.name)
        self.console = self.folder / f"{self.name}.console.log"
        self.monitor = self.folder / f"{self.name}.monitor"
        self.changes = self.folder / f"{self.name}.cow"
        """What it has written to its disk since that was new."""

    def tap(self, index: int) -> str:
        """The other end of its first or second interface, which is here."""
        return f"{self.name}-{SWITCHES[index]}"

    def switch_on(self) -> None:
        """Have it start, a new one after its first boot if that was kept; then call ``await_ssh``."""
        if self.changes.exists() or not self.go_on_from(BOOTED):
            self._start()

    def go_on_from(self, stage: str) -> bool:
        """Have it be what it was at a stage, whatever it is now; False if that was not kept."""
        kept = self._kept(stage)
        if kept is None or not kept.folder.exists():
            return False
        if self.process is not None:
            self.cut_the_power()
        self.changes.unlink(missing_ok=True)
        qemu.new_changes(kept.changes, self.changes)
        self._start(kept.memory)
        self.clock_stood_still = True
        return True

    def keep(self, stage: str) -> None:
        """Keep what it is like for ``go_on_from``, if it can be kept, and go on from there as others will."""
        kept = self._kept(stage)
        if kept is None or kept.folder.exists():
            return
        self._await_systemd()
        self.sh("sync")
        assert self.process is not None
        qemu.keep(kept, self.process, self.changes, self.monitor)
        self.process = None
        self.go_on_from(stage)
        self.await_ssh()

    def _kept(self, stage: str) -> qemu.LabState | None:
        return qemu.kept(self.disks, self.name, stage) if self.disks.hardware is QEMU else None

    def _start(self, memory: Path | None = None) -> None:
        assert self.process is None
        # setpriv(1) has the machine die with the thread that starts it (prctl(2), PR_SET_PDEATHSIG).
        assert threading.current_thread() is threading.main_thread()
        number = NAMES.index(self.name) + 10
        macs = [f"02:00:00:00:{index:02x}:{number:02x}" for index in (0, 1)]
        argv = self._qemu(macs, memory) if self.disks.hardware is QEMU else self._uml(macs)
        options: dict[str, Any] = {"env": {**os.environ, "TMPDIR": "/dev/shm"}, "start_new_session": True}
        # The console must be a pipe: the kernel cannot poll a regular file.
        with self.console.open("ab") as console:
            copy = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=console)
        assert copy.stdin is not None
        with copy.stdin as pipe:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, **options
            )

    def _uml(self, macs: list[str]) -> list[str]:
        """The command of a user-mode kernel: its changes to the disk in a file that grows, NICs on taps."""
        place = self.folder / f"{self.name}.uml"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        # gro=1: room for frames of 64 KiB, as the other end sends them. They would be dropped.
        wires = [
            f"{nic}:transport=tap,ifname={self.tap(index)},mac={macs[index]},gro=1"
            for index, nic in enumerate(self.disks.hardware.interfaces)
        ]
        return [
            *("setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
            # The kernel must not be process 1 of its namespace: see lab.sandbox().
            *("sh", "-c", '"$@"; exit $?', "sh"),
            *(str(kernel.custom_kernel().binary), f"mem={MEMORY_MIB}M", f"ubd0={self.changes},{self.disk}"),
            *("root=/dev/ubda", "rw", "rootfstype=ext4", "con=null", "con0=null,fd:1"),
            *(f"uml_dir={place}/", "umid=machine", "lsm=apparmor", "panic=-1", *wires),
        ]

    def _qemu(self, macs: list[str], memory: Path | None) -> list[str]:
        if not self.changes.exists():
            qemu.new_changes(self.disk, self.changes)
        taps = [self.tap(index) for index in (0, 1)]
        return qemu.command(self.disks, self.changes, taps, macs, self.monitor, memory)

    def await_ssh(self) -> None:
        """Until it is up and has nothing more to start, whatever became of single units."""
        self._await_systemd()
        if self.clock_stood_still:
            self.sh(f"date --set=@{time.time():.3f}")
            self.clock_stood_still = False
        else:
            self.keep(BOOTED)

    def _await_systemd(self) -> None:
        end = time.monotonic() + BOOT_DEADLINE_S * self.patience
        while True:
            up = self.run(UP, timeout_s=BOOT_DEADLINE_S)
            state, *jobs = up.out.splitlines() or [""]
            if state in ("running", "degraded") and not jobs:
                return
            assert self.process is not None and self.process.poll() is None, self.last_words()
            assert time.monotonic() < end, f"{up.text}\n{self.last_words()}"
            time.sleep(0.5)

    def last_words(self) -> str:
        return f"the console of {self.name}: {self.console.read_text(errors='replace')[-2000:]}"

    def run(self, script: str, *, user: str = "root", input: str = "", timeout_s: float = 300) -> Said:
        """Have a shell on it carry out a script, as somebody who logs in."""
        argv = ["ssh", "-o", f"ConnectTimeout={CONNECT_S * self.patience:.0f}", f"{user}@{self.name}", script]
        return said(argv, input=input, timeout_s=timeout_s * self.patience)

    def sh(self, script: str, *, user: str = "root", input: str = "", timeout_s: float = 300) -> str:
        """The same for what has to go well; its output."""
        found = self.run(script, user=user, input=input, timeout_s=timeout_s)
        assert found.status == 0, f"{self.name}: {script}: {found.text}"
        return found.out

    def switch_off(self) -> None:
        self.run("systemctl poweroff", timeout_s=60)
        self._await_end(SHUTDOWN_DEADLINE_S * self.patience)

    def cut_the_power(self) -> None:
        """It stops where it is: what was not on its disk is lost."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._await_end(20)

    def _await_end(self, deadline_s: float) -> None:
        assert self.process is not None
        self.process.wait(deadline_s)
        self.process = None

    def reset(self) -> None:
        """Off and on again, without warning."""
        self.cut_the_power()
        self.switch_on()
        self.await_ssh()

    def renew(self) -> None:
        """Be as new again: what it has written to its disk is lost."""
        if self.process is not None:
            self.cut_the_power()
        self.changes.unlink(missing_ok=True)
        self.switch_on()
        self.await_ssh()

    def unplug(self, index: int = STORAGE) -> None:
        """Pull the cable of its first or second interface out of the switch."""
        # Its other end stays up: user-mode Linux gives an interface up for good that cannot send
        # (``in_error`` in arch/um/drivers/vector_kern.c).
        sh("ip", "link", "set", self.tap(index), "nomaster")

    def plug_in(self, index: int = STORAGE) -> None:
        sh("ip", "link", "set", self.tap(index), "master", SWITCHES[index])


@dataclass(kw_only=True)
class Site:
    """The machines of one suite, and a harness that reaches them by their names."""

    disks: Disks
    folder: Path
    machines: dict[str, Machine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hardware = self.disks.hardware
        self.patience, self.wire = hardware.patience, hardware.interfaces[STORAGE]
        self.programs = self.folder / "bin"
        """What stands here comes before our own programs."""

    @contextlib.contextmanager
    def plugged_in(self, name: str) -> Iterator[Machine]:
        machine = Machine(name=name, folder=self.folder, disks=self.disks)
        taps = {machine.tap(index): switch for index, switch in enumerate(SWITCHES)}
        for tap, switch in taps.items():
            ip((f"tuntap add dev {tap} mode tap", f"link set {tap} master {switch} up"))
        self.machines[name] = machine
        machine.switch_on()
        try:
            yield machine
        finally:
            del self.machines[name]
            if machine.process is not None:
                machine.cut_the_power()
            ip(f"link delete {tap}" for tap in taps)

    def command(self, *words: str) -> list[str]:
        return [str(Path(sys.executable).with_name("harness")), *words]

    def harness(self, *words: str, timeout_s: float = 900) -> Said:
        """Our own command line, to its end, in the site's folder."""
        env = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        timeout_s *= self.patience
        return said(self.command(*words), timeout_s=timeout_s, cwd=self.folder, env=env)

    def use_fio_of(self, machine: Machine) -> None:
        """Have the fio of a machine's release here, as one has who sits at a machine of that release."""
        files = "/usr/bin/fio $(ldd /usr/bin/fio | grep -o '/[^ ]*')"
        argv = ["ssh", f"root@{machine.name}", f"tar --create --dereference --absolute-names {files}"]
        place = self.programs / "of-fio"
        place.mkdir(parents=True)
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as sent:
            extract = ["tar", "--extract", f"--directory={place}"]
            subprocess.run(extract, stdin=sent.stdout, stderr=subprocess.DEVNULL, check=True)
        fio = self.programs / "fio"
        libraries = ":".join(sorted({str(file.parent) for file in place.glob("**/*.so*")}))
        loader = f"{place}/lib64/ld-linux-x86-64.so.2 --library-path {libraries}"
        fio.write_text(f'#!/bin/sh\nexec {loader} {place}/usr/bin/fio "$@"\n', encoding="utf-8")
        fio.chmod(0o755)


@contextlib.contextmanager
def site(disks: Disks, folder: Path, names: Sequence[str] = NAMES[:2]) -> Iterator[Site]:
    """Switches and machines, all of them on and reachable; the power goes when the context ends."""
    found = Site(disks=disks, folder=folder)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_switches())
        stack.enter_context(_ssh(disks, folder))
        for name in names:
            stack.enter_context(found.plugged_in(name))
        for machine in found.machines.values():
            machine.await_ssh()
        yield found


@contextlib.contextmanager
def _switches() -> Iterator[None]:
    commands = ["link set lo up"]
    for switch in SWITCHES:
        commands += [f"link add {switch} type bridge", f"link set {switch} up"]
    commands.append(f"address add {HOME_NETWORK}.{HERE_HOST}/24 dev {SWITCHES[HOME]}")
    ip(commands)
    try:
        yield
    finally:
        ip(f"link delete {switch}" for switch in SWITCHES)


@contextlib.contextmanager
def _ssh(disks: Disks, folder: Path) -> Iterator[None]:
    """Names, keys and known hosts for ssh(1), in a file that we mount over the system's own."""
    known = folder / "known_hosts"
    known.write_text("".join(f"{name} {disks.host_key(name)}\n" for name in NAMES), encoding="utf-8")
    key = folder / "id_ed25519"
    shutil.copy(disks.user_key, key)
    key.chmod(0o600)
    host = "Host {0}\n    HostName {1}\n    HostKeyAlias {0}\n"
    hosts = "".join(host.format(name, address(name, HOME_NETWORK)) for name in NAMES)
    config = folder / "ssh_config"
    config.write_text(
        f"{hosts}Host *\n    IdentityFile {key}\n    IdentitiesOnly yes\n"
        f"    UserKnownHostsFile {known}\n    StrictHostKeyChecking yes\n    BatchMode yes\n",
        encoding="utf-8",
    )
    sh("mount", "--bind", str(config), str(SSH_CONFIG))
    try:
        yield
    finally:
        sh("umount", str(SSH_CONFIG))


def main(hardware: str, suite: str, *command: str) -> int:
    """A site for as long as a command runs: your shell, unless you name one."""
    chosen = disks(suite, HARDWARE[hardware])
    with tempfile.TemporaryDirectory(prefix="site-") as folder, site(chosen, Path(folder)):
        return subprocess.run(command or (os.environ.get("SHELL", "sh"),), cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
