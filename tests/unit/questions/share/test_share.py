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
from harness.model.telemetry import NOT_STEADY, ProcessorUse
from harness.observe import conditions
from harness.observe import environment as facts_of
from harness.questions.share import cleaned
from harness.results import archive
from harness.results.store import RunFolder, open_probes, open_results, open_runs
from harness.storage import transports
from harness.storage.iscsi.transport import FILES
from tests.unit.command import harness
from tests.unit.model.test_texts import fields_of
from tests.unit.parsing import refused
from tests.unit.results_folder import made_plan
from tests.unit.table import test_file_systems as mounted

PROJECT = Path(__file__).parents[4]
FIGURES = PROJECT / "docs" / "figures"
STORED = sorted(file.parent for file in FIGURES.glob("*/plan.json"))
MAKE_RUN, BASELINES = FIGURES / "make-run", FIGURES / "ladder"

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
    "IPv4 with commas": "198,51,100,77",
    "telephone": "07700 90012",
    "badge": "badge 90210",
    "Windows host": "DESKTOP-JX91",
    "digits of three": "077-009-0012",
    "a number with dots": "077.009.001.2",
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
            yield text
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
        case inspect.AnyType():
            yield text
        case _:
            raise AssertionError(f"no value for {kind}")


def test_each_field_with_text_has_a_rule_and_what_a_session_agreed_on_is_known() -> None:
    """Whoever adds a kind decides whether others may read it."""
    seen: set[type] = set()
    found = {each for root in cleaned.ROOTS for each in fields_of(inspect.type_info(root), "", seen)}
    known = {place for place, _ in found}
    assert [
        place for place, title in found if place not in cleaned.FIELDS and title not in cleaned.RULES
    ] == []
    assert cleaned.FIELDS.keys() <= known and "Plan.links" in known
    names = {name.rpartition("/")[2] for part in FILES for name in part}
    assert names <= set(cleaned.SESSION.split())


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("root", cleaned.ROOTS, ids=lambda root: root.__name__)
def test_no_text_of_any_field_comes_through(root: type, secret: str) -> None:
    kind = inspect.type_info(root)
    planted = list(filled(kind, secret))
    assert any(secret.encode() in msgspec.json.encode(value) for value in planted)
    for value in planted:
        shared = msgspec.json.encode(cleaned.Cleaner().clean(value)).decode()
        for part in (secret.lower(), *re.findall(r"[a-z0-9]{4,}", secret.lower())):
            assert part not in shared.lower() or part in TELL_NOTHING
        numbers = [part for part in re.findall("[0-9]{2,}", secret) if part not in ("10", "14", "16", "00")]
        assert not any(re.search(rf"(?<![0-9a-z.]){part}(?![0-9a-z.])", shared) for part in numbers), shared
        # What leaves is of the field's own kind.
        msgspec.json.decode(shared, type=root)


def planted_environment(secret: str) -> dict[str, Any]:
    """With a text in every fact that a host, a machine and a run have."""
    facts: dict[str, Any] = dict.fromkeys((*cleaned.FACTS, "cpu_serial"), secret)
    facts["tools"] = {"fio": secret, secret: secret}
    others = ("device", "local_device", f"column {secret}", "fio", secret)
    return {"hosts": {"target": facts, secret: facts}, "machine": facts, **dict.fromkeys(others, facts)}


