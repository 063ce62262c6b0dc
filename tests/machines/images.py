"""Disks of stock machines: Debian as its installer leaves it, with nothing of this project on it.

``python -m tests.machines.images uml bookworm trixie`` makes what is not in the cache yet (``qemu``: with
Debian's kernel). It takes mmdebstrap, and root or subordinate user ids (subuid(5)), so that files belong to
whom they belong on a machine.

A machine can reach no mirror, so its disk has one: the packages that `harness doctor` can name stand in a
folder, which is the one source of its apt, and those that `make install` has pip fetch in another. They are
not installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.model.errors import RequirementError
from harness.testbeds.lab.kernels import building, kernel
from harness.testbeds.requirements import packages
from tests.lab.cli import ON_CI
from tests.lab.conftest import build_kernel

ROOT = Path(__file__).parents[2]
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
"""Debian's releases, each with the Python that it has."""

NAMES = ("server", "client", "client2")
"""The machines of a site: each suite has a disk for each."""

INSTALLED = (
    *("systemd-sysv", "dbus", "openssh-server", "sudo", "python3", "ifupdown", "apparmor", "nftables"),
    *("lvm2", "mdadm", "multipath-tools", "e2fsprogs", "ca-certificates"),
)
"""Besides Debian's packages of the priority `important`; the rest is what a storage machine tends to have."""

ON_THE_MIRROR = (
    *("strongswan", "targetcli-fb", "network-manager", "ufw", "hostapd", "wpasupplicant"),
    *("tgt", "nbdkit", "git", "make", "python3-venv"),
)
"""What users have for themselves, besides what doctor names."""

MAKE_INSTALL = ("hatchling", "editables", "tox>=4.18")
"""What `make install` has pip fetch, besides the dependencies."""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What machines are made of: what their disk and their two interfaces are called, and what boots them."""

    name: str
    root: str
    interfaces: tuple[str, str]
    packages: tuple[str, ...] = ()
    patience: float = field(default=1, repr=False)
    """How many times as long as elsewhere is waited for it. Disks do not depend on that."""


UML = Hardware(name="uml", root="/dev/ubda", interfaces=("vec0", "vec1"))
"""User-mode kernels of our own: fast."""

DEBIANS = ("linux-image-amd64",)
QEMU = Hardware(name="qemu", root="/dev/vda", interfaces=("enp0s2", "enp0s3"), packages=DEBIANS, patience=10)
"""Debian's kernel and its modules: whole."""

HARDWARE = {hardware.name: hardware for hardware in (UML, QEMU)}
DISK_BYTES = 4 << 30
HOME_NETWORK, STORAGE_NETWORK = "192.0.2", "198.51.100"
"""RFC 5737. Each machine has an interface in both, whose last number is its place in NAMES plus ten."""

AS_ROOT = () if os.geteuid() == 0 else ("unshare", "--map-root-user", "--map-auto")
"""A wrapper for who is not root: files belong to a range of users that is this user's."""

MIRROR = """
set -eu
chroot "$1" apt-get install --quiet=2 --yes --download-only --no-install-recommends {packages} >/dev/null
mkdir -p "$1/srv/debian"
mv "$1"/var/cache/apt/archives/*.deb "$1/srv/debian/"
chroot "$1" sh -c 'cd /srv/debian && apt-ftparchive packages . >Packages 2>/dev/null'
rm -f "$1"/etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/debian ./' >"$1/etc/apt/sources.list"
chroot "$1" apt-get update --quiet=2
cp -r {wheels} "$1/srv/wheels"
printf '[global]\\nno-index = true\\nfind-links = /srv/wheels\\n' >"$1/etc/pip.conf"
"""

