"""Exports: the same rows in five formats, each safe against the names in them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.model import SCHEMA_VERSION, Job, LabKernel, Latency, Machines, Proof, Record, Status
from harness.model.choices import TextFormat
from harness.model.errors import RequirementError, UsageError
from harness.model.telemetry import BackgroundLoad, ProcessorUse, RoundTrips, Telemetry
from harness.results.measured import Measured
from harness.table import TableFormat, export, openmetrics
from harness.table.comparison import CompareFormat
from harness.table.export import COLUMNS, ExportFormat, encode, rows
from harness.version import __version__
from tests.unit.command import harness
from tests.unit.results_folder import made_plan, write
from tests.unit.table.test_table import HOSTILE, record, transfer

MIXED = record(
    workload="mixed",
    read=transfer(3.0, mean_ns=1000.5, p99_ns=5000.0),
    write=transfer(1.0),
    sync_latency=Latency(p50_ns=7.0),
    started_unix_s=1795253576.25,
    warnings=("one", "two"),
    proof=Proof(link_bytes_initiator=9, link_bytes_target=8, protected_bytes=7, tcp_retransmits=0),
    protection=("aes128gcm16",),
    agreed={"aes128gcm16": {"drivers": "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))"}},
)
DOCS = Path(__file__).parents[3] / "docs"
FAILED = record(status=Status.FAILED, reason="the target vanished", read=None, write=None)


def as_dicts(records: list[Record], format: ExportFormat) -> list[dict[str, Any]]:
    text = encode(records, format).decode()
    if format is ExportFormat.CSV:
        return list(csv.DictReader(io.StringIO(text)))
    return [json.loads(line) for line in text.splitlines()]


def test_a_row_for_each_direction_and_one_for_what_moved_nothing() -> None:
    rows = as_dicts([MIXED, FAILED], ExportFormat.JSONL)
    assert [row["direction"] for row in rows] == ["read", "write", "fsync", None]
    read, write, fsync, failed = rows
    assert (read["bandwidth_bytes_s"], read["latency_mean_ns"]) == (3e6, 1000.5)
    assert write["latency_p99_ns"] is None
    assert (fsync["bytes"], fsync["latency_p50_ns"]) == (None, 7.0)
    names = ("status", "reason", "bytes", "started_unix_s")
    assert [failed[name] for name in names] == ["failed", "the target vanished", None, None]
    assert {tuple(row) for row in rows} == {COLUMNS}
    rows = as_dicts([MIXED, FAILED], ExportFormat.CSV)
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["iops"], rows[0]["warnings"], rows[0]["emulated"]) == ("732.0", "one; two", "false")
    assert rows[3]["bytes"] == rows[3]["direction"] == "", "CSV has nothing for null"


@pytest.mark.parametrize("first", "=+-@|\uff1d\uff0b\uff0d\uff20")
def test_csv_has_no_formula(first: str) -> None:
    (row,) = as_dicts([record(status=Status.FAILED, reason=f" {first}cmd|' /C calc'!A0")], ExportFormat.CSV)
    assert row["reason"].startswith(f"' {first}")


def test_the_documentation_has_every_tag_and_names_only_columns() -> None:
    tags = re.search(r"OpenMetrics\): ([^.]*)\.", export.ROW)
    assert tags is not None and tuple(re.findall(r"\w+", tags[1])) == export.TAGS
    assert set(re.findall(r"``(\w+)``", export.ROW)) <= set(COLUMNS)


def points(data: bytes) -> list[tuple[str, dict[str, str], dict[str, str], str]]:
    """A reader of line protocol after its specification: measurement, tags, fields, time."""
    found = []
    for line in data.decode().split("\n")[:-1]:
        head, rest = _until(line, " ")
        name, *tags = _split(head, ",")
        fields, time = _until(rest, " ")
        of_tags, of_fields = ([_until(part, "=") for part in parts] for parts in (tags, _split(fields, ",")))
        found.append((name, dict(of_tags), dict(of_fields), time))
    return found


def _until(text: str, mark: str) -> tuple[str, str]:
    """Up to the first mark that is neither escaped nor quoted, and what comes after it."""
    before = re.match(rf'(?:\\.|"(?:\\.|[^"\\])*"|[^"\\{mark}])*', text, re.DOTALL)
    assert before is not None and text[before.end() :][:1] in ("", mark), text
    return before[0], text[before.end() + 1 :]


def _split(text: str, mark: str) -> list[str]:
    parts = []
    while text:
        part, text = _until(text, mark)
        parts.append(part)
    return parts


def test_line_protocol_reads_back() -> None:
    ((name, tags, fields, time), *_) = points(encode([MIXED], ExportFormat.INFLUX))
    assert (name, time) == ("harness", "1795253576250000000")
    assert tags.items() >= {"workload": "mixed", "direction": "read", "repeat": "1"}.items()
    expected = {"bytes": "3000000i", "bandwidth_bytes_s": "3000000.0", "emulated": "false"}
    assert fields.items() >= {**expected, "warnings": '"one; two"'}.items()
    (failed,) = points(encode([FAILED], ExportFormat.INFLUX))
    assert "direction" not in failed[1] and failed[3] == ""


@pytest.mark.parametrize("name", [HOSTILE.replace('"', ""), "a,b=c d", "x\\", "two\nlines", "ü\u202e", "\\,"])
def test_hostile_names_stay_one_point(name: str) -> None:
    hostile = record(workload=name, link=name, reason=f'{name}"', warnings=(f'"{name}\\',))
    (found,) = points(encode([hostile], ExportFormat.INFLUX))
    assert {"workload", "link", "testbed", "status"} <= found[1].keys()
    assert found[2]["schema"] == f"{SCHEMA_VERSION}i"
    (row,) = as_dicts([hostile], ExportFormat.CSV)
    assert "\n" not in row["workload"] and not row["workload"].startswith(("=", "+", "-", "@"))
    (line,) = as_dicts([hostile], ExportFormat.JSONL)
    assert line["workload"] == name


def test_parquet_keeps_types_even_of_empty_columns_and_integers_that_may_be_null_stay_integers(
    tmp_path: Path,
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(encode([FAILED], ExportFormat.PARQUET)))
    assert tuple(table.schema.names) == COLUMNS
    types = [str(table.schema.field(name).type) for name in ("bytes", "latency_p99_ns")]
    assert types == ["int64", "double"]
    both = parquet.read_table(io.BytesIO(encode([MIXED, FAILED], ExportFormat.PARQUET)))
    assert both.schema == table.schema
    assert table.schema.metadata[b"harness_version"].decode() == __version__
    assert both.to_pylist() == as_dicts([MIXED, FAILED], ExportFormat.JSONL)
    from pyarrow import csv as arrow_csv
    from pyarrow import json as arrow_json

    for format, read in ((ExportFormat.CSV, arrow_csv.read_csv), (ExportFormat.JSONL, arrow_json.read_json)):
        file = tmp_path / format
        file.write_bytes(encode([MIXED, FAILED], format))
        column = read(file).column("protected_bytes")
        assert (str(column.type), column.to_pylist()) == ("int64", [7, 7, 7, None]), format


def test_a_row_says_how_under_what_load_and_by_which_kernel_and_machines_it_was_measured() -> None:
    trips = RoundTrips(interval_ns=10**7, payload_bytes=56, sent=9, received=9, p50_ns=2.5e5)
    near = ProcessorUse(hosts=("initiator",), wall_ns=10**9, cores=4, busiest_core=0.25)
    far = msgspec.structs.replace(near, hosts=("target",), busiest_core=0.75)
    telemetry = Telemetry(round_trips=trips, processors=(near, far))
    found = msgspec.structs.replace(record(1.0, workload="w"), telemetry=telemetry)
    jobs = (Job(name="w", options=(("ioengine", "libaio"), ("iodepth", "32"), ("numjobs", "4"))),)
    planned = msgspec.structs.replace(made_plan(), jobs=jobs, harness_version="9.1")
    (row,) = rows([found], plans={found.run_id: planned})
    how = {"queue_depth": 32, "numjobs": 4, "storage": "ramdisk", "harness_version": "9.1"}
    assert (how | {"round_trip_p50_ns": 2.5e5, "busiest_core": 0.75}).items() <= row.items()
    (unknown,) = rows([record(1.0)])
    names = ("queue_depth", "numjobs", "harness_version", "busiest_core")
    assert dict.fromkeys(names).items() <= unknown.items()
    # It says whether it may be used.
    for taken, is_disturbed in ((0.09, False), (0.11, True), (None, False)):
        others = BackgroundLoad(hosts=("initiator", "target"), wall_ns=10**9, cores=1, taken=taken)
        (row,) = rows([record(1.0, telemetry=Telemetry(background_load=(others,)))])
        assert (row["disturbed"], row["is_disturbed"]) == (taken, is_disturbed)
    own = record(
        1.0, protection=("aes128gcm16",), ipsec_mode="tunnel", lab_kernel=LabKernel.CUSTOM, disk="hdd"
    )
    # In the lab the kernel that measured is not that of the machine.
    machine = {"kernel": "Linux version 6.18.4 (x)", "cpus": 8}
    in_lab = {"machine": machine, "hosts": {"initiator": {"kernel": "Linux version 6.1.192-harness (y)"}}}
    machines = Machines(target="ssh://root@server", initiators=("local", "ssh://two"))
    real = msgspec.structs.replace(made_plan(), machines=machines)
    (row,) = rows([own], {own.run_id: in_lab}, {own.run_id: made_plan()})
    assert (row["column"], row["lab_kernel"], row["kernel"]) == (
        own.column.label,
        "custom",
        "6.1.192-harness",
    )
    assert (row["initiator_kernel"], row["initiator_cores"], row["disk"]) == ("6.18.4", 8, "hdd")
    assert (row["initiator_host"], row["target_host"], row["ipsec_mode"]) == (None, None, "tunnel")
    (row,) = rows([own], {own.run_id: {"hosts": in_lab["hosts"]}}, {own.run_id: real})
    assert (row["initiator_host"], row["target_host"]) == ("local", "ssh://root@server")
    assert row["kernel"] == row["initiator_kernel"] == "6.1.192-harness"
    # The mode of ESP stands with IPsec alone; earlier versions wrote it with every protection.
    (row,) = rows([record(1.0, protection=("wireguard",), ipsec_mode="transport")])
    assert (row["protection"], row["ipsec"], row["ipsec_mode"]) == ("wireguard", "off", None)


def test_a_missing_package_is_named_and_an_unknown_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RequirementError, match="pyarrow") as lacking:
        encode([FAILED], ExportFormat.PARQUET)
    assert (lacking.value.hint or "").startswith(f"{sys.executable} -m pip install pyarrow, or ")
    with pytest.raises(UsageError) as unknown:
        ExportFormat("xls\x1b")
    assert "parquet" in (unknown.value.hint or "")


def test_the_command_prints_or_writes(tmp_path: Path) -> None:
    write(tmp_path / "results", [record(5.0)])
    printed = harness("export", "results", "--format", "jsonl", cwd=tmp_path)
    assert json.loads(printed.stdout)["bytes"] == 5_000_000
    written = harness("export", "results", "-o", "all.csv", cwd=tmp_path)
    assert (written.returncode, written.stdout) == (0, "")
    assert (tmp_path / "all.csv").read_text().startswith("run_id,")
    nowhere = harness("export", "results", "-o", "no/all.csv", cwd=tmp_path)
    assert nowhere.returncode == 2 and "hint:" in nowhere.stderr


SAMPLE = re.compile(r'(\w+)\{((?:[a-z0-9_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)')


def families(data: bytes) -> dict[str, dict[str, float]]:
    """Metrics by name and labels, as both OpenMetrics and node_exporter's textfile collector want them."""
    *lines, end = data.decode().removesuffix("\n").split("\n")
    assert end == "# EOF"
    found: dict[str, dict[str, float]] = {}
    for line, after in itertools.pairwise([*lines, end]):
        if line.startswith("#"):
            _, keyword, name, text = line.split(" ", 3)
            if keyword == "TYPE":
                assert name not in found and text == "gauge" and after.startswith(f"# HELP {name} ")
                found[name] = {}
            else:
                assert keyword == "HELP" and not found[name] and not set(text) & set('\\"')
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        name, labels, value = sample.groups()
        # Nothing comes after the value: a time would be refused.
        assert name == [*found][-1] and labels not in found[name] and math.isfinite(float(value))
        found[name][labels] = float(value)
    assert all(found.values())
    return found


