"""Namespaces that keep a lab's processes together and from changing the machine."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.hosts import programs, runner
from harness.model.errors import RequirementError

CONFINE = programs.path(__package__, "confine.py")

OPEN_FILES = 4096
"""How many files a kernel may have to keep open: hostfs has one for each inode that it caches
(fs/hostfs/hostfs_kern.c), 1168 in a run of one cell with IPsec. Beyond its limit it starts no program any
more, and without init it panics."""


def require_open_files() -> None:
    """Let programs that are started have ``OPEN_FILES`` open or more; RequirementError if that is refused."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES:
        return  # the sandbox's shell raises the other limit to this one
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, OPEN_FILES))
    except (OSError, ValueError) as error:
        raise RequirementError(
            f"the lab's kernel needs {OPEN_FILES} open files, but the hard limit is {hard} here (ulimit -Hn)",
            hint="raise it where the session begins: limits.conf(5), LimitNOFILE= of a service, "
            f"--ulimit nofile={OPEN_FILES} of a container",
        ) from error


def wrapper(writable: Sequence[Path] | None = None) -> list[str]:
    """A wrapper under which a SIGKILL of any process ends all of them: the lab's processes never outlive it.

    Without it they would go on as processes of the machine. It also ends them when the harness dies. With
    ``writable``, they can write only to these folders of the machine, and gain no rights there.
    """
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc"]
    mapped = ["--user", "--map-root-user", *spaces]
    # A container's root may not be allowed to make namespaces, but in a user namespace of its own it is.
    # Where parts of /proc are hidden, as in containers, the kernel refuses a second /proc there
    # (mount_too_revealing() of fs/namespace.c). Then the first stays, read-only. It leads to no process
    # outside the user namespace, because in that one alone this root has rights (ptrace_may_access()).
    # For a root without a user namespace it would: that way has a /proc of its own, or is not taken.
    ways = [[*mapped, "--mount-proc"], mapped]
    if os.geteuid() == 0:
        ways.insert(0, [*spaces, "--mount-proc"])
    inner = [] if writable is None else [sys.executable, "-I", "-S", str(CONFINE), *map(str, writable), "--"]
    for way in ways:
        tried = runner.run(["unshare", *way, *inner, "true"], check=False)
        if tried.status == 0:
            break
    else:
        raise _refused(tried.stderr.strip())
    # The shell is process 1 of the namespace. The kernel must not be: it ends a panic with signals that
    # process 1 ignores, and would spin for ever. A session's usual 1024 open files are too few (OPEN_FILES).
    script = 'ulimit -S -n "$(ulimit -H -n)"; "$@"; exit $?'
    return ["setpriv", "--pdeathsig", "KILL", "unshare", *way, *inner, "sh", "-c", script, "sh"]


CONTAINERS = "docs/install.md says what a container needs"


def _refused(said: str) -> RequirementError:
    """Why there can be no sandbox, from what the last way to it ``said``."""
    if said.startswith(f"{CONFINE.stem}: "):
        return RequirementError(
            f"the lab cannot be confined: {said.removeprefix(f'{CONFINE.stem}: ')}",
            hint=f"it needs Linux 5.12 or later, and a seccomp filter that allows it; {CONTAINERS}",
        )
    if runner.run(["unshare", "true"], check=False).status != 0:
        # It asks for nothing, which only a filter refuses.
        return RequirementError(
            "the lab needs namespaces of its own, so that nothing of it can outlive it, but a seccomp "
            "filter, such as a container's, forbids unshare(2) here",
            hint=f"start the container with tools/container-seccomp.json; {CONTAINERS}",
        )
    if runner.run(["unshare", "--user", "--map-root-user", "true"], check=False).status == 0:
        return RequirementError(
            f"the lab needs mounts of its own, but in a user namespace this machine refuses them: {said}",
            hint=f"AppArmor or a seccomp filter may forbid them; {CONTAINERS}",
        )
    if os.geteuid() == 0 and "uid_map" in said:
        return RequirementError(
            "the lab needs a user namespace, and mapping root into it takes "
            "CAP_SETFCAP, which is missing here",
            hint=f"start it as another user, who needs no capability (--user 1000:1000); {CONTAINERS}",
        )
    return RequirementError(
        "the lab needs user namespaces, so that nothing of it can outlive it, but they are refused here: "
        f"{said}",
        hint="as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000 (and, on "
        f"Ubuntu, kernel.apparmor_restrict_unprivileged_userns=0); not in a chroot(1); {CONTAINERS}",
    )
