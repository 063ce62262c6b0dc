"""Files of others: a folder of results starts no program, and a null cipher never counts as encryption."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.hosts import packages, runner
from harness.model import ISCSI, Column, LabKernel, Proposal, TestbedKind, is_unencrypted
from harness.model.errors import UsageError
from harness.parse.profiles import data_folder, load_link, load_proposal
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.results.store import RunFolder
from harness.testbeds import entry_points
from harness.testbeds.lab.kernels import kernel
from tests import flat
from tests.unit.command import harness
from tests.unit.results.test_results import record
from tests.unit.results_folder import WIRED, made_plan

GCM, NULL = "rfc4106(gcm(aes))", "ecb(cipher_null)"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder with what looks like a kernel of the cache, and leaves a mark when it is started."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    program = f"#!/bin/sh\ntouch {tmp_path}/started\n"
    (folder / "linux").write_text(program)
    (folder / "linux").chmod(0o755)
    facts: dict[str, Any] = {"key": "0" * 12, "release": "6.1.0", "source_version": "6.1", "compiler": "gcc"}
    built = kernel.Built(**facts, sha256=hashlib.sha256(program.encode()).hexdigest(), seconds=1.0)
    (folder / "build.json").write_bytes(msgspec.json.encode(built))
    return folder


@pytest.mark.parametrize("key", ["{theirs}", "../../{theirs}", "..", "", "0123456789AB", "0123456789ab\n"])
def test_a_kernel_is_named_by_a_key_and_by_no_path(theirs: Path, key: str) -> None:
    key = key.format(theirs=theirs)
    setting = {"testbed": TestbedKind.LAB, "lab_kernel": LabKernel.CUSTOM, "other_kernel": f"6.1.0 {key}"}
    links = {"wired": WIRED}
    plan = made_plan(links=links, columns=(Column("wired", transport=ISCSI),), proposals={}, **setting)
    run = RunFolder(theirs.parent / "r1")
    run.save_plan(plan)
    with pytest.raises(UsageError, match=r"plan.json.*expected the key of a kernel, 12 of 0-9"):
        run.load_plan()
    if key:  # "" is the default kernel
        with pytest.raises(UsageError, match="expected the key of a kernel"):
            kernel.custom_kernel(key)
    done = harness("run", "--resume", str(run.path), cwd=theirs.parent)
    assert done.returncode == 2 and "expected the key of a kernel" in done.stderr
    assert not (theirs.parent / "started").exists()


@pytest.mark.parametrize("release", ["6.12.48+deb13", "6.1.192-3"])
def test_a_kernel_of_the_cache_may_be_named(tmp_path: Path, release: str) -> None:
    plan = make_plan(RunRequest(testbed="lab", links=("wired",)))
    plan = flat.changed(plan, lab_kernel=LabKernel.CUSTOM, other_kernel=f"{release} 0123456789ab")
    run = RunFolder(tmp_path / "r1")
    run.save_plan(plan)
    assert run.load_plan() == plan


@pytest.mark.parametrize(
    ("said", "algorithms", "refused"),
    [
        ("encrypts = true", [NULL, "hmac(sha256)"], "expected false"),
        ("", [NULL, "hmac(sha256)"], "expected false"),
        ("", ["rfc4543(gcm(aes))"], "expected false"),
        ("encrypts = false", [GCM], "expected true"),
        ("encrypts = false", [NULL, "hmac(sha256)"], None),
        ("encrypts = true", [GCM], None),
        ("", [GCM], None),
    ],
)
def test_whether_a_proposal_encrypts_is_decided_by_its_algorithms(
    tmp_path: Path, said: str, algorithms: list[str], refused: str | None
) -> None:
    text = f'title = "x"\nesp = "x"\nike = "x"\nkernel_algorithms = {algorithms}\n{said}\n'
    (tmp_path / "aes128gcm16.toml").write_text(text)
    proposals = {"x": Proposal(name="x", title="x", esp="x", ike="x", kernel_algorithms=tuple(algorithms))}
    if refused is None:
        assert load_proposal("aes128gcm16", [tmp_path]).encrypts is (algorithms == [GCM])
        return
    with pytest.raises(UsageError, match=f"encrypts: {refused}, because .* data readable"):
        load_proposal("aes128gcm16", [tmp_path])
    if said != "encrypts = false":
        run, columns = RunFolder(tmp_path / "r1"), (Column("wired", ("x",)),)
        run.save_plan(made_plan(proposals=proposals, links={"wired": WIRED}, columns=columns))
        with pytest.raises(UsageError, match=r"proposals: x\.encrypts: expected false"):
            run.load_plan()


@pytest.mark.parametrize(
    ("said", "agreed", "is_open"),
    [
        (True, [f"{NULL} + hmac(sha256)"], True),
        (None, [f"{NULL} + hmac(sha256)"], True),
        (None, [f"hmac(sha256) + {NULL}"], True),
        (None, [f"x{NULL} + hmac(sha256)"], False),
        (True, ["rfc4543(gcm(aes))"], True),
        (False, [GCM], False),
        (True, [f"{NULL} + hmac(sha256)", "gcm(aes)"], False),
        (False, [], True),
        (False, [""], True),
        (True, [], False),
        (None, [], False),
    ],
)
def test_what_the_kernels_agreed_on_counts_before_what_a_record_says(
    said: bool | None, agreed: list[str], is_open: bool
) -> None:
    found = {f"layer{number}": {"algorithm": each} for number, each in enumerate(agreed)}
    assert is_unencrypted(said, found) is is_open


def test_a_link_of_a_file_is_never_shown_as_a_real_one(tmp_path: Path) -> None:
    (tmp_path / "wired.toml").write_text('title = "Gigabit Ethernet"\nemulated = false\n')
    with pytest.raises(UsageError, match=r"wired.toml, line 2, emulated: expected true"):
        load_link("wired", [tmp_path])
    run = RunFolder(tmp_path / "r1")
    links = {"wired": msgspec.structs.replace(WIRED, emulated=False)}
    run.save_plan(made_plan(links=links, columns=(Column("wired"),), proposals={}))
    with pytest.raises(UsageError, match=r"links: wired\.emulated: expected true"):
        run.load_plan()


def test_a_file_in_place_of_a_shipped_one_is_said_in_plan_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    request = RunRequest(testbed="lab", links=("local", "wired:jumbo", "wan"), ipsec=("both",), disk="ssd")
    for folder, name, change in (
        ("ipsec", "aes128gcm16.toml", '"AES-128-GCM"'),
        ("profiles/links", "wired.toml", "title"),
        ("profiles/links", "wan.toml", ""),
    ):
        Path(folder).mkdir(parents=True, exist_ok=True)
        text, other = (data_folder() / folder / name).read_text(), change.replace("GCM", "gcm") + " "
        Path(folder, name).write_text(text.replace(change, other, 1) if change else text)
    shutil.copy(data_folder() / "profiles/basic.fio", tmp_path)
    said = ("link wired: profiles/links/wired.toml", "proposal aes128gcm16: ipsec/aes128gcm16.toml")
    plan = make_plan(msgspec.structs.replace(request, profile="./basic.fio", disk=None))
    assert plan.overrides == said, "a copy of what is shipped is none"
    results = RunFolder(tmp_path / "results" / "r1")
    results.save_plan(plan)
    results.save_record(record(run_id=plan.run_id, overrides=plan.overrides))
    shown = harness("table", str(results.path), cwd=tmp_path).stdout
    for each in said:
        assert f"Warning: a user's file replaced a shipped one: {each}." in shown


def test_nothing_is_imported_from_the_folder_that_the_user_works_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("msgspec", "runpy", "json"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'started')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    for module in (entry_points.EXECUTOR, entry_points.LAB_DAEMON, entry_points.WORKER):
        said = runner.run(entry_points.command(module), check=False)  # with too few words it ends at once
        assert said.status == 1 and f'/{module.replace(".", "/")}.py", line' in said.stderr
    say = "import harness.testbeds.lab.per_host.timekeeper, sys; print(sys.argv[1:])"
    assert runner.run(entry_points.running(say, "a", "b")).stdout == "['a', 'b']\n"
    assert packages.Package(names=("x",), shown_by="python:json", purpose="x").installed
    assert not (tmp_path / "started").exists()
