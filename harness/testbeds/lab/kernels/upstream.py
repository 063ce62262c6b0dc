"""The source of Linux from kernel.org, for systems whose own source was not tried with the lab.

It is fetched once, checked, and kept in the user's cache folder. Any machine has it from the same place and
with the same bytes, which a distribution's would not be.
"""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.model import caches
from harness.model.errors import CommandFailed, RequirementError
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels.building import BUILDS, Report

SILENCE_S = 60.0
BLOCK_BYTES = 1 << 20
CACHE = (BUILDS, "sources")


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A release of Linux: where it is, and the SHA-256 of its archive."""

    release: str
    url: str
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def title(self) -> str:
        return f"{self.name} of {urllib.parse.urlsplit(self.url).hostname}"

    @property
    def version(self) -> tuple[int, int]:
        major, minor, *_ = self.release.split(".")
        return int(major), int(minor)

    @property
    def identity(self) -> str:
        return f"{self.release} sha256:{self.sha256}"

    @property
    def path(self) -> Path:
        """Where its archive is kept; without a network, put it there by hand."""
        return caches.folder(*CACHE, self.name)

    def fetch(self, report: Report) -> None:
        """Get the archive, unless it is there.

        RequirementError if it cannot be had, CommandFailed if it is another one.
        """
        if self.path.is_file() and boot.file_sha256(self.path) == self.sha256:
            return
        caches.make(*CACHE)
        part = self.path.with_name(f"{self.name}.part")
        report(f"getting {self.title}", 0)
        try:
            found = self._download(part)
            if found != self.sha256:
                raise CommandFailed(
                    f"expected {self.title} with the SHA-256 {self.sha256}, found {found}",
                    hint="try again; if it fails again, something between here and kernel.org changes the "
                    "file",
                )
            part.rename(self.path)
        except OSError as error:
            reason = getattr(error, "reason", None) or error
            raise RequirementError(
                f"expected {self.url}, the source of the custom kernel, but it cannot be fetched: {reason}",
                hint=f"put that file into {self.path.parent}; or use another source of Linux 6.1: "
                "harness kernel build --source FILE",
            ) from None
        finally:
            part.unlink(missing_ok=True)

    def _download(self, part: Path) -> str:
        from urllib.request import urlopen  # here, because every run would wait for its import

        digest = hashlib.sha256()
        # Of a URL that is in this file. Variables for proxies are heeded.
        with (
            urlopen(self.url, timeout=SILENCE_S) as answer,  # noqa: S310
            part.open("wb") as file,
        ):
            while block := answer.read(BLOCK_BYTES):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def unpack(self, run: Callable[..., object], folder: Path) -> None:
        run("tar", "--extract", f"--file={self.path}", f"--directory={folder}", *STRIPPED)


STRIPPED = ("--strip-components=1", "--no-same-owner")


LINUX = Upstream(
    release="6.1.159",
    url="https://cdn.kernel.org/pub/linux/kernel/v6.x/linux-6.1.159.tar.xz",
    # As nixpkgs has it (pkgs/os-specific/linux/kernel/kernels-org.json, 001fc17c4575), which takes it from
    # kernel.org's sha256sums.asc.
    sha256="1f207ebe93980829ecc0a18b694816f22b715e9893767731651969a168342b9e",
)
"""Of the version that virtual time works on, with what GCC 15 asks for."""
