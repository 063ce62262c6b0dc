"""CPU cost files as files: what is written is read again, and what is wrong is refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.analysis.cpu_costs import CpuCost, CpuCosts, Fit, Per, WhichEnd
from harness.parse.cpu_costs import load_cpu_costs, written
from harness.parse.profiles import data_folder
from tests.unit.parsing import refused

SHIPPED = sorted(data_folder().joinpath("profiles", "cpu-costs").glob("*.toml"))
IO_COST = CpuCost(
    part="iscsi", per=Per.IO, at=WhichEnd.BOTH, direction="read", ns=14000, low=12.5e3, high=2e9
)
BYTE_COST = CpuCost(
    part="iscsi", per=Per.BYTE, at=WhichEnd.BOTH, ns=0.0001234, low=0, high=1, rests_on="8 cells"
)
MADE = CpuCosts(
    name="mine",
    version=1,
    title='a "quoted" title',
    processor="a processor",
    cores=2,
    drivers={"aes128gcm16": "rfc4106-gcm-aesni"},
    sessions={"iscsi": {"queue_depth": 32}},
    fit=Fit(cells=40, repeats=2, error=0.034),
    costs=(IO_COST, BYTE_COST),
)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(written(MADE), encoding="utf-8")
    assert load_cpu_costs(str(file)) == MADE
    # One line for each CPU cost: diff(1) shows which differ.
    assert sum("part =" in line for line in file.read_text(encoding="utf-8").splitlines()) == 2
    assert MADE.at(WhichEnd.TARGET) == {}
    assert [cost.ns for cost in MADE.at(WhichEnd.BOTH).values()] == [14000, 0.0001234]
    assert msgspec.to_builtins(MADE)["costs"][0]["at"] == "both"


def test_shipped_lists_are_read_and_name_nothing() -> None:
    for path in SHIPPED:
        found = load_cpu_costs(path.stem)
        assert found.costs and found.fit is not None and found.sessions, path
        text = path.read_text(encoding="utf-8")
        assert not any(word in text for word in ("ssh://", "/home", "/work", "/tmp", "/root")), path


def test_a_file_of_the_last_version_is_read(tmp_path: Path) -> None:
    text = SHIPPED[0].read_text(encoding="utf-8")
    old = tmp_path / SHIPPED[0].name
    old.write_text(text.replace("\ncosts = [", "\nprices = ["), encoding="utf-8")
    assert load_cpu_costs(str(old)) == load_cpu_costs(SHIPPED[0].stem)


HEAD = 'version = 1\ntitle = "x"\n'
COST = '{ part = "x", per = "I/O", at = "both", ns = 2.0, low = 1.0, high = 3.0 }'


def costed(old: str, new: str) -> str:
    return f"{HEAD}costs = [{COST.replace(old, new)}]\n"


def test_what_is_wrong_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for text, said in (
        ("", "version"),
        ('version = 2\ntitle = "x"\n', "expected 1, found 2"),
        (HEAD + "extra = 1\n", "extra"),
        (HEAD + 'name = "x"\n', "the name comes from the file's name"),
        (costed("2.0", "4.0"), "low <= ns <= high"),
        *((costed(*change), "costs") for change in (("2.0", "nan"), ("3.0", "inf"), ("1.0", "-1.0"))),
        (costed("I/O", "mile"), "costs"),
        (HEAD + f"costs = [{COST}, {COST}]\n", "twice"),
        (HEAD + f"costs = [{COST.replace('x', chr(92) + 'u001b')}]\n", "visible"),
        (HEAD + "costs = 3\n", "costs"),
        (HEAD + "cores = 'two'\n", "cores"),
        (HEAD + 'sessions = { x = { y = "z" } }\n', "sessions"),
        (HEAD + "fit = { cells = 1, repeats = 1, error = 99.0 }\n", "fit"),
        ("version = [" * 2000, "valid TOML"),
    ):
        file.write_text(text, encoding="utf-8")
        refusal = refused(load_cpu_costs, str(file))
        assert said in refusal.message and "mine.toml" in refusal.message, text
    assert "CPU cost file" in str(refused(load_cpu_costs, "nowhere", folders=[tmp_path]))
