"""Run a command that sees the machine's files and can change none: ``confine.py FOLDER... -- COMMAND...``.

It can write only below each FOLDER. The command is the lab's, where somebody is root and may load anything
into the user-mode kernel. So the machine's kernel is told here, before the command starts, what to forbid;
and nothing that the command starts can take that back:

- every mount is read-only and without devices; /dev and /run, with their sockets and named pipes, are empty
  except for two devices;
- of root's capabilities, some of which could mount again, two are left; ``execve`` gives none back;
- no socket can be made and none connected, because a daemon takes orders through its socket, whatever the
  mounts.

It runs as root of a mount namespace of its own (unshare(1)), and prints on standard error why it cannot. It
needs Linux 5.12 for mount_setattr(2); the numbers are those of x86-64, like the user-mode kernel.
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
"""Folders that the lab has its own of, and that contain daemons and devices of the machine."""

DEVICES = ("/dev/null", "/dev/random")
"""The devices that remain: the lab's consoles read from the first, and the second seeds its kernel's random
numbers (arch/um/drivers/random.c). Without a seed the kernel takes one from its timers, for which virtual
time goes on."""

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
traces its own processes, also if Yama allows only root to; it sees no others."""

FORBIDDEN = (
    *(41, 42),  # socket, connect
    425,  # io_uring_setup, which could do both
    *(248, 249, 250),  # add_key, request_key, keyctl: the user's keys are in no namespace
)
AUDIT_ARCH_X86_64 = 0xC000003E
X32 = 0x40000000
"""From this number on, system calls are those of the x32 ABI."""
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
    """Make all mounts read-only, except those at ``writable`` with what is mounted below them."""
    # A clone is not attached yet, so it stays as it is while the rest is changed.
    devices = [clone(device) for device in DEVICES]
    trees = [clone(folder) for folder in writable]
    for hidden in HIDDEN:
        made = libc.mount(b"none", hidden.encode(), b"tmpfs", ctypes.c_ulong(0), b"mode=755")
        call(f"mount {hidden}", made)
    for device in DEVICES:
        Path(device).touch()
    for folder in writable:
        Path(folder).mkdir(parents=True, exist_ok=True)  # it may be below a hidden folder
    set_attributes(AT_FDCWD, b"/", RDONLY | NOSUID | NODEV)
    for tree, device in zip(devices, DEVICES, strict=True):
        set_attributes(tree, b"", RDONLY | NOSUID)
        attach(tree, device)
    for tree, folder in zip(trees, writable, strict=True):
        set_attributes(tree, b"", NOSUID | NODEV)
        attach(tree, folder)
    os.chdir("/")  # the current folder may have been covered


def clone(path: str) -> int:
    """What is at a path, with everything mounted below, as a tree of its own."""
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
    """Keep only ``KEPT``, also for programs that are executed later."""
    capability = 0
    with contextlib.suppress(OSError):  # at the first one that this kernel does not have
        while True:
            if not KEPT >> capability & 1:
                call("prctl", libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
            capability += 1
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable; the lower half of each comes first.
    sets = struct.pack("6I", KEPT, KEPT, 0, 0, 0, 0)
    syscall("capset", CAPSET, header, sets)
    call("prctl", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def forbid_calls() -> None:
    """Refuse ``FORBIDDEN`` with EPERM, and all calls with numbers of another ABI (seccomp(2))."""

    def instruction(code: int, operand: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, operand)

    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    number, architecture = 0, 4  # their offsets in struct seccomp_data
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
        os.execvp(command[0], command)  # noqa: S606 -- the caller chose it
    except OSError as error:
        sys.stderr.write(f"confine: {error.strerror}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
