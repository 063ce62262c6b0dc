"""What the custom kernel is built from: Debian's package of Linux, a tarball, or a tree of the user's.

Where the system has no such package (releases/), it is the tarball of kernel.org in ``upstream``.

A tree is only read: the build copies it. ``LIMITS`` says which lines of ``kernel.config`` and which patches
are for which versions of Linux, and why. Whatever else a source does not take is found out as it is built.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.hosts import packages, releases, runner
from harness.model.errors import CommandFailed, UsageError
from harness.parse.files import LARGEST_FILE_BYTES, read_bytes
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import trees, upstream
from harness.testbeds.lab.kernels.upstream import STRIPPED

Version = tuple[int, int]
"""Of Linux: 6.12."""

FORMS = "Debian's package such as linux-source-6.12, a tarball, or the folder of a source tree"

PACKAGES = ("linux-source-6.1", "linux-source-6.12", "linux-source-7.2", "linux-source-7.3")
"""Each release of Debian has one of them; testing has the last, or the one before it. If several are
installed, the first one counts."""

PACKAGE = re.compile(r"linux-source-(\d+)\.(\d+)")

READ_DEADLINE_S = 300
"""The Makefile is near the beginning of a tarball, but behind a gigabyte of another one."""


@dataclass(frozen=True)
class VersionRange:
    """An option of ``kernel.config`` or a patch that is only for Linux ``since`` one version and ``before``
    another.

    ``is_missed``: a version without it cannot do something. Otherwise it does the same in another way.
    """

    what: str
    why: str
    since: Version = (0, 0)
    before: Version = (1 << 16, 0)
    is_missed: bool = False

    def holds(self, version: Version) -> bool:
        return self.since <= version < self.before


_TLS = "TLS for NVMe/TCP came with Linux 6.7 (be8e82caa685, 675b453e0241)"
_SMALL = "since Linux 6.10 it is the absence of BASE_SMALL (b3e90f375b3c and the commit after it)"
_VECTOR = "since Linux 6.16 the vector transport needs it no longer (b555cb66583e)"
_TABLES = "until Linux 6.17 the tables of iptables-legacy were always there"
_WIFI = "a disk's data arrives over Linux 7.2's simulated radios only with IPsec, so WiFi is emulated"
_LIBRARY = "since Linux 6.16 it is in lib/crypto, closed to user-mode Linux: generic code instead"
_RELATIVE = "Linux 6.4 addresses the tables of these ciphers relative to the instruction"

LIMITS = (
    VersionRange("CONFIG_NVME_TCP_TLS", _TLS, since=(6, 7), is_missed=True),
    VersionRange("CONFIG_NVME_TARGET_TCP_TLS", _TLS, since=(6, 7), is_missed=True),
    VersionRange("CONFIG_BASE_FULL", _SMALL, before=(6, 10)),
    VersionRange("CONFIG_UML_NET", _VECTOR, before=(6, 16)),
    VersionRange("CONFIG_NETFILTER_XTABLES_LEGACY", _TABLES, since=(6, 17)),
    VersionRange("CONFIG_IP_NF_IPTABLES_LEGACY", _TABLES, since=(6, 17)),
    VersionRange("CONFIG_PROC_SYSCTL", "since Linux 7.3 it is SYSCTL, which is always on", before=(7, 3)),
    VersionRange("CONFIG_MAC80211_HWSIM", _WIFI, before=(7, 0), is_missed=True),
    VersionRange("CONFIG_CRYPTO_CHACHA20_X86_64", _LIBRARY, before=(6, 16), is_missed=True),
    VersionRange("CONFIG_CRYPTO_POLY1305_X86_64", _LIBRARY, before=(6, 16), is_missed=True),
    VersionRange("CONFIG_CRYPTO_SHA1_SSSE3", _LIBRARY, before=(6, 16), is_missed=True),
    VersionRange("CONFIG_CRYPTO_SHA256_SSSE3", _LIBRARY, before=(6, 16), is_missed=True),
    VersionRange("CONFIG_CRYPTO_SHA512_SSSE3", _LIBRARY, before=(6, 16), is_missed=True),
    VersionRange("charge.patch", "only Linux 6.1 can charge CPU costs", before=(6, 2)),
    VersionRange("rip.patch", _RELATIVE, before=(6, 4)),
    VersionRange(
        "xstate.patch", "Linux 6.13 asks the machine how large the state is (3f17fed21491)", before=(6, 13)
    ),
)


def version_of(release: str) -> Version:
    """That of a release, as of ``6.1.192-2`` or ``6.12-rc1``."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers is None:
        raise UsageError(f"expected a release of Linux, found {release!r}")
    return int(numbers[1]), int(numbers[2])


def is_for(what: str, version: Version) -> bool:
    """Whether an option or a patch is for a version of Linux."""
    return all(limit.holds(version) for limit in LIMITS if limit.what == what)


