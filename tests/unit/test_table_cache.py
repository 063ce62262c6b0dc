"""The cache of tables: a table that was made before is only ever shown of what has not changed since."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.model import caches
from harness.results.store import RunFolder, open_results
from harness.table import Metric, Options, TableFormat, build, cached, render
from harness.table import cache as module
from harness.table.options import Table
from tests.unit.command import harness
from tests.unit.test_table import record

LONG_AGO_NS = 10**18


class Maker:
    """Makes the table of a folder, and counts how often it had to."""

    def __init__(self, results: Path, options: Options | None = None) -> None:
        self.paths = [results]
        self.options = options or Options()
        self.made = 0

    def _make(self) -> Table:
        self.made += 1
        return build(open_results(self.paths), self.options)

    def value(self) -> float | None:
        ((cell,),) = cached(self.paths, self.options, self._make).cells
        assert cell is not None
        return cell.value


def settle(path: Path) -> None:
    """As if nothing had been written in the last moment, where a clock's tick could hide a change."""
    for file in (path, *path.rglob("*")):
        os.utime(file, ns=(LONG_AGO_NS, LONG_AGO_NS))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    RunFolder(tmp_path / "results" / "r1").save_record(record(10.0))
    settle(tmp_path / "results")
    return tmp_path / "results"


def test_a_table_is_made_once_and_the_same_comes_back(results: Path) -> None:
    maker = Maker(results)
    assert [maker.value() for _ in range(3)] == [10.0] * 3
    assert maker.made == 1
    fresh = build(open_results([results]))
    again = cached([results], Options(), lambda: pytest.fail("it was made again"))
    assert again == fresh
    assert [render(again, format) for format in TableFormat] == [
        render(fresh, format) for format in TableFormat
    ]


def _edit_in_place(results: Path) -> None:
    file = next(results.rglob("cells/*.json"))
    text = file.read_text(encoding="utf-8").replace('"bytes": 1', '"bytes": 2')
    with file.open("r+", encoding="utf-8") as opened:  # the same inode, size and folder
        opened.write(text)


def _edit(results: Path) -> None:
    """As editors do: the new text takes the old one's name."""
    file = next(results.rglob("cells/*.json"))
    _edit_in_place(results)
    other = file.with_suffix(".new")
    other.write_bytes(file.read_bytes())
    other.replace(file)


