"""The fuzzer itself: it finds, counts, reduces and repeats what fails, and does the machine no harm."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from random import Random

import pytest

from tests.fuzz import commands, driver
from tests.fuzz.commands import Done, Seen
from tests.fuzz.doors import DOORS
from tests.fuzz.driver import Broken, Case, drawn, fuzz
from tests.fuzz.folders import RUN, a_run
from tests.fuzz.mutate import Change, Edit
from tests.fuzz.zips import Added, Header, Inside, members, packed


class Sevens:
    """Cases are numbers: those with a seven are wrong, and those with a thirteen in another way."""

    name = "sevens"

    def draw(self, chance: Random) -> Case:
        return Case("numbers", tuple(chance.randrange(20) for _ in range(4)))

    def check(self, case: Case) -> None:
        if 7 in case.parts:
            raise Broken("a seven", case.parts)
        if 13 in case.parts:
            raise ValueError("thirteen")


def test_failures_are_distinguished_counted_and_reduced() -> None:
    reported = fuzz(Sevens(), seed=1, seconds=60, most=300)
    assert reported.cases == 300
    (kind, thirteen), (_, seven) = sorted(reported.findings.items())
    assert kind.startswith("ValueError in ") and seven is reported.findings["a seven"]
    assert (set(seven.case.parts), set(thirteen.case.parts)) == ({7}, {13})
    assert 20 < seven.times < 120
    again = fuzz(Sevens(), seed=1, seconds=60, first=seven.number, most=1)
    assert list(again.findings) == ["a seven"] and "a seven (" in str(reported)


def test_a_case_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Sevens):
        def check(self, case: Case) -> None:
            while case:
                pass

    monkeypatch.setattr(driver, "MOST_CPU_S", 0.05)
    (finding,) = fuzz(Endless(), seed=1, seconds=60, most=1).findings.values()
    assert "of the processor" in finding.words


@pytest.mark.parametrize("name", list(DOORS))
def test_a_number_is_always_the_same_case(name: str) -> None:
    cases, again = ([drawn(DOORS[name], 1, number) for number in range(30)] for _ in range(2))
    assert cases == again and all(case.parts for case in cases) and len(set(map(str, cases))) > 25


def test_edits_and_changes() -> None:
    for edit, expected in (
        (Edit("replace", 0.5, 2, b"xyz"), b"01xyz4"),
        (Edit("cut", 0.6), b"012"),
        (Edit("begin late", 0.6), b"34"),
        (Edit("flip", 0.0, 0), b"11234"),
        (Edit("repeat", 0.2, 1), b"0111234"),
        (Edit("move", 0.0, 2), b"23401"),
        (Edit("number", 0.0, 0, b"-1"), b"-1"),
        (Edit("value", 0.0, 0, b"[]"), b"01234"),
    ):
        assert edit(b"01234") == expected, edit
        assert edit(b"") in (b"", edit.text), edit
    assert Edit("value", 0.5, text=b"[]")(b'a = 1\nb = "c" # d\n') == b"a = 1\nb = [] # d\n"
    for where, how, expected in ((0.4, 0, b"a\nc\n"), (0.0, 1, b"b\na\nc\n"), (0.0, 2, b"b\nc\na\na\n")):
        assert Edit("line", where, how)(b"a\nb\nc\n") == expected
    for change, expected in (
        (Change("set", 0.0, "NaN"), b'{"a": NaN, "b": [2]}'),
        (Change("remove", 0.0), b'{"b": [2]}'),
        (Change("rename", 0.0, '"c"'), b'{"b": [2], "c": 1}'),
        (Change("wrap", 0.0, "5"), b'{"a": [1, 5], "b": [2]}'),
    ):
        assert change(b'{"a": 1, "b": [2]}') == expected, change
        assert change(b"no JSON") == b"no JSON", change


def test_a_command_is_kept_from_what_is_not_its_folder_and_starts_nothing(tmp_path: Path) -> None:
    folder, outside = tmp_path / "inside", tmp_path / "outside.html"
    folder.mkdir()
    a_run(folder)
    done = commands.run(["report", RUN, "-o", "page.html"], folder)
    commands.require_good(done)
    assert (done.status, (folder / "page.html").is_file()) == (0, True)
    done = commands.run(["report", RUN, "-o", str(outside)], folder)
    assert (done.status, outside.exists()) == (2, False)
    with pytest.raises(Broken, match="writes outside"):
        commands.require_good(done)
    done = commands.run(["doctor"], tmp_path)
    assert done.seen.started
    with pytest.raises(Broken, match="starts a program"):
        commands.require_good(done)
    assert os.system("true") == 0, "afterwards programs start again"  # noqa: S605
    for status, out, err, kind in (
        (3, "", "", "ends with status 3"),
        (None, "", "", "ends with status None"),
        (1, "", "Traceback (most recent call last)", "prints a traceback"),
        (2, "", "no", "refuses without a sentence"),
        (0, "\x1b[2J", "", "prints what drives a terminal"),
        (0, '{"a": NaN}', "", "prints JSON that is none"),
    ):
        with pytest.raises(Broken, match=kind):
            commands.require_good(Done(("table", "--format", "json"), status, out, err, Seen("/nowhere")))


def test_archives_are_whole_until_they_are_damaged() -> None:
    names = list(members())
    with zipfile.ZipFile(io.BytesIO(packed(()))) as archive:
        assert archive.namelist() == names and archive.read(names[0]) == members()[names[0]]
    other = packed((Added("cells/../x", "deep", zipfile.ZIP_LZMA, 1), Inside(names[0], Edit("cut", 0.0))))
    with zipfile.ZipFile(io.BytesIO(other)) as archive:
        assert archive.namelist() == [*names, "cells/../x"] and archive.read(names[0]) == b""
    encrypted = packed((Header(b"PK\x01\x02", 0.0, 8, "H", 1),))
    with zipfile.ZipFile(io.BytesIO(encrypted)) as archive, pytest.raises(RuntimeError, match="encrypted"):
        archive.read(names[0])


def test_the_user_s_settings_are_the_case_s(tmp_path: Path) -> None:
    file = tmp_path / "config" / "harness" / "links" / "own.toml"
    file.parent.mkdir(parents=True)
    file.write_text("nothing = 1")
    asked = ["run", "--plan", "--link", "own"]
    assert "own.toml, line 1, nothing: there is no key" in commands.run(asked, tmp_path).err
    unknown = commands.run(asked, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "other")})
    assert "there is no link 'own'" in unknown.err
