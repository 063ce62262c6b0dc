"""Tables of scores: stored by a script of bench/, and printed into a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import scores


def test_a_stored_table_is_printed_with_its_command_a_row_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "FOLDER", tmp_path / "scores")
    rows = [["link", "1"], ["core", "2 %"]]
    scores.store("some", "python bench/some.py", ["what", "error"], rows, ["all: 2"])
    head, _, *found, empty, said, source = scores.printed("some").splitlines()
    assert [line.split() for line in (head, *found)] == [
        ["what", "error"],
        ["link", "1"],
        ["core", "2", "%"],
    ]
    assert (empty, said) == ("", "all: 2") and source.startswith("python bench/some.py, ")
    assert scores.printed("some", "error").splitlines()[0] == "error"
    assert '\n  ["link", "1"],\n' in (tmp_path / "scores" / "some.json").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="nothing"):
        scores.printed("some", "nothing")


def test_what_is_stored_is_whole_and_its_script_is_there() -> None:
    for file in scores.FOLDER.glob("*.json"):
        table = scores.load(file.stem)
        assert {len(row) for row in table.rows} == {len(table.columns)}, file.name
        script = table.command.replace("-m ", "").split()[1].replace(".", "/").replace("/py", ".py")
        assert (scores.ROOT / script).with_suffix(".py").is_file(), table.command
