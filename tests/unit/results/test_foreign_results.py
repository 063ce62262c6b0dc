"""A folder of results that somebody else made is data: it starts nothing, and it chooses nothing."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest

from harness import model
from harness.model import FIO_SOURCE, BackingKind, Column, Machines, Plan, TestbedKind
from harness.model.errors import UsageError
from harness.model.probing import Ping, Tcp
from harness.parse.files import read_bytes
from harness.planning.plan import make_plan
from harness.planning.request import Kernels, RunRequest
from harness.results import planned, rules
from harness.results.raw_files import raw_file
from harness.results.store import (
    RunFolder,
    load_record,
    open_results,
    write_atomically,
    write_out,
)
from tests.unit.command import harness
from tests.unit.explain.test_cipher import kernel, measured
from tests.unit.parsing import refused
from tests.unit.probes.test_probes import blank
from tests.unit.results.test_results import record
from tests.unit.results_folder import WIRED, made_plan

STORED = Path(__file__).parents[2] / "data" / "results" / "20261121-223206-9146"
MACHINES = Machines(target="ssh://root@server", initiators=("local", "ssh://b"))
PROXY = Machines(target="ssh://-oProxyCommand=x", initiators=("local",))
ETH0 = model.LinkProfile(name="wired", title="x", emulated=False, interface="eth0")
REAL: dict[str, Any] = {"testbed": TestbedKind.MACHINES, "machines": MACHINES}
REAL |= {"links": {"wired": ETH0}, "columns": (Column("wired"),)}


def saved(root: Path, plan: Plan | None = None) -> RunFolder:
    """Their folder, with a plan or a usual one."""
    folder = RunFolder(root / "theirs")
    folder.save_plan(plan or made_plan())
    return folder


def of_a_cell(root: Path) -> RunFolder:
    return saved(root, make_plan(RunRequest(links=("local",), workloads=("rand-read-4k",))))


def resumed(root: Path, *words: str, command: str = "run", ends: int = 2) -> CompletedProcess[str]:
    done = harness(command, "--resume", "./theirs", *words, cwd=root)
    assert done.returncode == ends, done
    return done


def with_job(*options: tuple[str, str], name: str = "job") -> dict[str, Any]:
    return {"jobs": (model.Job(name=name, options=options),)}


def backed(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {"kind": BackingKind.RAMDISK, "size_bytes": 1 << 27}
    return {"backing": model.Backing(**whole | changes)}


def linked(**changes: Any) -> dict[str, Any]:
    return {"links": {"wired": msgspec.structs.replace(WIRED, **changes)}, "columns": (Column("wired"),)}


def proposed(**changes: Any) -> dict[str, Any]:
    words = {"name": "x", "title": "x", "esp": "aes", "ike": "aes", "kernel_algorithms": ("x",)}
    protected = {"proposals": {"x": model.Proposal(**words | changes)}, "columns": (Column("wired", ("x",)),)}
    return linked() | protected


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "a run id that is a path": ({"run_id": "../../etc/cron.d/x"}, "run_id"),
    "a command before fio": (with_job(("exec_prerun", "touch /tmp/owned")), "exec_prerun"),
    "another device": (with_job(("filename", "/dev/sda")), "filename"),
    "a second line of a job file": (
        with_job(("ioengine", "psync\nfilename=/dev/sda")),
        "jobs[0].options[0][1]",
    ),
    "a section in a name": (with_job(name="a]\n[b"), "jobs[0].name"),
    "an engine with a program": (with_job(("ioengine", "external:/tmp/x.so")), "ioengine"),
    "blocks of no bytes": (with_job(("bs", "0")), "option 'bs'"),
    "a path in the lab": (backed(kind=BackingKind.FILE, path="/etc/passwd"), "backing"),
    "no size": (backed(size_bytes=0), "backing"),
    "all memory": (backed(size_bytes=1 << 50), "backing"),
    "a rate of 0": (linked(rate_bit_s=0), "links: wired.rate_bit_s"),
    "a rate of many digits": (linked(rate_bit_s=10**18), "links: wired.rate_bit_s"),
    "packets of no bytes": (linked(mtu_bytes=0), "links: wired.mtu_bytes"),
    "a delay without end": (linked(delay_us=1e308), "links: wired.delay_us"),
    "a negative delay": (linked(delay_us=-1.0), "links: wired.delay_us"),
    "an interface in the lab": (linked(interface="eth0"), "links"),
    "a link of another name": (linked(name="other"), "links"),
    "words for charon": (proposed(esp="aes\n  file = /etc/shadow"), "$.proposals[...].esp"),
    "a plugin": (proposed(charon_plugins=("/tmp/x.so",)), "$.proposals[...].charon_plugins[0]"),
    "a plugin that changes it": (
        proposed(charon_plugins=("bypass-lan",)),
        "only do cryptography, found bypass-lan",
    ),
    "machines of the lab": ({"machines": MACHINES}, "machines"),
    "ssh's options": ({**REAL, "machines": PROXY}, "machines"),
    "a hop in the lab": ({"hops": ("ssh://gateway",)}, "hops"),
    "a disk of a path": ({"disk": model.DiskProfile(name="../x", title="")}, "disk"),
    "iSCSI's words": ({"parameters": {"iscsi": {"MaxBurstLength": "1\nnode.x = y"}}}, "parameters"),
    "a probe without end": ({"probing": (Ping(count=10**9),), "columns": (Column("wired"),)}, "probing"),
    "no repeats": ({"repeats": 0}, "repeats"),
    "a runtime of years": ({"runtime_s": 1e308}, "runtime_s"),
    "a shared disk that is written": ({"shared_lun": True, **with_job(("rw", "write"))}, "shared_lun"),
    "a negative seed": ({"seed": -1}, "seed"),
    "many columns": ({"columns": tuple(Column("wired", initiators=n) for n in range(99))}, "columns"),
    "a column of no link": ({"columns": (Column("eth0"),)}, "columns, link"),
    "a rule without end": ({"stop": model.StoppingRule(width=0.0, max_repeats=5)}, "stop.width"),
}


def test_a_plan_nobody_could_ask_for_is_refused(tmp_path: Path) -> None:
    for what, (changes, field) in IMPOSSIBLE.items():
        folder = saved(tmp_path, made_plan(**changes))
        message = refused(folder.load_plan).message
        assert str(folder.path / "plan.json") in message and field in message, what
    flash = model.Flash(page_bytes=0, page_us=1.0, pages_at_once=1)
    with pytest.raises(UsageError, match="here, setting: disk, page_bytes"):
        disk = model.DiskProfile(name="x", title="x", flash=flash)
        rules.check(made_plan(disk=disk, lab_kernel=model.LabKernel.CUSTOM), "here")


def test_what_can_be_asked_for_comes_back(tmp_path: Path) -> None:
    links, real = ("switched:4", "routed", "wired:unshaped"), ("local", "wired=eth0@192.0.2.1")
    for request in (
        RunRequest(),
        RunRequest(testbed="host", links=links, backing="file:/tmp/a b.img"),
        RunRequest(profile="modern", confidence="5%", iscsi=("MaxBurstLength=64K", "InitialR2T=no")),
        RunRequest(target="ssh://root@server", links=real, hops=("ssh://gateway",)),
        RunRequest(lab_initiators=2, kernels=Kernels.PER_HOST),
    ):
        plan = make_plan(request)
        assert saved(tmp_path, plan).load_plan() == plan


FIGURES = ("runtime_ns", "mean_ns", "wall_ns", "block_bytes", "repeat", "initiators")
BEYOND = ("-1", "1e308", "9" * 400, "9223372036854775808")
NO_BLOCK = ("block_bytes", "0", r"Expected `int` >= 1 - at `\$\.workload\.block_bytes`")


def test_a_figure_nothing_measures_is_refused(tmp_path: Path) -> None:
    whole = msgspec.json.encode(record(run_id="r1", block_bytes=4096)).decode()
    for field, value, words in (*((field, value, field) for field in FIGURES for value in BEYOND), NO_BLOCK):
        damaged, times = re.subn(f'"{field}":[0-9.]+', f'"{field}":{value}', whole, count=1)
        assert times
        (tmp_path / "record.json").write_text(damaged, encoding="utf-8")
        said = str(refused(open_results, [tmp_path / "record.json"]))
        assert re.search(rf"record\.json.*{words}", said), (field, value)


def test_a_probe_that_no_tool_could_make_is_refused(tmp_path: Path) -> None:
    folder, ciphers = saved(tmp_path), measured(kernel("initiator", "target"), run_id="r1")
    (folder.path / "probes").mkdir()
    many = "9" * 400
    for probe, field, was, damaged, words in (
        (blank(Tcp()), "streams", "1", many, ", probe: a probe's streams: expected 1 to 128"),
        (ciphers, "short_bytes", "64", "1408", " .* expected short_bytes below 1408, found 1408"),
    ):
        text = msgspec.json.encode(probe).decode().replace(f'"{field}":{was}', f'"{field}":{damaged}', 1)
        (folder.path / "probes" / "a.json").write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=rf"a\.json{words}"):
            folder.load_probes()


def test_what_stays_in_the_lab_or_with_the_run_is_not_typed_again() -> None:
    assert planned.outside(make_plan(RunRequest())) == []
    planned.require_typed(made_plan(), "r1", [])
    with_target = [("--target", "local")]
    assert "other options" in str(refused(planned.require_typed, made_plan(), "r1", with_target))
    # A file of the run alone.
    plan = make_plan(RunRequest(target="ssh://root@server", links=("wired=eth0",)))
    assert planned.outside(plan) == [("--target", "ssh://root@server"), ("--link", "wired=eth0")]
    typed = [*planned.outside(plan), ("--initiator", "local"), ("--link", "local")]
    planned.require_typed(plan, "r1", typed)
    # What leads out of the lab is.
    device = model.Backing(kind=BackingKind.BLOCK, size_bytes=1 << 27, path="/dev/x", destroy="/dev/x")
    plan = made_plan(**REAL, hops=("ssh://gateway",), backing=device)
    typed = [("--target", "ssh://root@server"), ("--initiator", "local"), ("--initiator", "ssh://b")]
    typed += [("--hop", "ssh://gateway"), ("--link", "wired=eth0")]
    typed += [("--backing", "/dev/x"), ("--destroy", "/dev/x")]
    planned.require_typed(plan, "r1", typed)
    for without in range(len(typed)):
        refusal = refused(planned.require_typed, plan, "r1", [*typed[:without], *typed[without + 1 :]])
        assert "reaches outside the lab" in refusal.message
        assert planned.resume_command(plan, "r1") in (refusal.hint or "")
    others = [("--target", "ssh://other"), *typed[1:]]
    assert "ssh://other" in str(refused(planned.require_typed, plan, "r1", others))


@pytest.mark.parametrize("command", ["run", "probe"])
def test_a_foreign_folder_does_not_choose_the_machines(tmp_path: Path, command: str) -> None:
    probing: dict[str, Any] = {"probing": (Ping(),), "jobs": ()} if command == "probe" else {}
    before = sorted(saved(tmp_path, made_plan(**REAL, **probing)).path.iterdir())
    done = resumed(tmp_path, command=command)
    assert "reaches outside the lab" in done.stderr and "--target ssh://root@server" in done.stderr
    assert sorted((tmp_path / "theirs").iterdir()) == before
    if command == "run":
        words = ("--target", "ssh://root@server", "--initiator", "local", "--initiator", "ssh://b")
        done = resumed(tmp_path, *words, "--link", "wired=eth0", "--plan", ends=0)
        assert "ssh://root@server" in done.stdout


def test_a_resumed_run_says_what_it_is_about_to_run(tmp_path: Path) -> None:
    request = RunRequest(testbed="host", links=("local",), backing="file:/nowhere/x")
    (saved(tmp_path, make_plan(request)).path / "planted").symlink_to("/etc")
    done = resumed(tmp_path, "--testbed", "host", "--backing", "file:/nowhere/x")
    assert done.stderr.startswith("testbed host") and "/nowhere/x" in done.stderr, done
    # Its plan says what is left of it.
    shutil.rmtree(tmp_path / "theirs")
    shutil.copytree(STORED, tmp_path / "theirs")
    shown = resumed(tmp_path, "--plan", ends=0).stdout.splitlines()
    assert shown[-2].endswith("2 columns x 8 workloads x 2 repeats = 32, about 49 s, fio 32 s")
    assert shown[-1] == "left:      26, about 42 s" and max(map(len, shown)) <= 80


@pytest.mark.parametrize("where", ["events.jsonl", "console.log", "cells", "raw/x"])
def test_a_folder_with_links_is_not_written_to(tmp_path: Path, where: str) -> None:
    folder, victim = of_a_cell(tmp_path), tmp_path / "victim"
    victim.mkdir()
    place = folder.path / where
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(victim / "new" if "." in where else victim)
    assert "found a symbolic link" in resumed(tmp_path).stderr
    assert not list(victim.iterdir())


def test_a_file_that_has_another_name_is_not_written_to(tmp_path: Path) -> None:
    folder, victim = of_a_cell(tmp_path), tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    (folder.path / "events.jsonl").hardlink_to(victim)
    done = resumed(tmp_path)
    assert "expected a file with one name, found one with 2" in done.stderr and "cp -r" in done.stderr, done
    assert victim.read_text(encoding="utf-8") == "mine"


def refusal_of(root: Path, *words: str) -> str:
    done = harness(*words, cwd=root)
    assert done.returncode == 2 and done.stderr.startswith("harness: "), (words, done)
    return done.stderr


def link(path: Path) -> None:
    real = path.with_name("real")
    path.rename(real)
    path.symlink_to(real)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLANTS: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a device": device,
    "/proc/kmsg": lambda path: path.symlink_to("/proc/kmsg"),
    "a loop": lambda path: path.symlink_to(path.name),
    "huge": huge,
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=list(PLANTS))
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    for words in ("table", "report", "export", "parse ping", "run --plan --config"):
        file = tmp_path / "planted.json"
        if not os.path.lexists(file):
            plant(file)
        refusal_of(tmp_path, *words.split(), str(file))


@pytest.mark.parametrize("name", ["plan.json", "environment.json", "cells/a.json", "probes/a.json"])
@pytest.mark.parametrize("plant", [*PLANTS.values(), link], ids=[*PLANTS, "a link"])
def test_nothing_in_a_folder_is_followed(tmp_path: Path, name: str, plant: Callable[[Path], None]) -> None:
    folder = saved(tmp_path)
    folder.save_record(record(run_id="r1"))
    place = folder.path / name
    place.parent.mkdir(exist_ok=True)
    if plant is link:
        place.write_bytes(b"{}")
    else:
        place.unlink(missing_ok=True)
    plant(place)
    assert re.search("regular file|at most", str(refused(read_bytes, place, follow=False)))
    assert str(Path("theirs", name)) in refusal_of(tmp_path, "report", "theirs")


def test_a_record_names_no_file_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "foreign.json"
    file.write_bytes(msgspec.json.encode(record(source=FIO_SOURCE, raw=("/dev/zero",))))
    assert "expected a file below raw/" in str(refused(open_results, [file]))
    file.write_bytes(msgspec.json.encode(record(source=FIO_SOURCE, raw=("raw/x/fio.json",))))
    assert "expected a record of the harness" in str(refused(open_results, [file]))


def test_a_loop_of_links_among_raw_outputs_is_nothing_there(tmp_path: Path) -> None:
    """Path.resolve of Python 3.11 raises RuntimeError for it."""
    shutil.copytree(STORED, tmp_path / "theirs")
    for file in [*(tmp_path / "theirs" / "raw").glob("*/*")]:
        file.unlink()
        file.symlink_to(file.name)
    done = harness("report", "theirs", "-o", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done


def test_what_cannot_be_looked_at_is_not_taken_for_missing(tmp_path: Path) -> None:
    """The system may refuse to look, as in a folder of somebody else's; here a name is too long for it."""
    long = "x" * 300
    (tmp_path / "r" / "raw").mkdir(parents=True)
    listed, said = record(raw=(f"raw/{long}/fio.json",)), " cannot be read: File name too long"
    assert f"fio.json{said}" in str(refused(raw_file, listed, {"r1": tmp_path / "r"}, "fio.json"))
    assert said in str(refused(RunFolder(tmp_path / long).load_plan))