def missed(version: Version) -> dict[str, str]:
    """What a version misses that earlier or later ones have, with the reason."""
    return {limit.what: limit.why for limit in LIMITS if limit.is_missed and not limit.holds(version)}


@dataclass(frozen=True, kw_only=True)
class Tarball:
    """An archive that tar(1) knows, with one folder in it."""

    title: str
    version: Version
    identity: str
    path: Path

    def unpack(self, run: Callable[..., object], folder: Path, without: Sequence[str] = ()) -> None:
        """Put it into an empty folder. ``run`` runs a program and fails as the build does; ``without`` are
        patterns of files (tar(1)) that may be left out."""
        left_out = (f"--exclude=*/{pattern}" for pattern in without)
        words = ("--extract", f"--file={self.path}", f"--directory={folder}", *STRIPPED)
        run("tar", "--anchored", *left_out, *words)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A folder of the user's. Of a git tree, what git would add counts: no objects, no configuration.

    ``commit`` is the one that a git tree is at, with ``-dirty`` if tracked files differ from it.
    """

    title: str
    version: Version
    identity: str
    path: Path
    files: tuple[str, ...]
    commit: str = ""

    def lend(self, names: Collection[str], folder: Path) -> None:
        """Copy those of its files that have these names into an empty folder."""
        trees.renew(folder, {name: self.path / name for name in self.files if name in names})

    def renew(self, run: Callable[..., object], folder: Path, instead: Path | None = None) -> None:
        """Write into ``folder`` what differs there, with the files of ``instead`` in place of its own."""
        wanted = {name: self.path / name for name in self.files}
        if instead is not None:
            wanted |= {name: instead / name for name in _walked(instead)}
        trees.renew(folder, wanted)
        # What was built in a tree is in the way of a build elsewhere, and without git nothing lists it.
        run("make", "-C", str(folder), "mrproper")


Source = Tarball | Tree | upstream.Upstream
"""What a kernel is built from. ``identity`` differs for every difference in it, and goes into the key."""


def is_upstream() -> bool:
    """Whether this system has none of ``PACKAGES``, so that the source is that of kernel.org."""
    if packages.installed_version(PACKAGES) is not None:
        return False
    system = releases.here()
    has_none = system is not None and system.names_of(PACKAGES) == ()
    return has_none or not packages.are_offered(PACKAGES)


def absent_packages(*, is_given: bool = False) -> list[packages.Package]:
    """The missing packages that a build needs. ``is_given``: of another source than the default one."""
    absent = packages.missing()
    if is_given or is_upstream():
        absent = [package for package in absent if not set(package.names) & set(PACKAGES)]
    return absent


def of(asked: str | None) -> Source:
    """A source by the name that a user typed; None is Debian's installed source, or kernel.org's if there is
    none.

    UsageError if it is none, RequirementError if it is not installed.
    """
    if asked is None:
        return upstream.LINUX if is_upstream() else _installed(PACKAGES)
    path = Path(os.path.expanduser(asked))  # noqa: PTH111 -- that of Path raises for a user that there is not
    if path.is_dir():
        return _tree(path.absolute())
    if path.is_file():
        return _tarball(path.absolute())
    if PACKAGE.fullmatch(asked):
        return _installed([asked])
    raise UsageError(f"expected {FORMS}, found {asked!r}")


def _installed(names: Sequence[str]) -> Tarball:
    """The first of these packages that is installed."""
    found = packages.installed_version(list(names))
    if found is None:
        absent = [package for package in packages.missing() if set(package.names) & set(names)]
        if absent or len(names) > 1:
            raise packages.lacking(absent or packages.missing())
        # Of a name that is in no list.
        raise packages.lacking(
            [packages.Package(names=tuple(names), shown_by="-", purpose="the kernel: its source")]
        )
    name, identity = found
    match = PACKAGE.fullmatch(name)
    assert match is not None, "only such names are asked for"  # noqa: S101
    major, minor = map(int, match.groups())
    return Tarball(
        title=f"{name} {identity}",
        version=(major, minor),
        identity=identity,
        path=Path("/usr/src", f"{name}.tar.xz"),
    )


def _tarball(path: Path) -> Tarball:
    # Its own Makefile, and no other one in it; the rest is not looked at.
    reading = ["tar", "--extract", "--to-stdout", "--occurrence=1", f"--file={path}"]
    matching = ["--wildcards", "--no-wildcards-match-slash", "*/Makefile"]
    done = runner.run([*reading, *matching], check=False, timeout_s=READ_DEADLINE_S)
    release, version = _version(done.stdout, str(path))
    identity = f"{release} sha256:{boot.file_sha256(path)}"
    return Tarball(title=path.name, version=version, identity=identity, path=path)


def _tree(path: Path) -> Tree:
    makefile = b""
    with contextlib.suppress(UsageError):
        makefile = read_bytes(path / "Makefile", first=LARGEST_FILE_BYTES)
    release, version = _version(makefile.decode("utf-8", "replace"), str(path))
    if not (path / ".git").exists():
        files = tuple(sorted(_walked(path)))
        digest, commit = _digest(path, files, {})[0], ""
    else:
        tracked = _listed(path, "ls-files", "--cached")
        others = _listed(path, "ls-files", "--others", "--exclude-standard")
        # What was deleted, but not from the index, is still in the list.
        files = tuple(name for name in sorted(tracked | others) if os.path.lexists(path / name))
        commit, committed = _commit(path)
        digest, is_same = _digest(path, files, committed)
        if commit and not (is_same and tracked == committed.keys()):
            commit += "-dirty"
    return Tree(
        title=str(path),
        version=version,
        identity=f"{release} tree:{digest}",
        path=path,
        files=files,
        commit=commit,
    )


GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=")
"""A tree may come from anybody, and its .git/config names programs. Of git only ``ls-files``, ``rev-parse``
and ``ls-tree`` are used: they run no filter, hook, alias, pager or program for differences. What they would
start is core.fsmonitor, and for objects that a partial clone lacks a fetch, and so core.sshCommand.
``status`` and ``describe --dirty`` run filters, and look into submodules by their own configuration."""

NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""git(1). Where the first is not known, a fetch begins, and ends at the second."""