DISKS = """
set -eu
mkdir root identity
tar --extract --numeric-owner --xattrs --xattrs-include='*' --file="$1" --directory=root
tar --extract --file=- --directory=identity
if [ -d identity/modules ]; then cp -r --no-preserve=ownership identity/modules/. root/usr/lib/modules/; fi
if [ -e root/vmlinuz ]; then
    cp root/vmlinuz root/initrd.img .
    # QEMU boots those. To make another with each package takes TCG half an hour.
    echo update_initramfs=no >root/etc/initramfs-tools/update-initramfs.conf
fi
rm -f root/etc/ssh/ssh_host_* root/etc/machine-id root/var/lib/dbus/machine-id root/etc/resolv.conf
chroot root useradd --create-home --shell /bin/bash --groups sudo admin
chroot root useradd --create-home --shell /bin/bash guest
for name in $2; do
    cp --recursive --no-preserve=ownership "identity/$name/." root/
    chroot root chown -R admin: /home/admin
    chroot root chown -R guest: /home/guest
    chmod 0700 root/root/.ssh root/home/admin/.ssh root/home/guest/.ssh
    chmod 0440 root/etc/sudoers.d/admin
    chmod 0600 root/etc/ssh/ssh_host_ed25519_key
    truncate --size="$3" "$name.ext4"
    mkfs.ext4 -q -F -d root "$name.ext4"
done
rm -rf root identity
"""
"""Arguments: the root's archive, the machines' names, how large a disk is. On standard input: an archive with
each machine's own files, and the kernel's modules."""


IDENTITY = {
    "etc/hostname": "{name}\n",
    "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 {name}\n{others}",
    "etc/fstab": "{root} / ext4 errors=remount-ro 0 1\n",
    "etc/machine-id": "",
    "etc/network/interfaces": """\
auto lo
iface lo inet loopback

auto {home_interface}
iface {home_interface} inet static
    address {home}/24

auto {storage_interface}
iface {storage_interface} inet static
    address {storage}/24
""",
    "etc/ssh/ssh_host_ed25519_key": "{host_key}",
    "etc/ssh/ssh_host_ed25519_key.pub": "{host_key_public}",
    "etc/sudoers.d/admin": "admin ALL=(ALL) NOPASSWD: ALL\n",
    "root/.ssh/authorized_keys": "{user_key}",
    "home/admin/.ssh/authorized_keys": "{user_key}",
    "home/guest/.ssh/authorized_keys": "{user_key}",
}
"""What is a machine's own: its name, its addresses, who may log in. `admin` may use sudo, `guest` may not."""


def cache_folder() -> Path:
    return building.cache_folder().with_name("machines")


@dataclass(frozen=True, kw_only=True)
class Disks:
    """The disks of one suite, in the cache, and the keys that open the machines.

    Next to those of QEMU are ``vmlinuz`` and ``initrd.img``.
    """

    folder: Path
    suite: str
    hardware: Hardware

    def disk(self, name: str) -> Path:
        return self.folder / f"{name}.ext4"

    @property
    def user_key(self) -> Path:
        return self.folder / "id_ed25519"

    def host_key(self, name: str) -> str:
        """The public one, as known_hosts(5) has it."""
        return (self.folder / f"{name}.pub").read_text(encoding="utf-8").strip()

    def exists(self) -> bool:
        return (self.folder / "complete").exists()


def disks(suite: str, hardware: Hardware = UML) -> Disks:
    """Where the disks of a suite are, or will be once ``make`` was called.

    Raises RequirementError if the custom kernel, which UML's machines boot, has not been built.
    """
    own = kernel.custom_kernel().modules if hardware is UML else ""
    recipe = (suite, hardware, NAMES, INSTALLED, _wanted(), MIRROR, DISKS, IDENTITY, str(own))
    key = hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]
    folder = cache_folder() / f"{suite}-{hardware.name}-{key}"
    return Disks(folder=folder, suite=suite, hardware=hardware)


def _wanted() -> list[str]:
    """What doctor may name for a machine, by Debian's names, and what users have for themselves."""
    named = [p.name for p in packages() if not {"target", "initiator"}.isdisjoint(p.needed_by)]
    return sorted({*named, *ON_THE_MIRROR})


def address(name: str, network: str) -> str:
    return f"{network}.{10 + NAMES.index(name)}"