def test_openmetrics_has_a_family_for_each_column_in_base_units_that_a_textfile_collector_takes() -> None:
    hostile = msgspec.structs.replace(FAILED, reason='a "b"\\\n{x="y"} 1 #')
    found = families(encode([MIXED, hostile], ExportFormat.OPENMETRICS))
    (read, write) = found["harness_bandwidth_bytes_per_second"].items()
    rows_of_both = list(rows([MIXED]))
    assert [read[1], write[1]] == [row["bandwidth_bytes_s"] for row in rows_of_both[:2]]
    assert 'direction="read"' in read[0] and 'direction="write"' in write[0]
    p99 = [row["latency_p99_ns"] for row in rows_of_both]
    assert [*found["harness_latency_p99_seconds"].values()] == [
        pytest.approx(ns / 1e9) for ns in p99 if isinstance(ns, float)
    ]
    assert {*found["harness_is_disturbed"].values()} == {0.0}
    # Texts are labels of one family, and so is why a record does not count.
    info = found["harness_record_info"]
    assert [*info.values()] == [1.0] * 4
    assert r'reason="a \"b\"\\\\n{x=\"y\"} 1 #"' in [*info][-1]
    names = {openmetrics.metric(each.name) for each in export.EXPORTED if each.kind is not str}
    assert names - set(map(openmetrics.metric, export.TAGS)) >= found.keys() - {openmetrics.INFO}
    assert len(names) == sum(each.kind is not str for each in export.EXPORTED)


