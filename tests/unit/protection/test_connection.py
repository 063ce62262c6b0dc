"""A connection of the user's: what of swanctl.conf(5) is read, and what charon and swanctl are told."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import cast
from unittest import mock

import pytest

from harness.hosts.journal import Journal
from harness.model.errors import CommandFailed, UsageError
from harness.protection.ipsec import charon, connection
from harness.protection.ipsec.connection import children
from harness.protection.xfrm_listener import REQID
from tests.unit.fakes import World
from tests.unit.fakes.answers import DONE, Answer

FILE = "/etc/swanctl/conf.d/nas.conf"
TEXT = """\
include others/*.conf
connections {
    nas : defaults {  # children { x {
        local { auth = psk }
        children
        { disks { mode = tunnel } }
    }
}
secrets { ike-nas { secret = "children { y { } }" } }
"""
TWO = TEXT.replace("disks {", "films { }\n disks {")


def test_children_are_found_whatever_the_layout() -> None:
    assert children(TEXT) == [("nas", "disks")]
    assert children(TWO) == [("nas", "films"), ("nas", "disks")]
    on_one_line = "connections { a { children { b {} c {} } } d { children { b {} } } }"
    assert children(on_one_line) == [("a", "b"), ("a", "c"), ("d", "b")]
    assert children("connections { a { } }\n}}} children { x { } }") == []


CONFIGURATION = "/run/harness/private/own/swanctl.conf"


def machine(text: str = TEXT, *answers: tuple[tuple[str, ...], Answer]) -> World:
    """With the user's file."""
    return World(secret_files={FILE: text}, answers=[*answers, (("ip", "xfrm"), DONE)])


@pytest.fixture(autouse=True)
def ask(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """What charon is asked."""
    fake = mock.Mock()
    monkeypatch.setattr(charon, "running", lambda *_places, **_words: contextlib.nullcontext(fake))
    return cast(mock.Mock, fake.ask)


def bring_up(world: World, named: str, folder: Path) -> None:
    journal, log = Journal(folder / "journal.jsonl"), folder / "charon.log"
    own = Path(CONFIGURATION).parent
    with connection.up(world.host("initiator"), named, index=2, journal=journal, folder=own, log=log):
        assert "deleteall" not in str(world.commands)


def test_it_is_the_run_s_own_while_it_is_up(tmp_path: Path, ask: mock.Mock) -> None:
    world = machine()
    bring_up(world, FILE, tmp_path)
    (first, started), (second, ended) = (call.args for call in ask.call_args_list)
    assert (first, started["child"], second, ended["ike"]) == ("initiate", "disks", "terminate", "nas")
    text = world.secret_files[CONFIGURATION]
    assert "include" not in text and text.index("secret =") < text.index(f"reqid = {REQID + 2}\n")
    assert text.count("start_action = none") == 1 and "priority = 10002\n" in text
    said = [" ".join(command.argv) for command in world.commands]
    assert f"ip xfrm state deleteall reqid {REQID + 2}" in said
    assert "ip xfrm policy deleteall priority 10002" in said


def test_of_several_one_is_named_and_none_starts_by_itself(tmp_path: Path) -> None:
    world = machine(TWO)
    with pytest.raises(UsageError, match="found films of nas, disks of nas") as several:
        bring_up(world, FILE, tmp_path)
    assert several.value.hint == f"name one: swanctl:{FILE}#films"
    bring_up(world, f"{FILE}#disks", tmp_path)
    text = world.secret_files[CONFIGURATION]
    assert text.count("start_action = none") == 2 and text.count("reqid") == 1


def test_a_file_that_does_not_say_what_to_bring_up_is_refused(tmp_path: Path) -> None:
    for text, named, sentence in (
        ("", FILE, f"found nothing to read at {FILE}"),
        ("include conf.d/*.conf\n", FILE, "expected one child of a connection in .* found none"),
        (TEXT, f"{FILE}#other", "found disks of nas"),
    ):
        world = machine(text)
        with pytest.raises(UsageError, match=sentence) as refused:
            bring_up(world, named, tmp_path)
        assert refused.value.hint and not world.commands


def test_charon_s_or_swanctl_s_reason_is_told_and_nothing_stays(tmp_path: Path, ask: mock.Mock) -> None:
    said = "plugin 'ldap': failed to load\n/etc/swanctl/swanctl.conf:7: syntax error\n"
    world = machine(TEXT, (("unshare", "--mount", "sh"), (22, "", said)))
    with pytest.raises(CommandFailed, match=rf"does not load {FILE}: /etc/swanctl/swanctl.conf:7: syntax e"):
        bring_up(world, FILE, tmp_path)
    world, ask.side_effect = machine(), [CommandFailed("received NO_PROPOSAL_CHOSEN"), None]
    with pytest.raises(CommandFailed, match=r"disks of .* does not come up: received NO_PROPOSAL_CHOSEN"):
        bring_up(world, FILE, tmp_path)
    assert str(world.commands).count("deleteall") == 2
