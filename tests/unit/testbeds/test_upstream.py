"""The source of Linux from kernel.org: fetched once, checked, and taken where a system has none itself."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hosts import packages
from harness.hosts.packages import Package
from harness.model import LabKernel
from harness.model.errors import CommandFailed, RequirementError
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import building, kernel, upstream
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.lab.kernels.upstream import Upstream
from tests.unit.testbeds.refusals import refusal
from tests.unit.testbeds.test_kernel import ignore

pytestmark = pytest.mark.thorough


def archive() -> bytes:
    """A tarball of Linux, as far as anybody looks."""
    text = b"VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 159\nEXTRAVERSION =\n"
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w:xz") as file:
        entry = tarfile.TarInfo("linux-6.1.159/Makefile")
        entry.size = len(text)
        file.addfile(entry, io.BytesIO(text))
    return into.getvalue()


class Site:
    """A server on this machine in place of kernel.org: what it has, and what it was asked."""

    content = archive()

    def __init__(self, url: str) -> None:
        self.asked: list[str] = []
        digest = hashlib.sha256(self.content).hexdigest()
        self.linux = Upstream(release="6.1.159", url=f"{url}/linux-6.1.159.tar.xz", sha256=digest)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            self.send_response(200 if found.content else 404)
            self.send_header("Content-Length", str(len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Site(f"http://127.0.0.1:{server.server_port}/pub")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_it_is_fetched_once_and_unpacked(site: Site, tmp_path: Path) -> None:
    linux = site.linux
    linux.fetch(ignore)
    linux.fetch(ignore)
    assert site.asked == ["/pub/linux-6.1.159.tar.xz"]
    assert linux.path == building.cache_folder() / "sources" / "linux-6.1.159.tar.xz"
    assert [file.name for file in linux.path.parent.iterdir()] == [linux.name]
    (folder := tmp_path / "unpacked").mkdir()
    reported: list[tuple[str, ...]] = []
    linux.unpack(lambda *argv: reported.append(argv), folder)
    assert reported[0][:2] == ("tar", "--extract") and f"--directory={folder}" in reported[0]
    assert (linux.version, linux.title) == ((6, 1), "linux-6.1.159.tar.xz of 127.0.0.1")


def test_what_was_put_there_by_hand_is_checked_and_what_has_other_bytes_not_kept(site: Site) -> None:
    linux = site.linux
    linux.path.parent.mkdir(parents=True)
    linux.path.write_bytes(archive())
    linux.fetch(ignore)
    assert site.asked == []
    linux.path.write_bytes(b"half of it")
    linux.fetch(ignore)
    assert linux.path.read_bytes() == archive()
    linux.path.unlink()
    site.content = b"something else"
    refusal(CommandFailed, f"with the SHA-256 {linux.sha256}, found ", linux.fetch, ignore)
    assert not list(linux.path.parent.iterdir())


def test_what_cannot_be_fetched_says_what_to_do(site: Site) -> None:
    site.content = b""
    hint = refusal(RequirementError, r"it cannot be fetched: .*Not Found", site.linux.fetch, ignore)
    assert f"put that file into {site.linux.path.parent}" in hint
    nobody = dataclasses.replace(site.linux, url="http://127.0.0.1:9/linux-6.1.159.tar.xz")
    refusal(RequirementError, r"cannot be fetched: .*refused", nobody.fetch, ignore)


def test_the_one_of_kernel_org_is_of_the_version_that_virtual_time_works_on() -> None:
    linux = upstream.LINUX
    assert linux.url == f"https://cdn.kernel.org/pub/linux/kernel/v6.x/linux-{linux.release}.tar.xz"
    assert linux.version == (6, 1) and re.fullmatch("[0-9a-f]{64}", linux.sha256)


@pytest.mark.parametrize(
    ("installed", "offered", "is_upstream"),
    [(("linux-source-6.1", "6.1.192-2"), True, False), (None, True, False), (None, False, True)],
)
def test_it_is_taken_where_the_system_has_no_source_that_was_tried(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, str] | None, offered: bool, is_upstream: bool
) -> None:
    source = Package(names=sources.PACKAGES, shown_by="-", purpose="the kernel: its source")
    compiler = Package(names=("gcc",), shown_by="cc", purpose="the kernel: compiling")
    monkeypatch.setattr(packages, "missing", lambda: [source, compiler])
    monkeypatch.setattr(packages, "installed_version", lambda _names: installed)
    monkeypatch.setattr(packages, "are_offered", lambda _names: offered)
    assert sources.is_upstream() is is_upstream
    assert sources.absent_packages() == ([compiler] if is_upstream else [source, compiler])
    assert sources.absent_packages(is_given=True) == [compiler]
    if is_upstream:
        assert sources.of(None) is upstream.LINUX
    elif installed is None:
        refusal(RequirementError, "linux-source-", sources.of, None)


def test_the_lab_takes_its_own_kernel_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    there = boot.Kernel(binary=Path("/linux"), modules=Path("/modules"))

    def absent() -> boot.Kernel:
        raise RequirementError("expected a kernel, found none")

    for debian, own, usual in (
        (lambda: there, lambda: there, LabKernel.DEBIAN),
        (absent, lambda: there, LabKernel.OWN),
        (absent, absent, LabKernel.DEBIAN),  # whose error says what to do
    ):
        monkeypatch.setattr(boot, "debian_kernel", debian)
        monkeypatch.setattr(kernel, "own_kernel", own)
        assert kernel.usual() is usual