def _unnoticed(results: Path) -> None:
    """Put back the time of the folder, as some programs that copy folders do."""
    folder = results / "r1" / "cells"
    times = folder.stat()
    RunFolder(results / "r1").save_record(record(30.0))
    os.utime(folder, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES: dict[str, tuple[Callable[[Path], object], float]] = {
    "edited by an editor": (lambda results: _edit(results), 20.0),
    "replaced": (lambda results: RunFolder(results / "r1").save_record(record(30.0)), 30.0),
    "replaced, and the folder's time put back": (_unnoticed, 30.0),
    "another repeat": (lambda results: RunFolder(results / "r1").save_record(record(30.0, repeat=2)), 20.0),
    "another run": (lambda results: RunFolder(results / "r2").save_record(record(30.0, run_id="r2")), 20.0),
}


@pytest.mark.parametrize(("change", "value"), CHANGES.values(), ids=list(CHANGES))
def test_every_change_of_the_results_is_seen(
    results: Path, change: Callable[[Path], object], value: float
) -> None:
    maker = Maker(results)
    assert maker.value() == 10.0
    change(results)
    assert (maker.value(), maker.made) == (value, 2)


def test_a_record_that_is_written_over_in_its_place_is_seen_with_the_next_change(results: Path) -> None:
    maker = Maker(results)
    assert maker.value() == 10.0
    _edit_in_place(results)
    assert (maker.value(), maker.made) == (10.0, 1)  # what a table in a tenth of the time costs
    (results / "r1" / "events.jsonl").write_text("{}\n", encoding="utf-8")
    assert (maker.value(), maker.made) == (20.0, 2)


def test_a_loose_file_that_is_written_over_is_seen(tmp_path: Path) -> None:
    file = RunFolder(tmp_path / "r1").save_record(record(10.0)).rename(tmp_path / "loose.json")
    (tmp_path / "r1" / "cells").rmdir()
    settle(tmp_path)
    maker = Maker(tmp_path)
    assert maker.value() == 10.0
    file.write_text(file.read_text(encoding="utf-8").replace('"bytes": 1', '"bytes": 2'), encoding="utf-8")
    assert (maker.value(), maker.made) == (20.0, 2)


def test_results_that_were_just_written_are_not_trusted(tmp_path: Path, own_cache: Path) -> None:
    RunFolder(tmp_path / "r1").save_record(record(10.0))
    Maker(tmp_path / "r1").value()
    assert not own_cache.exists()


def test_each_question_has_its_own_table(results: Path) -> None:
    mb, mib = Maker(results), Maker(results, Options(metric=Metric.MIB_S))
    for _ in range(2):
        assert mb.value() == 10.0
        assert mib.value() == pytest.approx(9.5367, rel=1e-4)
    assert (mb.made, mib.made) == (1, 1)


def test_another_version_of_the_code_makes_its_own(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker(results)
    maker.value()
    monkeypatch.setattr(module, "_code", lambda: [1])
    maker.value()
    assert maker.made == 2


@pytest.mark.parametrize("cut", [0, 10, 63, 64, 100, -1])
def test_a_damaged_cache_is_passed_over_and_mended(results: Path, own_cache: Path, cut: int) -> None:
    maker = Maker(results)
    maker.value()
    (file,) = own_cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:cut])
    assert (maker.value(), maker.made) == (10.0, 2)
    flipped = bytearray(whole)
    flipped[cut] ^= 1
    file.write_bytes(flipped)
    assert (maker.value(), maker.made) == (10.0, 3)
    assert (maker.value(), maker.made) == (10.0, 3)


def test_where_nothing_can_be_kept_tables_are_made_each_time(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    maker = Maker(results)
    assert [maker.value(), maker.value()] == [10.0, 10.0]
    assert maker.made == 2


def test_two_at_once_do_not_disturb_each_other(results: Path, own_cache: Path) -> None:
    values: list[float | None] = []
    makers = [threading.Thread(target=lambda: values.append(Maker(results).value())) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert values == [10.0] * 8
    (file,) = own_cache.iterdir()
    assert file.suffix == ".table"


def test_the_cache_does_not_grow_without_end(tmp_path: Path, own_cache: Path) -> None:
    for number in range(module.KEPT + 5):
        RunFolder(tmp_path / f"r{number}").save_record(record(10.0, run_id=f"r{number}"))
        settle(tmp_path / f"r{number}")
        Maker(tmp_path / f"r{number}").value()
    assert len(list(own_cache.iterdir())) == module.KEPT


def test_the_command_tells_what_is_wrong_as_before(results: Path, tmp_path: Path) -> None:
    first, second = (harness("table", "results", cwd=tmp_path) for _ in range(2))
    assert (first.returncode, first.stdout) == (0, second.stdout)
    (results / "r1" / "cells" / "x.json").write_text("{", encoding="utf-8")
    first = harness("table", "results", cwd=tmp_path)
    again = harness("table", "results", cwd=tmp_path)
    for broken in (first, again):
        assert broken.returncode == 1 and "10.00" in broken.stdout
        assert "x.json is not a readable record" in broken.stderr
        assert "Incomplete: results/r1/cells/x.json is not a readable record" in broken.stdout
    missing = harness("table", "nowhere", cwd=tmp_path)
    assert "nowhere does not exist" in missing.stderr


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_kept_is_its_owner_s_alone(
    results: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    before = os.umask(umask)
    try:
        made = caches.make("kernel", "sources")
        Maker(results).value()
    finally:
        os.umask(before)
    assert made == own_cache / "kernel" / "sources"
    folders = (own_cache, own_cache / "kernel", made)
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3
    own_cache.chmod(0o755)  # as earlier versions left it
    caches.make()
    assert own_cache.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert caches.folder() == Path.home() / ".cache" / "harness"