def test_no_fact_of_an_environment_comes_through(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.save_plan(made_plan())
    for secret in SECRETS.values():
        run.save_environment(planted_environment(secret))
        shared = json.dumps(cleaned.shared(run).environment)
        assert secret not in shared, secret
        for part in re.findall(r"[A-Za-z0-9]{2,}", secret):
            assert not re.search(rf"(?<![0-9A-Za-z.]){part}(?![0-9A-Za-z.])", shared), (secret, shared)


def test_each_fact_about_a_machine_has_a_rule() -> None:
    """All that a host is asked for, and all that docs/results.md has of an environment."""
    host = Mock(**{"run.return_value.stdout": "Hypervisor vendor: KVM"})
    host.read_files = lambda paths: ["cpu MHz\t: 1.0\n" if "cpuinfo" in path else "1 kB" for path in paths]
    found = facts_of.describe_kernel(host)
    assert {*found, *facts_of.FILES, "tools"} <= {*cleaned.FACTS}
    docs = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
    section = docs.split("## Environment")[1].split("\n## ")[0]
    keys = {*re.findall(r"`(\w+)", " ".join(re.findall(r"^\| (`.*?) \|", section, re.M)))}
    assert keys == {"device", "local_device", "fio", "machine", "hosts", "column"}


PROCESSORS = """
Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz
Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz
Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz
Intel(R) Xeon(R) Processor
Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz
Intel(R) Core(TM)2 Duo CPU     E8400  @ 3.00GHz
Intel(R) Core(TM) Ultra 7 155H
Intel(R) Celeron(R) J4125 CPU @ 2.00GHz
Intel(R) Celeron(R) N5105 @ 2.00GHz
Intel(R) Pentium(R) Silver N6005 @ 2.00GHz
Intel(R) Atom(TM) CPU C3538 @ 2.10GHz
Intel(R) N100
Intel(R) Xeon(R) E-2288G CPU @ 3.70GHz
Intel(R) Xeon(R) CPU D-1541 @ 2.10GHz
11th Gen Intel(R) Core(TM) i7-1185G7 @ 3.00GHz
Intel Xeon Processor (Skylake, IBRS)
Intel Core Processor (Haswell, no TSX)
AMD EPYC
AMD EPYC 7B13
AMD EPYC 9R14
AMD EPYC 7763 64-Core Processor
AMD EPYC-Milan Processor
AMD Ryzen 9 7950X3D 16-Core Processor
AMD Ryzen 7 5700U with Radeon Graphics
AMD Ryzen Threadripper PRO 3995WX 64-Cores
AMD Embedded G-Series GX-412TC SOC
Neoverse-N1
Cortex-A72
Apple M1 Pro
QEMU Virtual CPU version 2.5+
Common KVM processor
UML
"""
SYSTEMS = [
    ("kernel", "Linux 6.12.57+deb13-amd64", None),
    (
        "kernel",
        "Linux version 6.1.0-22-amd64 (debian-kernel@lists.debian.org) #1",
        "Linux version 6.1.0-22-amd64",
    ),
    ("kernel", "Linux version 6.8.0-45-generic (buildd@x)", "Linux version 6.8.0-45-generic"),
    ("kernel", "Linux version 6.8.12-4-pve (x@y)", "Linux version 6.8.12-4-pve"),
    ("kernel", "Linux version 6.1.192-harness", None),
    ("kernel", "Linux version 6.18.44-fc-v782", "Linux version 6.18.44"),
    ("kernel", "Linux version 6.1.0-198-51-100-77", "Linux version 6.1.0"),
    ("kernel", "Linux version 6.1.0-zaphod", "Linux version 6.1.0"),
    ("distribution", "Debian GNU/Linux 12 (bookworm)", None),
    ("distribution", "Ubuntu 24.04.1 LTS", None),
    ("distribution", "Debian GNU/Linux 12 for badge 90210", "Debian GNU/Linux 12"),
    ("hypervisor", "KVM", None),
    ("clocksource", "time-travel-clock", None),
    ("governor", "performance", None),
    ("congestion_control", "cubic", None),
]
TOOLS = """
fio-3.33
strongSwan 5.9.8 swanctl
ip utility, iproute2-6.1.0, libbpf 1.1.2
tcpdump version 4.99.3
iscsiadm version 2.1.8
nbdkit 1.32.5
2.1.75-2.1
nvme version 2.3
"""


def test_what_processors_systems_and_tools_are_called_stays() -> None:
    cleaner = cleaned.Cleaner()

    def fact(name: str, value: str) -> object:
        rule = cleaned.FACTS[name]
        return None if rule is None else rule(cleaner, value)

    for text in PROCESSORS.strip().splitlines():
        wanted = "processor" if text.endswith("SOC") else " ".join(text.split())
        assert fact("cpu", text) == wanted, text
    for text in (
        "DESKTOP-JX91",
        "07700 90012",
        "Intel(R) of zaphod",
        "AMD EPYC 7B13 at vault7",
        "EPYC 1 2 3",
    ):
        assert fact("cpu", text) == "processor", text
    for name, text, kept in SYSTEMS:
        assert fact(name, text) == (text if kept is None else kept), text
    for text in TOOLS.strip().splitlines():
        assert cleaned._tool(cleaner, text) == text
    for name in (*facts_of.TOOLS, *transports.versions()):
        assert name in cleaned._SYSTEMS.split(), name


NAMED_SO = """
wired-rtt5ms
openflow-ethernet-controller-ethernet-cpu50
wired-rate2.5g-loss0.1%
4k-depth8
rand-write-256k-qd64
rand-read-4k-j4-qd16
aes128gcm16-gso
pppoe
10g
802.11n
HDD 7200 rpm
AES-128-CBC, HMAC-SHA-256
Gigabit Ethernet, 4 switches
Gigabit Ethernet, round trip 5 ms
Gigabit Ethernet, MTU 9000, 2.5 Gbit/s, loss 0.1%
Open vSwitch at a tenth, controller over ethernet, 50% CPU
WiFi (hwsim, WPA2)
"""


def test_names_and_titles_of_what_is_shipped_stay() -> None:
    cleaner = cleaned.Cleaner()
    for text in NAMED_SO.strip().splitlines():
        assert cleaner.title(text) == text, text
    assert cleaner.title("badge 90210") == "name1 name2"
    assert cleaner.title("wired-07700") == "wired-name3"


def test_an_empty_text_stands_for_nothing() -> None:
    cleaner, portal = cleaned.Cleaner(), {"typed": "nas", "address": "fd00::2", "port": 3260}
    reached = {"transport": "iscsi", "name": "iqn.x:a", **portal}
    shared = cleaner.clean(msgspec.convert(reached, model.BlackBoxTarget))
    assert (shared.login, shared.typed, shared.address) == ("", "192.0.2.1", "2001:db8::2")
    assert cleaner.replaced["target"] == {"iqn.x:a": "iqn.2001-04.com.example:target1"}


def test_warnings_in_the_harness_s_own_words_stay() -> None:
    use: dict[str, Any] = {"wall_ns": 1, "cores": 1, "busiest_core": 1.0}
    ends = [("initiator",), ("initiator", "target"), ("zaphod",)]
    own = conditions.saturated([ProcessorUse(hosts=hosts, **use) for hosts in ends])
    own += [NOT_STEADY, "the core of trillian was busy"]
    planted = msgspec.structs.replace(open_results([MAKE_RUN])[0], warnings=tuple(own))
    kept = cleaned.Cleaner().clean(planted).warnings
    assert kept == (*own[:2], cleaned.WITHHELD, NOT_STEADY, cleaned.WITHHELD)


@pytest.mark.parametrize("folder", STORED, ids=lambda folder: folder.name)
def test_nothing_of_a_run_in_the_lab_is_a_name(folder: Path) -> None:
    """So all names of columns, workloads, ciphers and processors are as they were."""
    shared = cleaned.shared(RunFolder(folder))
    many = {field for field, count in shared.left_out.items() if count > 100}
    missing = {*RunFolder(folder).load_plan().transports} - {*model.TRANSPORTS}
    assert {kind: {*names} for kind, names in shared.replaced.items()} == (
        {"transport": missing} if missing else {}
    )
    assert {"Record.session", "Record.agreed"}.isdisjoint(many)


def archived(folder: Path, file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(archive.packed(cleaned.shared(RunFolder(folder)).files))
    return file


PRINTED = [
    ("emulation", "table --ratio unprotected"),
    ("ladder", "explain --summary"),
    ("generic", "explain"),
]
PRINTED += [("sweep-virtual", "table"), ("generic", "export"), ("switches", "table --view udp-latency")]


@pytest.mark.parametrize(("name", "words"), PRINTED)
def test_commands_print_the_same_of_it(tmp_path: Path, name: str, words: str) -> None:
    # As it was measured, without the outputs of tools and the words of kernels.
    raw = shutil.ignore_patterns("raw", "measured.json")
    folder = shutil.copytree(FIGURES / name, tmp_path / "own", ignore=raw)
    shared = archived(FIGURES / name, tmp_path / "theirs.zip")
    own, theirs = (harness(*words.split(), str(of), cwd=tmp_path) for of in (folder, shared))
    assert (own.returncode, theirs.returncode) == (0, 0), theirs.stderr
    # A file can try nothing.
    ours = re.sub(r"\s+Measure\s+it:\n  harness .*", "", own.stdout)
    assert theirs.stdout == re.sub(r"(6\.18\.44)-fc-v\d+", r"\1", ours)


def test_it_is_compared_and_drawn(tmp_path: Path) -> None:
    archived(BASELINES, tmp_path / "theirs.zip")
    own = harness("compare", "theirs.zip", str(BASELINES), cwd=tmp_path)
    assert own.returncode == 2 and "found run 20261125-005004-467b in both" in own.stderr
    compared = harness("compare", "theirs.zip", str(FIGURES / "emulation"), cwd=tmp_path)
    said = " ".join(compared.stdout.split())
    assert "B (20261125-005103-8889) against A (20261125-005004-467b)" in said
    for words in ("report theirs.zip -o r.html", "plot bars theirs.zip -o b.svg"):
        assert harness(*words.split(), cwd=tmp_path).returncode == 0
    several = harness("share", str(FIGURES), cwd=tmp_path)
    assert several.returncode == 2 and "expected one run" in several.stderr


def test_probes_are_in_it_and_several_are_a_folder_of_runs(tmp_path: Path) -> None:
    assert len(open_probes([archived(FIGURES / "packet-rate", tmp_path / "theirs.zip")])) == 3
    for name in ("ladder", "generic"):
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
    reported = harness("share", str(run.path), cwd=tmp_path)
    assert reported.stdout == listed.stdout
    with zipfile.ZipFile(file) as shared:
        held = "".join(shared.read(name).decode() + name for name in shared.namelist()).lower()
    for secret in ("zaphod", "trillian", "198.51", "vault7", "001132", "enx", "iqn", ":2222"):
        assert secret not in held
    # Every text of it was printed before.
    assert all(text in reported.stdout.replace("\n  ", " ") for text in cleaned.shared(run).texts)
    assert "zaphod is name1" in reported.stdout
    tables = [harness("table", str(path), cwd=tmp_path).stdout for path in (file, run.path)]
    figures = [re.findall(r"^(\w+-\w+-\w+) +(.*)", table, re.MULTILINE) for table in tables]
    assert figures[0] == figures[1] != []
    assert harness("report", file.name, "-o", "r.html", cwd=tmp_path).returncode == 0
    assert "zaphod" not in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize(
    ("release", "shared"), [("Linux 6.1.192-zaphod", "Linux 6.1.192"), ("Linux 2170912345678.1-zaphod", "")]
)
def test_of_a_release_the_version_is_shared_and_no_longer_number(release: str, shared: str) -> None:
    environment = {"hosts": {"target": {"kernel": release}}}
    facts = cleaned._environment(cleaned.Cleaner(), environment)["hosts"]["target"]
    assert facts.get("kernel", "") == shared


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
        assert "expected a shared run" in str(refused(archive.unpacked, file)), data
        assert list(tmp_path.iterdir()) == [file]


def test_in_a_folder_of_runs_other_archives_and_copies_do_not_count(tmp_path: Path) -> None:
    shutil.copytree(BASELINES, tmp_path / "run")
    archived(BASELINES, tmp_path / "own.zip")
    (tmp_path / "photos.zip").write_bytes(made_archive(**{"a.jpg": b"x"}))
    (tmp_path / "none.zip").write_bytes(b"no archive at all")
    assert len(open_results([tmp_path])) == len(open_results([BASELINES]))
    assert len(open_runs([tmp_path])) == 1
    empty = made_archive(**{"plan.json": b"{}"})
    (tmp_path / "cut.zip").write_bytes(empty[:-9])
    with unread.noted() as lost:
        open_results([tmp_path])
    assert "cut.zip" in lost[0].message
    (tmp_path / "empty.zip").write_bytes(empty)
    refused(open_results, [tmp_path / "empty.zip"])


def test_a_mounted_share_keeps_its_kind_and_loses_its_server() -> None:
    cleaned_plan = cleaned.Cleaner().clean(mounted.plan())
    assert cleaned_plan.columns == (mounted.VOLUME.column,) and cleaned_plan.storage.volume is not None
    assert cleaned_plan.storage.volume.filesystem == "nfs" and not cleaned_plan.storage.volume.title


def test_a_transport_of_another_version_becomes_none_of_these() -> None:
    cleaner, column = cleaned.Cleaner(), Column("wired", transport="my-own-tcp")
    assert cleaner.clean(column).transport == "transport1"
    assert cleaner.clean(Column("wired")).transport == "iscsi"
