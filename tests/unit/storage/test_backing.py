"""The file behind a target: made where there was none, and removed only if it still is that one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.hosts import NamespaceHost
from harness.hosts.runner import Completed
from harness.hosts.undo import carry_out
from harness.model import Backing, BackingKind
from harness.model.errors import DeviceRefused
from harness.storage import backing
from harness.storage.backing import IDENTITY, BackingFile, NewFile, refuse_foreign
from tests.unit.fakes import World

HOST = NamespaceHost("machine")
NOTHING: tuple[list[str], bool] = ([], False)  # was left to undo
SIZE_BYTES = 1 << 16
Made = tuple[NewFile, BackingFile]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "an image.img"


@pytest.fixture
def made(path: Path) -> Made:
    (new := NewFile(str(path))).refuse_foreign(HOST)
    new.acquire(HOST)
    identity = HOST.run(["stat", "-c", IDENTITY, "--", str(path)]).stdout.strip()
    file = BackingFile(str(path), SIZE_BYTES, identity)
    file.acquire(HOST)
    assert path.stat().st_size == SIZE_BYTES
    assert new.lasting and file.lasting, "both are written down for after a reboot"
    return new, file


def undo(resource: NewFile | BackingFile) -> tuple[list[str], bool]:
    return carry_out(resource.undo(), HOST.run)


def test_a_file_of_ours_is_removed_whatever_was_written_to_it(path: Path, made: Made) -> None:
    new, file = made
    with path.open("r+b") as stream:
        stream.write(b"data")
    assert undo(new) == NOTHING, "it is not empty any more"
    assert undo(file) == ([], True) and not path.exists()
    assert undo(file) == undo(new) == NOTHING, "what is absent is not removed"
    # One that was only just made is removed by its name.
    new.acquire(HOST)
    assert undo(new) == ([], True) and not path.exists()


def test_a_disk_without_room_is_told_with_what_it_has(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: Sequence[str], **_: object) -> Completed:
        if argv[0] == "sh":
            return Completed(argv=tuple(argv), status=0, stdout="512 4096\n", stderr="")
        said = "fallocate: fallocate failed: No space left on device\n"
        return Completed(argv=tuple(argv), status=1, stdout="", stderr=said)

    monkeypatch.setattr(NamespaceHost, "run", lambda _self, *given, **more: run(*given, **more))
    with pytest.raises(
        DeviceRefused, match=r"expected 4 GiB for the backing file .*, found 2 MiB free"
    ) as refused:
        BackingFile(str(path), 4 << 30, "").acquire(HOST)
    assert "--size" in str(refused.value)


def test_a_file_of_somebody_else_s_in_its_place_stays(path: Path, made: Made) -> None:
    new, file = made
    path.unlink()
    path.write_bytes(b"mine" * (SIZE_BYTES // 4))
    assert undo(file) == undo(new) == NOTHING and path.read_bytes().startswith(b"mine")
    path.unlink()
    path.with_name("elsewhere").touch()
    path.symlink_to(path.with_name("elsewhere"))
    assert undo(file) == undo(new) == NOTHING
    assert path.is_symlink() and path.exists()


def test_what_is_there_is_refused_and_stays(path: Path) -> None:
    link = path.with_name("a link")
    path.write_text("mine", encoding="utf-8")
    link.symlink_to("nowhere")
    for there in (path, link):
        with pytest.raises(DeviceRefused, match="it exists"):
            NewFile(str(there)).refuse_foreign(HOST)
        with pytest.raises(DeviceRefused):
            NewFile(str(there)).acquire(HOST)
    assert path.read_text(encoding="utf-8") == "mine" and link.is_symlink()


def test_a_ramdisk_in_use_is_refused_before_anything_is_made() -> None:
    for kind in (BackingKind.RAMDISK, BackingKind.FILE):
        world, wanted = World(), Backing(kind=kind, size_bytes=1 << 20)
        refuse_foreign(world.host("target"), wanted)
        world.make("module brd")
        with pytest.raises(DeviceRefused, match="already loaded"):
            refuse_foreign(world.host("target"), wanted)
        assert [c.argv[0] for c in world.commands] == ["ls", "ls"], "it is only looked"


def test_each_file_of_several_is_asked_for_before_anything_is_made(path: Path) -> None:
    wanted = Backing(kind=BackingKind.FILE, path=str(path), size_bytes=1 << 20)
    refuse_foreign(HOST, wanted, count=3)
    Path(f"{path}.2").touch()
    refuse_foreign(HOST, wanted, count=2)
    with pytest.raises(DeviceRefused, match=r"expected the backing file .*image\.img\.2 not to exist"):
        refuse_foreign(HOST, wanted, count=3)
    assert not path.exists()


@pytest.mark.parametrize(("have", "size", "after"), [(3, 10, 0), (3, 3, 2), (4, 5, 7), (1, 16, 0)])
def test_a_ramdisk_is_filled_with_copies_of_random_data(path: Path, have: int, size: int, after: int) -> None:
    path.write_bytes(bytes((after + size + 1) << 10))
    # Without O_DIRECT, which not every file system has.
    script = backing.FILL.replace("bs=1M", "bs=1K").replace(",direct", "").replace("oflag=direct", "")
    HOST.run(["sh", "-c", script, "sh", str(path), str(have), str(size), str(after)])
    whole = path.read_bytes()
    assert not any(whole[: after << 10]) and not any(whole[(after + size) << 10 :])
    found = whole[after << 10 : (after + size) << 10]
    assert len({*found[: have << 10]}) > 200, "it is random"
    assert found == (found[: have << 10] * size)[: size << 10]


def test_only_a_ramdisk_has_copies() -> None:
    world = World()
    backing.fill(world.host("target"), "/dev/ram0", 128 << 20, random_mib=8)
    backing.fill(world.host("target"), "/dev/sdx", 128 << 20, offset_bytes=3 << 20)
    filled = [command.argv[4:] for command in world.commands]
    assert filled == [("/dev/ram0", "8", "128", "0"), ("/dev/sdx", "128", "128", "3")]
