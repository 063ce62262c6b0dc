"""A shared run: every command reads it, and nothing in it tells whose it is."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from msgspec import inspect

from harness import model
from harness.model import Column, Machines, Plan, Setting, unread
from harness.model.telemetry import ProcessorUse
from harness.observe import conditions
from harness.observe import environment as facts_of
from harness.results import archive, share
from harness.results.bandwidth_series import NOT_STEADY
from harness.results.store import RunFolder, open_probes, open_results, open_runs
from harness.storage.iscsi.transport import FILES
from tests.unit.command import harness
from tests.unit.parsing import refused
from tests.unit.results_folder import made_plan

PROJECT = Path(__file__).parents[3]
FIGURES = PROJECT / "docs" / "figures"
STORED = sorted(file.parent for file in FIGURES.glob("*/plan.json"))
MAKE_RUN, LADDER = FIGURES / "make-run", FIGURES / "ladder"

TELL_NOTHING = {"2014", "2005", "uuid", "serial", "synology", "freenas", "nvmexpress", "example"}
SECRETS = {
    "IPv4": "198.51.100.77",
    "IPv4 with dashes": "ip-198-51-100-77",
    "IPv6": "fd12:3456:789a::77",
    "MAC": "00:11:32:c4:77:ee",
    "host": "vault7.example.lan",
    "short host": "zaphod",
    "IQN": "iqn.2005-10.org.freenas.ctl:zaphod",
    "NQN": "nqn.2014-08.org.nvmexpress:uuid:0f0e77",
    "serial": "S4EVNX0R123456",
    "digits": "2170912345678",
    "user": "trillian",
    "path": "/srv/zaphod/trillian.img",
    "key": "PSK0x5eba77aabbcc",
    "message": "sd 3:0:0:0: [sdq] zaphod SYNOLOGY serial S4EVNX0R123456",
}


def filled(kind: inspect.Type, text: str) -> Iterator[Any]:
    """Values of a type, one for each variant of it, with ``text`` wherever any text may stand."""
    match kind:
        case inspect.StructType():
            variants = {field.name: list(filled(field.type, text)) for field in kind.fields}
            for number in range(max(map(len, variants.values()), default=1)):
                chosen = {name: values[number % len(values)] for name, values in variants.items()}
                try:
                    yield kind.cls(**chosen)
                except ValueError:  # CipherTimes: the second is longer
                    yield kind.cls(**{**chosen, "long_bytes": 2})
        case inspect.UnionType():
            yield from itertools.chain(*(filled(each, text) for each in kind.types))
        case inspect.Metadata():
            yield from filled(kind.type, text)
        case inspect.StrType():
            yield "iscsi" if "|iscsi" in (kind.pattern or "") or "(?:iscsi" in (kind.pattern or "") else text
        case inspect.LiteralType():
            yield kind.values[0]
        case inspect.EnumType():
            yield next(iter(kind.cls))
        case inspect.VarTupleType():
            yield tuple(filled(kind.item_type, text))
        case inspect.TupleType():
            yield from itertools.product(*(filled(each, text) for each in kind.item_types))
        case inspect.DictType():
            values = itertools.product(filled(kind.key_type, text), filled(kind.value_type, text))
            yield from ({key: value} for key, value in values)
        case inspect.NoneType():
            yield None
        case inspect.BoolType():
            yield True
        case inspect.IntType() | inspect.FloatType():
            yield 1
        case _:
            raise AssertionError(f"no value for {kind}")


def test_each_field_with_text_has_a_rule_and_what_a_session_agreed_on_is_known() -> None:
    """Whoever adds one decides whether others may read it."""
    assert share.free_texts() == {*share.TEXTS, *share.WHOLE}
    names = {name.rpartition("/")[2] for part in FILES for name in part}
    assert names <= set(share.SESSION.split())


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("root", share.ROOTS, ids=lambda root: root.__name__)
def test_no_text_of_any_field_comes_through(root: type, secret: str) -> None:
    kind = inspect.type_info(root)
    planted = list(filled(kind, secret))
    assert any(secret.encode() in msgspec.json.encode(value) for value in planted)
    for value in planted:
        shared = msgspec.json.encode(share.Cleaner().clean(value)).decode()
        for part in re.findall(r"[a-z0-9]{4,}", secret.lower()):
            assert part not in shared.lower() or part in TELL_NOTHING


def planted_environment(secret: str) -> dict[str, Any]:
    """With a text in every fact that a host, a machine and a run have."""
    facts: dict[str, Any] = dict.fromkeys((*share.FACTS, "cpu_serial"), f"{secret} {secret}")
    facts["tools"] = {"fio": secret, secret: secret}
    others = ("device", "local_device", f"column {secret}", "fio", secret)
    return {"hosts": {"target": facts, secret: facts}, "machine": facts, **dict.fromkeys(others, facts)}


def test_no_fact_of_an_environment_comes_through(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.save_plan(made_plan())
    for secret in SECRETS.values():
        run.save_environment(planted_environment(secret))
        assert secret not in json.dumps(share.shared(run).environment), secret


def test_each_fact_about_a_machine_has_a_rule() -> None:
    """All that a host is asked for, and all that docs/results.md has of an environment."""
    host = Mock(**{"run.return_value.stdout": "Hypervisor vendor: KVM"})
    host.read_files = lambda paths: ["cpu MHz\t: 1.0\n" if "cpuinfo" in path else "1 kB" for path in paths]
    found = facts_of.describe_kernel(host)
    assert {*found, *facts_of.FILES, "tools"} <= {*share.FACTS}
    docs = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    section = docs.split("## Environment")[1].split("\n## ")[0]
    keys = {*re.findall(r"`(\w+)", " ".join(re.findall(r"^\| (`.*?) \|", section, re.M)))}
    assert keys == {"device", "local_device", "fio", "machine", "hosts", "column"}


def test_an_empty_text_stands_for_nothing() -> None:
    cleaner, portal = share.Cleaner(), {"typed": "nas", "address": "fd00::2", "port": 3260}
    reached = {"transport": "iscsi", "name": "iqn.x:a", **portal}
    shared = cleaner.clean(msgspec.convert(reached, model.ReachedTarget))
    assert (shared.login, shared.typed, shared.address) == ("", "192.0.2.1", "2001:db8::2")
    assert cleaner.replaced["target"] == {"iqn.x:a": "iqn.2001-04.com.example:target1"}


def test_warnings_in_the_harness_s_own_words_stay() -> None:
    use: dict[str, Any] = {"wall_ns": 1, "cores": 1, "busiest_core": 1.0}
    ends = [("initiator",), ("initiator", "target"), ("zaphod",)]
    own = conditions.saturated([ProcessorUse(hosts=hosts, **use) for hosts in ends])
    own += [NOT_STEADY, "the core of trillian was busy"]
    planted = msgspec.structs.replace(open_results([MAKE_RUN])[0], warnings=tuple(own))
    kept = share.Cleaner().clean(planted).warnings
    assert kept == (*own[:2], share.WITHHELD, NOT_STEADY, share.WITHHELD)


@pytest.mark.parametrize("folder", STORED, ids=lambda folder: folder.name)
def test_nothing_of_a_run_in_the_lab_is_a_name(folder: Path) -> None:
    """So all names of columns, workloads, ciphers and processors are as they were."""
    shared = share.shared(RunFolder(folder))
    many = {field for field, count in shared.left_out.items() if count > 100}
    assert not shared.replaced and {"Record.session", "Record.agreed"}.isdisjoint(many)


def archived(folder: Path, file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(archive.packed(share.shared(RunFolder(folder)).files))
    return file


PRINTED = [("emulation", "table --ratio ipsec"), ("ladder", "explain --summary"), ("portable", "explain")]
PRINTED += [("sweep-virtual", "table"), ("portable", "export"), ("document-000", "table --view pppoe")]


@pytest.mark.parametrize(("name", "words"), PRINTED)
def test_commands_print_the_same_of_it(tmp_path: Path, name: str, words: str) -> None:
    # As it was measured, without the outputs of tools and the words of kernels.
    raw = shutil.ignore_patterns("raw", "measured.json")
    folder = shutil.copytree(FIGURES / name, tmp_path / "own", ignore=raw)
    shared = archived(FIGURES / name, tmp_path / "theirs.zip")
    own, theirs = (harness(*words.split(), str(of), cwd=tmp_path) for of in (folder, shared))
    assert (own.returncode, theirs.returncode) == (0, 0), theirs.stderr
    assert theirs.stdout == re.sub(r"(6\.18\.44)-fc-v\d+", r"\1", own.stdout)


def test_it_is_compared_and_drawn(tmp_path: Path) -> None:
    archived(LADDER, tmp_path / "theirs.zip")
    own = harness("compare", "theirs.zip", str(LADDER), cwd=tmp_path)
    assert own.returncode == 2 and "found run 20261125-005004-467b in both" in own.stderr
    compared = harness("compare", "theirs.zip", str(FIGURES / "emulation"), cwd=tmp_path)
    assert "B (20261125-005103-8889) against A (20261125-005004-467b)" in compared.stdout
    for words in ("report theirs.zip -o r.html", "plot bars theirs.zip -o b.svg"):
        assert harness(*words.split(), cwd=tmp_path).returncode == 0
    several = harness("share", str(FIGURES), cwd=tmp_path)
    assert several.returncode == 2 and "expected one run" in several.stderr


def test_probes_are_in_it_and_several_are_a_folder_of_runs(tmp_path: Path) -> None:
    assert len(open_probes([archived(FIGURES / "document-000", tmp_path / "theirs.zip")])) == 6
    for name in ("ladder", "portable"):
        archived(FIGURES / name, tmp_path / "runs" / f"{name}.zip")
    assert len({record.run_id for record in open_results([tmp_path / "runs"])}) == 2
    first, second = (archived(MAKE_RUN, tmp_path / name).read_bytes() for name in ("a.zip", "b.zip"))
    assert first == second


TITLE = "zaphod (enx001132c477ee)"
NAMED = model.LinkProfile(name="zaphod", title=TITLE, emulated=False, interface="enx001132c477ee")
DEVICE = model.Backing(kind=model.BackingKind.BLOCK, path="/dev/zaphod", size_bytes=1 << 30)
REAL = {
    "machines": Machines(target="ssh://trillian@zaphod:2222", initiators=("local",)),
    "hops": ("ssh://admin@vault7.example.lan",),
    "setting": Setting(testbed=model.TestbedKind.MACHINES),
    "links": {"zaphod": msgspec.structs.replace(NAMED, portal="198.51.100.77")},
    "columns": (Column("zaphod"),),
    "storage": model.Storage(backing=DEVICE),
    "notes": ("trillian: left out",),
}


def of_machines(root: Path) -> RunFolder:
    """A run on machines, whose plan and records have names, addresses and messages."""
    plan: Plan = msgspec.structs.replace(made_plan("20261126-010203-abcd"), **REAL)
    run = RunFolder(root / "run")
    run.save_plan(plan)
    moved: dict[str, Any] = {"run_id": plan.run_id, "setting": plan.setting, "column": Column("zaphod")}
    moved |= {"link_title": TITLE, "warnings": ("trillian saw 198.51.100.77",)}
    for record in open_results([MAKE_RUN]):
        if record.column.label == "wired" and record.repeat < 3:
            session = {**record.session, "targetname": SECRETS["IQN"]}
            run.save_record(msgspec.structs.replace(record, **moved, session=session))
    run.save_environment(planted_environment("vault7.example.lan"))
    (run.path / "raw").mkdir()
    (run.path / "raw" / "console.log").write_text("zaphod")
    return run


def test_a_run_on_machines_is_shared_without_a_name(tmp_path: Path) -> None:
    run = of_machines(tmp_path)
    file = tmp_path / f"{run.run_id}.zip"
    listed = harness("share", str(run.path), "--list", cwd=tmp_path)
    assert listed.returncode == 0 and not file.exists()
    told = harness("share", str(run.path), cwd=tmp_path)
    assert told.stdout == listed.stdout
    with zipfile.ZipFile(file) as shared:
        held = "".join(shared.read(name).decode() + name for name in shared.namelist()).lower()
    for secret in ("zaphod", "trillian", "198.51", "vault7", "001132", "enx", "iqn", ":2222"):
        assert secret not in held
    # Every text of it was printed before.
    assert all(text in told.stdout.replace("\n  ", " ") for text in share.shared(run).texts)
    assert "zaphod is name1" in told.stdout
    tables = [harness("table", str(path), cwd=tmp_path).stdout for path in (file, run.path)]
    figures = [re.findall(r"^(\w+-\w+-\w+) +(.*)", table, re.MULTILINE) for table in tables]
    assert figures[0] == figures[1] != []
    assert harness("report", file.name, "-o", "r.html", cwd=tmp_path).returncode == 0
    assert "zaphod" not in (tmp_path / "r.html").read_text()


def test_a_folder_without_anything_that_can_be_read_is_not_shared(tmp_path: Path) -> None:
    (tmp_path / "run" / "cells").mkdir(parents=True)
    (tmp_path / "run" / "cells" / "a.json").write_text("{")
    done = harness("share", "run", cwd=tmp_path)
    assert done.returncode == 2 and "expected a run with a plan or records" in done.stderr


def made_archive(**members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return data.getvalue()


def test_their_archive_chooses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST_DATA_BYTES", 4000)
    outside = ("../plan.json", "/etc/passwd", "cells/../../x.json", "cells/.hidden.json", "raw/x/fio.json")
    bomb = made_archive(**{"plan.json": b" " * 5000})
    damaged = made_archive(**{"plan.json": bytes(range(256))}).replace(b"\x80", b"\x00")
    file = tmp_path / "theirs.zip"
    for data in (b"PK\x03\x04 only", bomb, damaged, *(made_archive(**{name: b"{}"}) for name in outside)):
        file.write_bytes(data)
        assert "expected a file that 'harness share' wrote" in str(refused(archive.unpacked, file)), data
        assert list(tmp_path.iterdir()) == [file]


def test_in_a_folder_of_runs_other_archives_and_copies_do_not_count(tmp_path: Path) -> None:
    shutil.copytree(LADDER, tmp_path / "run")
    archived(LADDER, tmp_path / "own.zip")
    (tmp_path / "photos.zip").write_bytes(made_archive(**{"a.jpg": b"x"}))
    (tmp_path / "none.zip").write_bytes(b"no archive at all")
    assert len(open_results([tmp_path])) == len(open_results([LADDER]))
    assert len(open_runs([tmp_path])) == 1
    empty = made_archive(**{"plan.json": b"{}"})
    (tmp_path / "cut.zip").write_bytes(empty[:-9])
    with unread.noted() as lost:
        open_results([tmp_path])
    assert "cut.zip" in lost[0].message
    (tmp_path / "empty.zip").write_bytes(empty)
    refused(open_results, [tmp_path / "empty.zip"])