def test_formats_have_one_name_in_all_commands_and_old_names_a_note(tmp_path: Path) -> None:
    formats = {*TableFormat, *CompareFormat, *TextFormat, *ExportFormat}
    tables = {"text", "markdown", "html", "csv", "latex", "json"}
    assert set(map(str, formats)) == tables | {"jsonl", "parquet", "influx", "openmetrics"}
    write(tmp_path / "results", [record(5.0)])
    for new, old in (
        ("table results --format text", "table results --format plain"),
        ("table results --format markdown", "table results --format github"),
        ("export results --format csv", "export results --to csv"),
    ):
        now, then = (harness(*words.split(), cwd=tmp_path) for words in (new, old))
        assert (now.returncode, now.stderr) == (0, "") and now.stdout == then.stdout
        (note,) = then.stderr.splitlines()
        assert (
            " is now " in note
            and "--format" in note
            and note.endswith("the old name goes with the next release")
        )


DASHBOARD = json.loads((DOCS / "grafana.json").read_text(encoding="utf-8"))
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}


def panels(source: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each panel of a data source with its only query, which chooses runs, workloads and links. A row is
    closed until somebody opens it, so that a source that is not there is not asked."""
    (row,) = (each for each in DASHBOARD["panels"] if each["title"].lower() == source)
    assert row["type"] == "row" and row["collapsed"] is True and len(row["panels"]) == 5
    for panel in row["panels"]:
        (target,) = panel["targets"]
        assert panel["datasource"] == target["datasource"] == {"type": source, "uid": f"${{{source}}}"}
        asked = target.get("query") or target["expr"]
        assert {*re.findall(r"\$\{(\w+):raw\}", asked)} == {"run", "workload", "link"}
    return [(panel, panel["targets"][0]) for panel in row["panels"]]


def test_the_dashboard_s_variables_need_no_data_source() -> None:
    assert {name: each["type"] for name, each in VARIABLES.items()} == {
        **dict.fromkeys(("influxdb", "prometheus"), "datasource"),
        **dict.fromkeys(("run", "workload", "link"), "textbox"),
    }
    identities = [each["id"] for row in DASHBOARD["panels"] for each in (row, *row["panels"])]
    assert len(identities) == len(set(identities)) == 12


def test_the_dashboard_asks_influxdb_for_what_is_exported_and_each_panel_says_which_series_is_whose() -> None:
    """InfluxQL returns nothing for a name that is not there, and groups by tags alone."""
    quoted = re.compile(r'"(\w+)"')
    (name, *_), *_ = points(encode([MIXED], ExportFormat.INFLUX))
    for panel, target in panels("influxdb"):
        selected, source, rest = re.split(" FROM | WHERE ", target["query"], maxsplit=2)
        where, _, grouped = rest.partition(" GROUP BY ")
        assert source == f'"{name}"' and "$timeFilter" in where
        groups = {*quoted.findall(grouped)}
        assert {*quoted.findall(selected)} <= {*COLUMNS} and groups <= {*export.TAGS}
        for asked, wanted in re.findall(r'"(\w+)" (?:=~|!=|=) (\S+)', where):
            # A field is compared with a literal of its type; a tag is text.
            assert (asked in export.TAGS) is (wanted[0] in "'/"), asked
            assert asked in export.TAGS or (asked, wanted) == ("is_disturbed", "false")
        assert {*re.findall(r"\$tag_(\w+)", target.get("alias", ""))} == groups
        assert (panel["type"] == "timeseries") is bool(groups)
    assert {"column", "testbed", "lab_kernel", "clock"} <= {
        *quoted.findall(panels("influxdb")[0][1]["query"])
    }


def test_the_dashboard_asks_prometheus_for_metrics_and_labels_that_are_exported() -> None:
    found = Measured.read([DOCS / "figures" / "make-run"])
    written = families(encode(found.records, ExportFormat.OPENMETRICS, found.environments, found.plans))
    known = {*export.TAGS, "reason"}
    for panel, target in panels("prometheus"):
        metrics = re.findall(r"(\w+)\{([^}]*(?:\}\"[^}]*)*)\}", target["expr"])
        assert metrics and {name for name, _ in metrics} <= written.keys()
        for _, matchers in metrics:
            assert {*re.findall(r"(\w+)[!=]~?\"", matchers)} == {"status", "run_id", "link", "workload"}
        groups = {*re.findall(r"\w+", "".join(re.findall(r" by \(([^)]*)\)", target["expr"])))}
        assert groups <= known and (panel["type"] == "timeseries") is bool(groups)
        assert {*re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))} == groups
        for each in panel.get("transformations", ()):
            assert {*each["options"]["include"]["names"]} <= known
    # Latencies are in seconds there.
    units = [panel["fieldConfig"]["defaults"].get("unit") for panel, _ in panels("prometheus")]
    assert units[:2] == ["Bps", "s"]
