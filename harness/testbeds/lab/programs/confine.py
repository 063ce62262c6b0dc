"""Run a command that sees the machine's files and can change none: ``confine.py FOLDER... -- COMMAND...``.

Only what is below each FOLDER can be written. The command is that of the lab, in which somebody is root and
may load what he likes into the user-mode kernel: so all that the harness asks of it is asked of the machine's
kernel here, before it starts, and cannot be taken back by anything that comes of it:

- every mount is read-only and without devices; /dev and /run, with their sockets and named pipes, are empty
  but for two devices;
- of root's capabilities, which could mount again, two are left; ``execve`` gives none back;
- no socket is made and none connected to, since that of a daemon takes orders whatever is mounted how.

It is run as root of a mount namespace that nobody else is in (unshare(1)); why not is said on standard error.
Needs Linux 5.12 for mount_setattr(2); the numbers are those of x86-64, as the user-mode kernel is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

MACHINE = "x86_64"
HIDDEN = ("/dev", "/run")
"""Folders that the lab has its own of, and that lead to daemons and devices of the machine."""

DEVICES = ("/dev/null", "/dev/random")
"""Those that are left: where the consoles of the lab read from, and what seeds its kernel's random numbers
(arch/um/drivers/random.c). Without a seed it takes one from its timers, for which virtual time goes on."""

# include/uapi/asm-generic/unistd.h, linux/mount.h, linux/fcntl.h
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, AT_RECURSIVE, AT_EMPTY_PATH = 0x1, 0x8000, 0x1000
MOVE_MOUNT_F_EMPTY_PATH = 0x4
RDONLY, NOSUID, NODEV = 0x1, 0x2, 0x4
AT_FDCWD = -100

# linux/prctl.h, linux/capability.h
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 24, 38, 22
SECCOMP_MODE_FILTER = 2
CAPSET, CAPABILITY_VERSION_3 = 126, 0x20080522
KEPT = 1 << 1 | 1 << 19
"""CAP_DAC_OVERRIDE: root reads the checkout of whoever called sudo. CAP_SYS_PTRACE: the user-mode kernel
traces its own processes, also where Yama leaves that to root; it sees no others."""

FORBIDDEN = (
    *(41, 42),  # socket, connect
    425,  # io_uring_setup, which could do both
    *(248, 249, 250),  # add_key, request_key, keyctl: the user's keys are in no namespace
)
AUDIT_ARCH_X86_64 = 0xC000003E
X32 = 0x40000000
"""From this number on, system calls of the x32 ABI."""
EPERM = 1

libc = ctypes.CDLL(None, use_errno=True)


class MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def call(what: str, result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    return call(what, libc.syscall(ctypes.c_long(number), *arguments))


def mount_folders(writable: Sequence[str]) -> None:
    """Have all mounts read-only but those that come to be at ``writable``, with what is mounted below."""
    # What is cloned is not attached yet, and stays as it is while the rest is changed.
    devices = [clone(device) for device in DEVICES]
    trees = [clone(folder) for folder in writable]
    for hidden in HIDDEN:
        made = libc.mount(b"none", hidden.encode(), b"tmpfs", ctypes.c_ulong(0), b"mode=755")
        call(f"mount {hidden}", made)
    for device in DEVICES:
        Path(device).touch()
    for folder in writable:
        Path(folder).mkdir(parents=True, exist_ok=True)  # it may be below what is hidden
    set_attributes(AT_FDCWD, b"/", RDONLY | NOSUID | NODEV)
    for tree, device in zip(devices, DEVICES, strict=True):
        set_attributes(tree, b"", RDONLY | NOSUID)
        attach(tree, device)
    for tree, folder in zip(trees, writable, strict=True):
        set_attributes(tree, b"", NOSUID | NODEV)
        attach(tree, folder)
    os.chdir("/")  # where we stand may have been covered


def clone(path: str) -> int:
    """What is at a path, with all that is mounted below, as a tree of its own."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE
    return syscall(f"open_tree {path}", OPEN_TREE, AT_FDCWD, os.fsencode(path), flags)


def attach(tree: int, path: str) -> None:
    flags = MOVE_MOUNT_F_EMPTY_PATH
    syscall(f"move_mount {path}", MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(path), flags)
    os.close(tree)


def set_attributes(tree: int, path: bytes, attributes: int) -> None:
    wanted = MountAttributes(attr_set=attributes)
    flags = AT_RECURSIVE | (0 if path else AT_EMPTY_PATH)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    syscall("mount_setattr", MOUNT_SETATTR, tree, path, flags, ctypes.byref(wanted), size)


def drop_capabilities() -> None:
    """Leave ``KEPT`` alone, also to what is executed later."""
    capability = 0
    with contextlib.suppress(OSError):  # the first one that this kernel does not know
        while True:
            if not KEPT >> capability & 1:
                call("prctl", libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
            capability += 1
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, the lower half of each first.
    sets = struct.pack("6I", KEPT, KEPT, 0, 0, 0, 0)
    syscall("capset", CAPSET, header, sets)
    call("prctl", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def forbid_calls() -> None:
    """Refuse ``FORBIDDEN`` with EPERM, and all calls by other numbers than these (seccomp(2))."""

    def instruction(code: int, operand: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, operand)

    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    number, architecture = 0, 4  # where struct seccomp_data has them
    count = len(FORBIDDEN)
    program = [
        instruction(load, architecture),
        instruction(equal, AUDIT_ARCH_X86_64, if_false=count + 3),
        instruction(load, number),
        instruction(at_least, X32, if_true=count + 1),
        *(instruction(equal, call, if_true=count - at) for at, call in enumerate(FORBIDDEN)),
        instruction(end, 0x7FFF0000),  # SECCOMP_RET_ALLOW
        instruction(end, 0x00050000 | EPERM),  # SECCOMP_RET_ERRNO
    ]
    loaded = Filter(len(program), b"".join(program))
    call("seccomp", libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0))


def main(words: list[str]) -> int:
    at = words.index("--")
    writable, command = words[:at], words[at + 1 :]
    try:
        if platform.machine() != MACHINE:
            raise OSError(0, f"expected the processor {MACHINE}, found {platform.machine()}")
        mount_folders(writable)
        drop_capabilities()
        forbid_calls()
        os.execvp(command[0], command)  # noqa: S606 -- whoever calls chose it
    except OSError as error:
        sys.stderr.write(f"confine: {error.strerror}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
