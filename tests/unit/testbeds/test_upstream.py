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

    def __init__(self, url: str) -> None:
        self.url = f"{url}/linux-6.1.159.tar.xz"
        self.content = archive()
        self.asked: list[str] = []

    def linux(self) -> Upstream:
        digest = hashlib.sha256(archive()).hexdigest()
        return Upstream(release="6.1.159", url=self.url, sha256=digest)


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


def ignore(_doing: str, _part: float) -> None:
    pass


def test_it_is_fetched_once_and_unpacked(site: Site, tmp_path: Path) -> None:
    linux = site.linux()
    linux.fetch(ignore)
    linux.fetch(ignore)
    assert site.asked == ["/pub/linux-6.1.159.tar.xz"]
    assert linux.path == building.cache_folder() / "sources" / "linux-6.1.159.tar.xz"
    assert [file.name for file in linux.path.parent.iterdir()] == [linux.name]
    folder = tmp_path / "unpacked"
    folder.mkdir()
    reported: list[tuple[str, ...]] = []
    linux.unpack(lambda *argv: reported.append(argv), folder)
    assert reported[0][:2] == ("tar", "--extract") and f"--directory={folder}" in reported[0]
    assert (linux.version, linux.title) == ((6, 1), "linux-6.1.159.tar.xz of 127.0.0.1")


def test_what_has_other_bytes_is_refused_and_not_kept(site: Site) -> None:
    site.content = b"something else"
    linux = site.linux()
    with pytest.raises(CommandFailed, match=f"with the SHA-256 {linux.sha256}, found "):
        linux.fetch(ignore)
    assert not list(linux.path.parent.iterdir())


def test_what_was_put_there_by_hand_is_checked(site: Site) -> None:
    linux = site.linux()
    linux.path.parent.mkdir(parents=True)
    linux.path.write_bytes(archive())
    linux.fetch(ignore)
    assert site.asked == []
    linux.path.write_bytes(b"half of it")
    linux.fetch(ignore)
    assert linux.path.read_bytes() == archive()


def test_what_cannot_be_fetched_says_what_to_do(site: Site) -> None:
    site.content = b""
    linux = site.linux()
    with pytest.raises(RequirementError, match=r"it cannot be fetched: .*Not Found") as refused:
        linux.fetch(ignore)
    assert f"put that file into {linux.path.parent}" in (refused.value.hint or "")
    nobody = dataclasses.replace(linux, url="http://127.0.0.1:9/linux-6.1.159.tar.xz")
    with pytest.raises(RequirementError, match=r"cannot be fetched: .*refused"):
        nobody.fetch(ignore)


def test_the_one_of_kernel_org_is_of_the_version_that_virtual_time_works_on() -> None:
    linux = upstream.LINUX
    assert linux.url == f"https://cdn.kernel.org/pub/linux/kernel/v6.x/linux-{linux.release}.tar.xz"
    assert linux.version == (6, 1) and re.fullmatch("[0-9a-f]{64}", linux.sha256)


# Where it is taken


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
        with pytest.raises(RequirementError, match="linux-source-"):
            sources.of(None)


@pytest.mark.parametrize(
    ("has_debians", "is_built", "usual"),
    [
        (True, True, LabKernel.DEBIAN),
        (False, True, LabKernel.OWN),
        (False, False, LabKernel.DEBIAN),  # whose error says what to do
    ],
)
def test_the_lab_takes_its_own_kernel_where_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, has_debians: bool, is_built: bool, usual: LabKernel
) -> None:
    one = boot.Kernel(binary=Path("/linux"), modules=Path("/modules"))

    def kernel_or_error(is_there: bool) -> boot.Kernel:
        if not is_there:
            raise RequirementError("expected a kernel, found none")
        return one

    monkeypatch.setattr(boot, "debian_kernel", lambda: kernel_or_error(has_debians))
    monkeypatch.setattr(kernel, "own_kernel", lambda: kernel_or_error(is_built))
    assert kernel.usual() is usual
