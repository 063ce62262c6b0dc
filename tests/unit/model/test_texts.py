"""Each text of what is read from a file has a kind, and is refused where it is not of that kind."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from harness.analysis.cpu_costs import CpuCosts
from harness.hosts.state import Owner
from harness.hosts.undo import UndoEntry
from harness.model import DiskProfile, HopKindName, LinkProfile, Plan, Proposal, Record, TransportName, texts
from harness.model.reread import Samples
from harness.parse.files import TomlFile
from harness.planning.probe_plan import ProbeProfile
from harness.planning.request import RunRequest
from harness.results import events, sections
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder
from harness.testbeds.lab.exchange import Renewal, WorkerOrder, WorkerReport
from harness.testbeds.lab.kernels.kernel import Built
from harness.testbeds.lab.persistent import LabState, LabTerms
from tests.unit.parsing import refused
from tests.unit.results.test_results import record
from tests.unit.results_folder import made_plan

HARNESS = Path(__file__).parents[3] / "harness"

READ: tuple[Any, ...] = (
    *(Plan, Record, ProbeRecord, Samples, events.Event),
    *(RunRequest, ProbeProfile, LinkProfile, Proposal, DiskProfile, CpuCosts),
    *(Owner, UndoEntry, Built, LabTerms, LabState, WorkerOrder, Renewal, WorkerReport),
    *(section.holds for section in sections.known().values()),
)
"""The types of files: of results, of users' own, and of what the harness keeps for itself."""

NOT_FILES = {
    # What the harness's own programs answer, on this machine and on hosts.
    *("AgentMessage", "MachineSample", "Looked", "Policy", "SaCounters", "WifiAssociation", "Wiring"),
    "LoadOutput",
    *("_Printed", "_PrintedCiphers", "_PrintedRoundTrips"),
    # What tools print: their texts get the kinds of what is made of them.
    *("_FioDocument", "_Iperf3Document", "_Event", "_Job", "IperfReport", "Latency"),
    # Of a file of any version; what follows reads it as a type of READ. An environment has no type.
    *("_AnyFile", "Any"),
    # Shipped with the harness, and read from nowhere else.
    "declared_type",  # each kind.toml
    *("InHelp", "LinuxDistribution", "PathReference", "Reference", "Score", "_File"),
    # The type is an argument.
    *("cls", "decoder", "kind", "made", "self", "type_", "TransportName"),
}

KINDS = {get_args(kind)[1].title for kind in (*texts.KINDS, TransportName, HopKindName)}


def fields_of(kind: inspect.Type, place: str, seen: set[type]) -> Iterator[tuple[str, str | None]]:
    """Each text in a type, with the title of its kind: ``Column.link``."""
    if isinstance(kind, inspect.Metadata):
        if isinstance(kind.type, inspect.StrType):
            yield place, (kind.extra_json_schema or {}).get("title")
        else:
            yield from fields_of(kind.type, place, seen)
    elif isinstance(kind, inspect.StrType):
        yield place, None
    elif isinstance(kind, inspect.StructType):
        if kind.cls not in seen:
            seen.add(kind.cls)
            for field in kind.fields:
                yield from fields_of(field.type, f"{kind.cls.__name__}.{field.name}", seen)
    else:
        # Each section of a plan is read as its own type (results.sections).
        is_section = isinstance(kind, inspect.AnyType) and place == "Plan.sections"
        assert is_section or not isinstance(kind, inspect.AnyType | inspect.CustomType), place
        for part in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
            yield from fields_of(part, place, seen)
        for name in ("item_type", "key_type", "value_type"):
            if hasattr(kind, name):
                yield from fields_of(getattr(kind, name), place, seen)


def test_each_text_of_a_file_has_a_kind() -> None:
    """Whoever adds a field says what its text may become."""
    seen: set[type] = set()
    found = [each for root in READ for each in fields_of(inspect.type_info(root), "", seen)]
    assert len(found) > 150
    assert [place for place, title in found if title not in KINDS] == []
    metas = [get_args(kind)[1] for kind in texts.KINDS]
    assert len({(meta.pattern, meta.max_length) for meta in metas}) == len({meta.title for meta in metas})
    assert len(metas) == len({meta.title for meta in metas})