SHA1_DIGITS = 40


def _git(path: Path, *words: str) -> runner.Completed:
    argv = [*GIT, "-C", str(path), *words]
    return runner.run(argv, check=False, timeout_s=READ_DEADLINE_S, env=NO_FETCH)


def _listed(path: Path, command: str, *words: str) -> set[str]:
    """What a command of git's lists of a tree. UsageError if git reads no tree of that owner."""
    done = _git(path, command, "-z", *words)
    if "dubious ownership" in done.stderr:
        # Its safe.directory is the user's to set: whoever owns a tree may change it while it is read.
        raise UsageError(
            f"expected a git tree of your own, found {path}, which belongs to another user",
            hint="copy it, or if you trust its owner: git config --global --add safe.directory "
            + shlex.quote(str(path)),
        )
    if done.status != 0:
        raise CommandFailed(f"git could not list {path}: {runner.last_lines(done.stderr)}")
    return set(filter(None, done.stdout.split("\0")))


def _commit(path: Path) -> tuple[str, dict[str, str]]:
    """The commit that a tree is at, and its files there: by name, mode and object id in git's words.

    Nothing before the first commit.
    """
    named = _git(path, "rev-parse", "--verify", "--short=12", "HEAD")
    if named.status != 0:
        return "", {}
    entries = (entry.split("\t", 1) for entry in _listed(path, "ls-tree", "-r", "HEAD"))
    return named.stdout.strip(), {name: what for what, name in entries}


def _walked(path: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(path):
        # A link to a folder is among the folders.
        names += [name for name in folders if Path(folder, name).is_symlink()]
        yield from (str(Path(folder, name).relative_to(path)) for name in names)


def _digest(path: Path, files: Sequence[str], committed: Mapping[str, str]) -> tuple[str, bool]:
    """SHA-256 of names, modes and contents; and whether what was ``committed`` (``_commit``) is as it was.

    UsageError for anything but files and links.
    """
    digest, is_same = hashlib.sha256(), committed.keys() <= set(files)
    for name in files:
        file = path / name
        mode = file.lstat().st_mode
        content = str(file.readlink()).encode() if stat.S_ISLNK(mode) else read_bytes(file, follow=False)
        # Lengths, so that no content can look like the next name.
        digest.update(f"{name}\0{mode & 0o170111:o}\0{len(content)}\0".encode())
        digest.update(content)
        if is_same and (before := committed.get(name)):
            is_same = before == _as_git_names(mode, content, len(before.rpartition(" ")[2]))
    return digest.hexdigest(), is_same


def _as_git_names(mode: int, content: bytes, digits: int) -> str:
    """Mode, kind and object id of a file as ``git ls-tree`` names them; the id has so many ``digits``."""
    kind = "120000" if stat.S_ISLNK(mode) else "100755" if mode & stat.S_IXUSR else "100644"
    digest = hashlib.new("sha1" if digits == SHA1_DIGITS else "sha256", usedforsecurity=False)
    digest.update(b"blob %d\0" % len(content))
    digest.update(content)
    return f"{kind} blob {digest.hexdigest()}"


def _version(makefile: str, where: str) -> tuple[str, Version]:
    """The release in the Makefile of Linux (``6.12.9``), and its version."""
    words = dict(
        re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) =[ \t]*(\S*)$", makefile, re.MULTILINE)
    )
    try:
        version = int(words["VERSION"]), int(words["PATCHLEVEL"])
    except (KeyError, ValueError):
        raise UsageError(
            f"expected the source of Linux in {where}, found no Makefile with its version",
            hint=f"take {FORMS}",
        ) from None
    release = f"{version[0]}.{version[1]}.{words.get('SUBLEVEL', '')}{words.get('EXTRAVERSION', '')}"
    return release, version
