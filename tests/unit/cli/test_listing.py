"""``harness list``: every name in it is one that ``harness run`` takes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from harness.model.protections import MADE, STACK_EXAMPLE
from harness.parse.listed import LISTS, PrintedList
from tests.unit.command import harness

OPTIONS = {
    "links": "--link",
    "protections": "--protect",
    "transports": "--transport",
    "disks": "--virtual-time --disk",
}


@pytest.mark.parametrize("kind", LISTS)
def test_all_names_are_in_text_and_json(kind: str, tmp_path: Path) -> None:
    text = harness("list", kind, cwd=tmp_path).stdout
    done = harness("list", kind, "--format", "json", cwd=tmp_path)
    found = msgspec.json.decode(done.stdout, type=PrintedList).items
    table = text.split("\n\n")[0]
    assert [each.name for each in found] == [line.split()[0] for line in table.splitlines()[2:]]
    assert all(isinstance(each, dict) for each in json.loads(done.stdout)["items"])


@pytest.mark.parametrize("kind", OPTIONS)
def test_what_is_listed_can_be_run(kind: str, tmp_path: Path) -> None:
    names = [each.name for each in LISTS[kind]()]
    if kind == "disks":  # they need the custom kernel, and their files are checked when they are listed
        names = []
    words = [word for name in names for word in (*OPTIONS[kind].split(), name)]
    link = [] if kind == "links" else ["--link", "wired"]
    done = harness("run", "--plan", "--workload", "rand-read-4k", *link, *words, cwd=tmp_path)
    assert done.returncode == 0, done


def test_lists_name_what_options_take_besides(tmp_path: Path) -> None:
    for kind, words in (
        ("protections", ("on", "both", STACK_EXAMPLE)),
        ("links", ("wired:jumbo", "wired:rate=2.5G,rtt=5ms", "wired:unshaped", "wired:jitter=10us")),
    ):
        *_, notes = harness("list", kind, cwd=tmp_path).stdout.split("\n\n")
        assert all(len(line) <= 80 for line in notes.splitlines())
        for word in words:
            assert word.removeprefix("wired:").split("=")[0] in notes
            done = harness("run", "--plan", "--workload", "rand-read-4k", OPTIONS[kind], word, cwd=tmp_path)
            assert done.returncode == 0, done
    assert "pre-existing" in harness("list", "protections", cwd=tmp_path).stdout


def test_lists_have_the_figures_of_profiles(tmp_path: Path) -> None:
    (tmp_path / "profiles" / "links").mkdir(parents=True)
    (tmp_path / "profiles" / "links" / "mine.toml").write_text(
        'title = "mine"\nemulated = true\nrate_bit_s = 2_000_000\ndelay_us = 1500\nloss_percent = 1\n',
        encoding="utf-8",
    )
    lines = harness("list", "links", cwd=tmp_path).stdout.splitlines()
    assert ["mine", "2", "Mbit/s", "3", "ms", "1%", "1500", "mine"] in [line.split() for line in lines]
    # A profile without a delay has no figure there, and below the table is why.
    (routed,) = (line.split() for line in lines if line.startswith("routed"))
    assert routed[3] == "-" and "comes on top" in " ".join(lines)
    protections = harness("list", "protections", cwd=tmp_path).stdout
    assert all(f"\n{name} " in protections for name in ("aes128gcm16", *MADE))
    assert (
        "rand-read-4k-qd32    modern     randread   4k    32"
        in harness("list", "workloads", cwd=tmp_path).stdout
    )


def test_an_unknown_list_is_refused(tmp_path: Path) -> None:
    done = harness("list", "link", cwd=tmp_path)
    assert done.returncode == 2 and "links" in done.stderr