def types_read(tree: ast.AST) -> Iterator[str]:
    """The types as which a module reads anything, by the last part of their names."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        asked = [each.value for each in node.keywords if each.arg == "type"]
        if node.func.attr in ("load", "load_named", "Decoder"):
            # The paths of results are loaded, too.
            asked += [each for each in node.args[:1] if isinstance(each, ast.Name) and not each.id.islower()]
        elif node.func.attr == "convert":
            asked += node.args[1:2]
        elif node.func.attr != "decode":
            continue
        for each in asked:
            yield from (name.id for name in ast.walk(each) if isinstance(name, ast.Name))


def test_what_is_read_as_a_type_is_a_file_s_or_listed() -> None:
    """Whoever reads another file adds its type to READ."""
    roots = {part.__name__ for root in READ for part in get_args(root) or (root,)} | {"Event"}
    found: dict[str, str] = {}
    for file in sorted(HARNESS.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if "decode" in source or "Decoder" in source or "convert" in source or "load" in source:
            found |= dict.fromkeys(types_read(ast.parse(source)), str(file.relative_to(HARNESS)))
    assert {"Record", "CpuCosts", "RunRequest"} <= found.keys()
    others = {name: file for name, file in found.items() if name not in roots | NOT_FILES | {*dir(builtins)}}
    assert others == {}
    assert found.keys() >= NOT_FILES


REFUSED = {
    "an option of ssh": {"machines": {"target": "ssh://-oProxyCommand=x", "initiators": ["local"]}},
    "an option of ip": {"links": {"wired": {"interface": "-force"}}},
    "a long interface": {"links": {"wired": {"interface": "x" * 16}}},
    "a host for an address": {"links": {"wired": {"portal": "evil.example"}}},
    "a relative path": {"storage": {"backing": {"path": "etc/passwd"}}},
    "a NUL in a path": {"storage": {"backing": {"path": "/dev/sda\0"}}},
    "a line in a path": {"storage": {"backing": {"path": "/dev/sda\nx"}}},
    "a path as a link's name": {"links": {"../x": {}}},
    "a release with a path": {"setting": {"other_kernel": {"key": "0" * 12, "release": "6.1/../x"}}},
    "a line in the configuration of fio": {"jobs": [{"name": "x", "options": [["bs", "4k\nfilename=/x"]]}]},
    "a line in that of a session": {"parameters": {"iscsi": {"MaxBurstLength": "1\nnode.x"}}},
    "a long name": {"run_id": "x" * 65},
    "a word for charon": {"proposals": {"aes128gcm16": {"esp": "aes;x"}}},
}


def merged(value: Any, change: Any) -> Any:
    if isinstance(value, dict) and isinstance(change, dict):
        return value | {key: merged(value.get(key, {}), each) for key, each in change.items()}
    return change


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_a_plan_with_another_text_is_refused_where_it_is_read(tmp_path: Path, change: dict[str, Any]) -> None:
    run = RunFolder(tmp_path / "r1")
    run.save_plan(made_plan())
    assert run.load_plan().run_id == "r1"
    file = run.path / "plan.json"
    file.write_bytes(msgspec.json.encode(merged(msgspec.json.decode(file.read_bytes()), change)))
    said = refused(run.load_plan).message
    assert re.match(r".*plan\.json is not a readable plan: expected .*, found '.*' - at ", said), said


@pytest.mark.parametrize("raw", ["/etc/passwd", "raw/../../x", "raw/./x", "cells/x.json", "raw/x\n", "raw"])
def test_a_record_lists_files_below_raw_alone(tmp_path: Path, raw: str) -> None:
    run = RunFolder(tmp_path / "r1")
    kept = run.save_record(record(run_id="r1", raw=("raw/wired.x.r1/fio.json", "raw/a b/..x")))
    assert len(run.load_records()) == 1
    kept.write_bytes(msgspec.json.encode(record(run_id="r1", raw=(raw,))))
    assert "expected a file below raw/" in refused(run.load_records).message


@pytest.mark.parametrize(
    ("kind", "legal"),
    [
        (texts.IpAddress, ["192.0.2.1", "fe80::1%eth0.100", "::1", "fd00::2", "::ffff:192.0.2.1"]),
        (texts.MachineAddress, ["local", "ssh://a.b+c-d@nas_1.lan:22", "ssh://[fd00::2]:22", "ssh://nas/"]),
        (texts.HopAddress, ["scheme://switch.lan:161/GigabitEthernet1/0/1,eth 2", "ssh://gw"]),
        (
            texts.Portal,
            ["nas.lan", "[fd00::2]:3260", "fd00::2", "other://nas/a/b", "nvme-tcp://h:4420/nqn.x:y"],
        ),
        (
            texts.TargetName,
            ["", "iqn.2005-10.org.freenas.ctl:a", "eui.0123456789ABCDEF", "iqn.2000-01.x:ü"],
        ),
        (texts.InterfaceName, ["eth0", "enp3s0f1np1", "br-lan", "eth0.100@x"[:8], "wlan0", "süd0"]),
        (texts.UserName, ["", "Jörg Meier", "iqn.1993-08.org.debian:01:abc", "a@b"]),
        (texts.AbsolutePath, ["/dev/disk/by-id/ata-X_Y", "/srv/mit Blank/ü.img", "/dev/mapper/vg-lv"]),
        (texts.Identity, ["", "t10.ATA     ST3320620AS                 9QF1", "naa.6001405", "iqn.x:y:0"]),
        (texts.KernelRelease, ["6.12.48+deb13-amd64", "6.1.192-3", "6.18.44-fc-v782", "6.19.0-rc1"]),
        (texts.Commit, ["", "0123456789ab", "0123456789abcdef0123456789abcdef01234567-dirty"]),
        (texts.FilePath, ["./basic.fio", "my profiles/x.fio", "/etc/swanctl/x.conf#child"]),
        (texts.Percentile, ["mean", "p50", "p99.9", "p99.99"]),
        (texts.HostName, ["initiator16", "target", "hop2", "switch", "router3", "access-concentrator"]),
        (texts.RunFile, ["raw/wired.x.r1/fio.json", "raw/probes/10g.tcp.r1/iperf3.txt"]),
    ],
)
def test_what_users_have_is_legal(kind: Any, legal: list[str]) -> None:
    for text in legal:
        assert msgspec.convert(text, kind) == text
    if legal[0]:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(f"-{legal[0]}\0", kind)


def test_a_settings_file_is_refused_with_key_and_line(tmp_path: Path) -> None:
    for text, said in (
        ('links = ["wired\\u0000"]', "line 1, links: expected a word as typed .*, found 'wired"),
        ('iqn = "-x"', "line 1, iqn: expected the name of a target or an export"),
        ('results = "--to"', "line 1, results: expected nothing, or a path, found '--to'"),
    ):
        file = tmp_path / "mine.toml"
        file.write_text(text)
        found = refused(TomlFile("configuration", file, text).load, RunRequest, destroy=()).message
        assert re.search(said, found), found