def test_what_is_unreadable_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a box of click's, which has no hint."""
    for folder in ("/proc", "/sys", "/dev"):
        refusal_of(tmp_path, "table", folder)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    (tmp_path / "x").write_bytes(b"{")
    for words in ("table x", "explain x", "compare x x", "parse fio x"):
        assert "hint: " in refusal_of(tmp_path, *words.split())


def test_a_file_keeps_its_mode_and_a_planted_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.html"
    file.write_text("before", encoding="utf-8")
    file.chmod(0o604)
    write_out(file, b"after")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"after", 0o604)
    assert list(tmp_path.iterdir()) == [file]
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="symbolic link"):
        write_out(tmp_path / "link", b"theirs")
    assert file.read_bytes() == b"after" and (tmp_path / "link").is_symlink()
    # Nor is a scratch file, even if it is foreseen.
    monkeypatch.setattr("secrets.token_hex", lambda _bytes: "known")
    (tmp_path / ".known.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "a.json", b"x")
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    "name",
    ["plan.json", "events.jsonl", "cells/a.json", "raw/a/fio.json", "raw/probes/a/ping.txt", "cells/new.zip"],
)
def test_what_a_run_has_measured_is_not_written_over(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "cells").mkdir(parents=True)
    (run / "raw" / "a").mkdir(parents=True)
    with pytest.raises(PermissionError, match="own files"):
        write_out(run / name, b"page")
    (run / "mine").mkdir()
    theirs = ("report.html", "mine.zip", "table.json", "notes.log", "mine/a.json", "mine/plan.json")
    for page in (*(run / name for name in theirs), tmp_path / "plan.json"):
        write_out(page, b"page")
        assert page.read_bytes() == b"page"


