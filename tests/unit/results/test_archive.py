"""Shared files that are none, or damaged: each is refused in a sentence, and quickly."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from harness.model import temporary, unread
from harness.model.errors import Unreadable, UsageError
from harness.results import archive
from harness.results.store import RunFolder, load_record


def zipped(file: Path, compression: int = zipfile.ZIP_STORED) -> bytearray:
    with zipfile.ZipFile(file, "w", compression) as made:
        made.writestr("plan.json", "{}")
    return bytearray(file.read_bytes())


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_only_what_share_compresses_is_unpacked(compression: int, tmp_path: Path) -> None:
    zipped(tmp_path / "a.zip", compression)
    with pytest.raises(Unreadable, match="as no shared run is"):
        archive.unpacked(tmp_path / "a.zip")


@pytest.mark.parametrize("offset", [5, 0xFFFF, 0xFFFFFFF0])
def test_members_may_not_lie_elsewhere(offset: int, tmp_path: Path) -> None:
    data = zipped(tmp_path / "a.zip")
    for mark, at in ((b"PK\5\6", 16), (b"PK\1\2", 42)):
        file, changed = tmp_path / f"{at}.zip", data.copy()
        struct.pack_into("<I", changed, changed.index(mark) + at, offset)
        file.write_bytes(changed)
        with pytest.raises(Unreadable, match="a shared run"):
            archive.unpacked(file)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    data = zipped(tmp_path / "a.zip")
    at = data.index(b"PK\1\2")
    struct.pack_into("<H", data, at + 8, 0x800)  # the name is UTF-8 (APPNOTE.TXT 4.4.4)
    data[at + 46] = 0xFF
    (tmp_path / "b.zip").write_bytes(data)
    with pytest.raises(UsageError):
        archive.unpacked(tmp_path / "b.zip")


@pytest.mark.parametrize(("name", "most"), [("_MOST_MEMBERS", 1), ("_MOST_BYTES", 200)])
def test_one_with_too_much_is_refused_before_its_directory_is_read(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        for member in ("plan.json", "environment.json"):
            made.writestr(member, "{}")
    monkeypatch.setattr(archive, name, most)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it is read"))
    with pytest.raises(UsageError, match=r"more than 1 files|at most 0 MiB"):
        archive.unpacked(tmp_path / "a.zip")


def test_a_member_is_unpacked_in_pieces(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("plan.json", b" " * (16 << 20))
    tracemalloc.start()
    try:
        folder = archive.unpacked(tmp_path / "a.zip")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (folder / "plan.json").stat().st_size == 16 << 20


def test_each_of_thousands_that_cannot_be_read_is_noted_once() -> None:
    with unread.noted() as found:
        for number in range(30_000):
            unread.note(Unreadable(f"cell {number // 2}"))
    assert [error.message for error in found] == [f"cell {number}" for number in range(15_000)]


def test_what_is_unpacked_lies_in_a_folder_that_clean_knows(tmp_path: Path) -> None:
    zipped(tmp_path / "a.zip")
    folder = archive.unpacked(tmp_path / "a.zip")
    assert folder.parent.name.startswith(temporary.PREFIX) and RunFolder(folder).has_plan


def test_what_is_damaged_in_it_is_named_by_the_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "theirs.zip", "w") as made:
        for member in ("plan.json", "cells/a.json"):
            made.writestr(member, "{")
    for of in ("plan.json", "cells/a.json"):
        run = RunFolder(archive.unpacked(tmp_path / "theirs.zip"))
        with pytest.raises(Unreadable, match=rf"theirs\.zip/{of} is not a readable") as caught:
            run.load_plan() if of == "plan.json" else load_record(run.path / of)
        assert caught.value.hint == "ask for theirs.zip again: it is damaged"
