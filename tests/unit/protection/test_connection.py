"""A connection of the user's: what of swanctl.conf(5) is read, and what charon and swanctl are told."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.hosts import Host
from harness.hosts.journal import Journal
from harness.model.errors import CommandFailed, HarnessError, UsageError
from harness.protection.ipsec import charon, connection
from harness.protection.ipsec.connection import children
from harness.protection.witness import REQID
from tests.unit.fakes import World
from tests.unit.fakes.answers import DONE, Answer

FILE = "/etc/swanctl/conf.d/nas.conf"
TEXT = """\
include others/*.conf
connections {
    nas : defaults {  # children { x {
        local { auth = psk }
        children
        {
            disks { mode = tunnel }
        }
    }
}
secrets { ike-nas { secret = "children { y { } }" } }
"""
TWO = TEXT.replace("disks {", "films { }\n disks {")


def test_children_are_found_whatever_the_layout() -> None:
    assert children(TEXT) == [("nas", "disks")]
    assert children(TWO) == [("nas", "films"), ("nas", "disks")]
    assert children("connections { a { children { b {} c {} } } d { children { b {} } } }") == [
        ("a", "b"),
        ("a", "c"),
        ("d", "b"),
    ]
    assert children("connections { a { } }\n}}} children { x { } }") == []


CONFIGURATION = "/run/harness/private/own/swanctl.conf"


def machine(text: str = TEXT, *answers: tuple[tuple[str, ...], Answer]) -> World:
    """With the user's file, if it has a text."""
    files = {FILE: text} if text else {}
    return World(secret_files=files, answers=[*answers, (("ip", "xfrm"), DONE)])


@dataclasses.dataclass
class Daemon:
    """What charon was asked, and how it answers."""

    refusal: HarnessError | None = None
    asked: list[tuple[str, Mapping[str, Any]]] = dataclasses.field(default_factory=list)

    def ask(self, command: str, message: Mapping[str, Any], **_within: float) -> None:
        self.asked.append((command, message))
        if command == "initiate" and self.refusal is not None:
            raise self.refusal


def brought_up(
    world: World,
    named: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: HarnessError | None = None,
) -> Daemon:
    daemon = Daemon(refusal)

    @contextlib.contextmanager
    def running(_host: Host, _folder: Path, **_words: object) -> Iterator[Daemon]:
        yield daemon

    monkeypatch.setattr(charon, "running", running)
    with connection.up(
        world.host("initiator"),
        named,
        index=2,
        journal=Journal(folder / "journal.jsonl"),
        folder=Path(CONFIGURATION).parent,
        log=folder / "charon.log",
    ):
        assert "deleteall" not in str(world.commands)
    return daemon


def test_it_is_the_run_s_own_while_it_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = machine()
    daemon = brought_up(world, FILE, tmp_path, monkeypatch)
    assert [command for command, _ in daemon.asked] == ["initiate", "terminate"]
    assert daemon.asked[0][1]["child"] == "disks" and daemon.asked[1][1]["ike"] == "nas"
    text = world.secret_files[CONFIGURATION]
    assert "include" not in text and text.index("secret =") < text.index(f"reqid = {REQID + 2}\n")
    assert text.count("start_action = none") == 1 and "priority = 10002\n" in text
    said = [" ".join(command.argv) for command in world.commands]
    assert f"ip xfrm state deleteall reqid {REQID + 2}" in said
    assert "ip xfrm policy deleteall priority 10002" in said


def test_of_several_one_is_named_and_none_starts_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = machine(TWO)
    with pytest.raises(UsageError, match="found films of nas, disks of nas") as several:
        brought_up(world, FILE, tmp_path, monkeypatch)
    assert several.value.hint == f"name one: swanctl:{FILE}#films"
    brought_up(world, f"{FILE}#disks", tmp_path, monkeypatch)
    text = world.secret_files[CONFIGURATION]
    assert text.count("start_action = none") == 2 and text.count("reqid") == 1


@pytest.mark.parametrize(
    ("text", "named", "sentence"),
    [
        ("", FILE, f"found nothing to read at {FILE}"),
        ("include conf.d/*.conf\n", FILE, "expected one child of a connection in .* found none"),
        (TEXT, f"{FILE}#other", "found disks of nas"),
    ],
)
def test_a_file_that_does_not_say_what_to_bring_up_is_refused(
    text: str, named: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = machine(text)
    with pytest.raises(UsageError, match=sentence) as refused:
        brought_up(world, named, tmp_path, monkeypatch)
    assert refused.value.hint and not world.commands


def test_charon_s_reason_is_told_and_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, refusal = machine(), CommandFailed("received NO_PROPOSAL_CHOSEN")
    with pytest.raises(CommandFailed, match=r"disks of .* does not come up: received NO_PROPOSAL_CHOSEN"):
        brought_up(world, FILE, tmp_path, monkeypatch, refusal)
    assert str(world.commands).count("deleteall") == 2


def test_what_swanctl_refuses_is_told_without_its_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "plugin 'ldap': failed to load\n/etc/swanctl/swanctl.conf:7: syntax error\n"
    world = machine(TEXT, (("unshare", "--mount", "sh"), (22, "", said)))
    with pytest.raises(CommandFailed, match=rf"does not load {FILE}: /etc/swanctl/swanctl.conf:7: syntax e"):
        brought_up(world, FILE, tmp_path, monkeypatch)