def make(suite: str, hardware: Hardware = UML) -> Disks:
    wanted = disks(suite, hardware)
    if wanted.exists():
        return wanted
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / f"{suite}-{hardware.name}.lock"), _work_folder(cache) as work:
        if wanted.exists():  # by whoever was at it before us
            return wanted
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "user", "-f", str(work / "id_ed25519")])
        archive = _archive(suite, hardware, cache)
        identities = io.BytesIO()
        with tarfile.open(fileobj=identities, mode="w") as tar:
            for name in NAMES:
                _add_identity(tar, name, hardware, work)
            if hardware is UML:
                tar.add(kernel.custom_kernel().modules, "modules")
        argv = [*AS_ROOT, "sh", "-c", DISKS, "sh", str(archive), " ".join(NAMES), str(DISK_BYTES)]
        _run(argv, cwd=work, input=identities.getvalue())
        (work / "complete").touch()
        work.rename(wanted.folder)
    return wanted


def _archive(suite: str, hardware: Hardware, cache: Path) -> Path:
    installed = (*INSTALLED, *hardware.packages)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    fetched = (*project["dependencies"], *MAKE_INSTALL)
    names = (*installed, "|", *_wanted(), "|", *fetched)
    key = hashlib.sha256(f"{' '.join(names)}{MIRROR}".encode()).hexdigest()[:12]
    archive = cache / f"{suite}-{key}.tar"
    if not archive.exists():
        unfinished = archive.with_suffix(".unfinished.tar")
        unfinished.unlink(missing_ok=True)
        wheels = cache / f"{archive.stem}.wheels"
        release = ("--only-binary=:all:", f"--python-version={SUITES[suite]}")
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download")
        _run([*pip, f"--dest={wheels}", *release, *fetched])
        hook = cache / f"{archive.stem}.hook"
        hook.write_text(MIRROR.format(packages=" ".join(_wanted()), wheels=wheels), encoding="utf-8")
        words = ["--variant=important", "--format=tar", "--skip=cleanup/apt"]
        words += [f"--include={','.join(installed)}", f'--customize-hook=sh {hook} "$1"']
        _run(["sh", str(ROOT / "tools/make-root.sh"), suite, str(unfinished), *words])
        hook.unlink()
        shutil.rmtree(wheels)
        unfinished.rename(archive)
    return archive


def _add_identity(tar: tarfile.TarFile, name: str, hardware: Hardware, work: Path) -> None:
    """A machine's own files, with a host key made for it."""
    key = work / f"{name}.key"
    _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{name}", "-f", str(key)])
    public = key.with_name(f"{key.name}.pub").read_text(encoding="utf-8")
    (work / f"{name}.pub").write_text(" ".join(public.split()[:2]), encoding="utf-8")
    others = "".join(f"{address(other, HOME_NETWORK)} {other}\n" for other in NAMES if other != name)
    facts = {"name": name, "others": others, "root": hardware.root}
    facts |= zip(("home_interface", "storage_interface"), hardware.interfaces, strict=True)
    facts |= {"home": address(name, HOME_NETWORK), "storage": address(name, STORAGE_NETWORK)}
    facts |= {"host_key": key.read_text(encoding="utf-8"), "host_key_public": public}
    facts["user_key"] = (work / "id_ed25519.pub").read_text(encoding="utf-8")
    for path, template in IDENTITY.items():
        entry = tarfile.TarInfo(f"{name}/{path}")
        data = template.format(**facts).encode()
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    key.unlink()
    key.with_name(f"{key.name}.pub").unlink()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until nobody else makes the same disks; the lock ends with its process, however that ends."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _work_folder(cache: Path) -> Iterator[Path]:
    """A folder that becomes the result by being renamed; otherwise it goes."""
    work = Path(tempfile.mkdtemp(prefix="making-", dir=cache))
    try:
        yield work
    finally:
        subprocess.run([*AS_ROOT, "rm", "-rf", "--one-file-system", str(work)], check=True)


def _run(argv: list[str], *, cwd: Path | None = None, input: bytes | None = None) -> None:
    reads = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
    subprocess.run(argv, cwd=cwd, check=True, **reads)


if __name__ == "__main__":
    chosen = HARDWARE[sys.argv[1]]
    if chosen is UML and ON_CI:
        build_kernel()
    for suite in sys.argv[2:] or SUITES:
        try:
            print(f"{suite}: {make(suite, chosen).folder}")  # noqa: T201
        except RequirementError as error:
            # The tests are skipped then, each with this reason.
            print(f"{suite}: {error.message}\n  hint: {error.hint}")  # noqa: T201
