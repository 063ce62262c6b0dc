"""Configuration files: what is written becomes a request, what is wrong is named with its line."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.model import TRANSPORTS, IkeAuth, kinds
from harness.model.errors import UsageError
from harness.parse.profiles import data_folder
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest, load_request
from harness.terminal import options


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "bench.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_becomes_a_plan_and_what_is_left_out_has_the_default(tmp_path: Path) -> None:
    text = 'version = 1\nlinks = ["local", "wired:jumbo"]\nipsec = ["both"]\nrepeats = 2\nruntime = "250ms"\n'
    plan = make_plan(load_request(written(tmp_path, text + 'seed = 7\nauth = "cert"\n')))
    labels = ["local", "wired-mtu9000", "wired-mtu9000+aes128gcm16"]
    assert [column.label for column in plan.columns] == labels
    assert (plan.repeats, plan.runtime_s, plan.seed, plan.ike_auth) == (2, 0.25, 7, IkeAuth.CERT)
    assert load_request(written(tmp_path, "version = 1")) == RunRequest()


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    for text, message in (
        ("repeats = 3", "version: the key is missing"),
        ("version = 2", "line 1, version: expected 1, found 2"),
        ("version = 1\nrepeat = 3", "line 2, repeat: there is no key 'repeat'"),
        ("version = 1\nlinks = 'wired'", "line 2, links: Expected array"),
        ("version = 1\nauth = 'none'", "line 2, auth: Invalid enum value"),
        ("version = 1\nrepeats = 1\nrepeats = 2\n", "line 3, 'repeats = 2': the key appears twice"),
        ("version = 1\ndestroy = '/dev/sdb'", "line 2, destroy: there is no key"),
        (b"version = 1\nprofile = '\xe9'", "line 2: expected UTF-8"),
        (b"\xef\xbb\xbfversion = 1", "byte order mark"),
        ("version = 1".encode("utf-16"), "byte order mark"),
        ("version = 1\n[\n", "line 2"),
    ):
        path = written(tmp_path, text)
        with pytest.raises(UsageError) as refused:
            load_request(path)
        assert str(path) in refused.value.message and message in refused.value.message
        assert refused.value.hint


def test_the_documented_file_is_right_and_complete(tmp_path: Path) -> None:
    page = (data_folder() / "docs" / "commands.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    load_request(written(tmp_path, example))
    assert set(tomllib.loads(example)) == set(RunRequest.__struct_fields__) - {"destroy"}


def test_a_transport_whose_sessions_have_parameters_has_an_option_for_them() -> None:
    for name, kind in kinds.TRANSPORTS.items():
        assert bool(kind.option) is bool(kind.parameters) is bool(kind.hint), name
        assert not kind.option or getattr(RunRequest(), kind.option) == ()


def test_a_file_that_the_page_cache_answers_is_named() -> None:
    """LIO reads it there; block devices have none in between, and the lab has no disk."""
    links, server = ("local", "wired=eth0"), "ssh://root@server"

    def is_named(**asked: Any) -> bool:
        return any(
            "page cache, local reads its disk" in each for each in make_plan(RunRequest(**asked)).notes
        )

    assert is_named(target=server, links=links)
    assert is_named(target=server, links=links, backing="file:/tank/new", transports=tuple(TRANSPORTS))
    assert not is_named(target=server, links=links, backing="block:/dev/vg0/bench")
    assert not is_named(target=server, links=("local",))
    assert not is_named(backing="file")


def test_what_touches_real_hardware_of_the_lab_is_reported_as_it_is_typed() -> None:
    request = RunRequest(repeats=9, target="ssh://nas", initiators=("local", "ssh://two"), testbed="auto")
    initiators = [("--initiator", "local"), ("--initiator", "ssh://two")]
    assert options.touching_real_hardware(request) == [("--target", "ssh://nas"), *initiators]
    more = RunRequest(target="ssh://nas", volume="/mnt/a b", repeats=3, smoke=True, iscsi=("A=1", "B=2"))
    typed = "--repeats 3 --volume '/mnt/a b'", "--iscsi A=1 --iscsi B=2", "--target ssh://nas", "--smoke"
    assert sorted(shlex.split(options.as_typed(more))) == sorted(shlex.split(" ".join(typed)))
    assert options.as_typed(RunRequest()) == ""
    touching_real_hardware = options.that_touch_real_hardware(RunRequest)
    assert touching_real_hardware > {"links", "destroy"} and "disk" not in touching_real_hardware