def test_a_device_stays_one(tmp_path: Path) -> None:
    node = tmp_path / "null"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("to make a device takes root")
    write_out(node, b"x" * 100_000)
    assert stat.S_ISCHR(node.lstat().st_mode) and list(tmp_path.iterdir()) == [node]


def test_a_pipe_is_written_into_if_somebody_reads_it(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", tmp_path / "read"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):
        write_out(pipe, b"x")
    with read.open("wb") as out, subprocess.Popen(["cat", str(pipe)], stdout=out) as reader:
        while True:
            try:
                write_out(pipe, b"x" * 200_000)
            except OSError:
                continue  # it has not opened it yet
            break
        assert reader.wait(timeout=30) == 0
    assert read.read_bytes() == b"x" * 200_000
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_standard_output_may_be_named(tmp_path: Path) -> None:
    saved(tmp_path).save_record(record(run_id="r1"))
    done = harness("export", "theirs", "-o", "/dev/stdout", cwd=tmp_path)
    assert done.returncode == 0 and "seq-read-4k" in done.stdout, done
    assert harness("export", "theirs", "-o", "theirs", cwd=tmp_path).returncode == 2


def test_a_text_is_looked_for_where_a_file_begins_and_not_behind_all_its_blanks(tmp_path: Path) -> None:
    for blanks, words in ((10, "found a text that begins with"), (1 << 20, "not a readable record: JSON is")):
        file = tmp_path / f"{blanks}.json"
        file.write_text(f"{' ' * blanks}fio: no such file or directory")
        assert words in str(refused(load_record, file))
