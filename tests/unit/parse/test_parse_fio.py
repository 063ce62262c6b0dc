"""The parser of fio's JSON: units, what makes a job invalid, and that no input makes it fall over."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from harness.parse.fio import (
    BEGAN,
    GONE,
    NOT_SINCE_ISSUED,
    FioJob,
    FioOutput,
    as_json,
    heard,
    parse,
    parse_client,
)
from tests.unit.parsing import OUTPUTS, Says, garbled, has, known, real_outputs, refused, sample

IDLE = {"io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0}
NOTHING = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "percentile": {"99.000000": 0}}


def distribution(mean: float, percentiles: dict[str, int] | None = None) -> dict[str, Any]:
    moments = {"min": mean / 2, "max": mean * 10, "mean": mean, "stddev": mean / 4}
    return moments if percentiles is None else {**moments, "percentile": percentiles}


def direction(**changes: object) -> dict[str, Any]:
    """1000 I/Os of 4 KiB in 2 s, as fio 3 has it."""
    moved = {"io_bytes": 4096000, "io_kbytes": 4000, "bw_bytes": 2048000, "bw": 2000, "iops": 500.0}
    clat = distribution(195000, {"50.000000": 190000, "99.000000": 400000, "99.900000": 900000})
    latency = {"clat_ns": clat, "lat_ns": distribution(200000)}
    return {**moved, "runtime": 2000, "total_ios": 1000, **latency, **changes}


def job(**changes: object) -> dict[str, Any]:
    return {"jobname": "a", "error": 0, "read": direction(), "write": IDLE, **changes}


def document(*jobs: dict[str, Any], **changes: object) -> dict[str, Any]:
    return {"fio version": "fio-3.33", "jobs": list(jobs) or [job()], **changes}


def parsed(*jobs: dict[str, Any], **changes: object) -> FioOutput:
    return parse(json.dumps(document(*jobs, **changes)))


def only(output: FioOutput) -> FioJob:
    (found,) = output.jobs
    return found


def test_nanosecond_and_microsecond_form() -> None:
    found = only(parsed())
    has(found, name="a", error=0, invalid=(), write=None, percentiles_of="clat")
    has(found.read, bytes=4096000, ios=1000, runtime_ns=2_000_000_000, bytes_per_s=2048000)
    has(known(found.read).latency, mean_ns=200000, p99_9_ns=900000)
    moved = {"io_bytes": 4000, "bw": 2000, "iops": 500, "runtime": 2000, "lat": distribution(200)}
    moved["clat"] = distribution(195, {"50.000000": 190, "99.000000": 400, "99.900000": 900})
    output = parsed(job(read=moved), **{"fio version": "fio-2.1.3"})
    has(only(output), read=only(parsed()).read, invalid=(), read_bins={})
    assert output.warnings == Says("IOPS times runtime")
    # What else contradicts itself without harm is a warning.
    old = parsed(**{"fio version": "fio-2.2.10"})
    assert only(old).invalid == () and old.warnings == Says("unusual for this version")
    writes = parsed(job(write=direction(), **{"job options": {"rw": "randread"}}))
    assert writes.warnings == Says("counts writes")
    has(parsed(**{"fio version": None}), version=None, warnings=Says("version"))


def test_percentiles_of_total_latency_win_and_unmeasured_latency_is_unknown() -> None:
    both = {**distribution(200000, {"99.000000": 500000}), "bins": {"200192": 999, "500736": 1, "9": 0}}
    found = only(parsed(job(read=direction(lat_ns=both))))
    has(found, percentiles_of="lat", read_bins={200192: 999, 500736: 1})
    has(known(found.read).latency, p99_ns=500000, p50_ns=None)
    found = only(parsed(job(read=direction(lat_ns=NOTHING, clat_ns=NOTHING), sync={"lat_ns": NOTHING})))
    has(known(found.read).latency, mean_ns=None, p99_ns=None)
    has(found, percentiles_of=None, sync_latency=None, invalid=())


def test_completion_that_lasts_longer_than_the_whole_has_no_percentiles_and_no_bins() -> None:
    late = {**distribution(210_000, {"99.000000": 5 * 10**9}), "bins": {"5000000000": 1000}}
    output = parsed(job(read=direction(lat_ns=distribution(200_000), clat_ns=late)))
    assert output.warnings == (NOT_SINCE_ISSUED,)
    has(only(output), invalid=(), read_bins={})
    has(known(only(output).read).latency, mean_ns=200_000, p99_ns=None)


def test_all_that_a_job_says() -> None:
    sync = {"total_ios": 3, "lat_ns": distribution(5000, {"99.000000": 9000})}
    row = job(**{"job options": {"rw": "read"}}, hostname="one", sync=sync)
    found = only(parsed(row, **{"global options": {"rw": "write", "bs": "4k"}}))
    has(found, options={"rw": "read", "bs": "4k"}, hostname="one")
    has(found.sync_latency, mean_ns=5000, p99_ns=9000)
    shown = as_json(parsed(job(sync={"lat_ns": distribution(5000)})))
    assert set(shown) == {"version", "jobs", "warnings"}
    (found,) = json.loads(json.dumps(shown))["jobs"]
    assert (found["write"], found["invalid"], found["sync"]["latency_mean_ns"]) == (None, [], 5000)
    counts = {"bytes_per_s": 2048000, "iops": 500, "bytes": 4096000, "ios": 1000, "runtime_ns": 2_000_000_000}
    latency = {"mean": 200000, "p50": 190000, "p99": 400000, "p99_9": 900000}
    expected = counts | {f"latency_{name}_ns": ns for name, ns in latency.items()}
    assert {name: found["read"][name] for name in expected} == expected


def test_a_job_and_a_figure_of_a_direction_may_be_invalid() -> None:
    for changes, reason, still_read in (
        ({"error": 5}, "error 5", True),
        ({"error": None}, "error is missing", True),
        ({"total_err": 3}, "3 I/O errors", True),
        ({"jobname": None}, "jobname is missing", True),
        ({"read": direction(iops=490)}, None, True),
        ({"read": {}}, "read.io_bytes is missing", False),
        ({"read": 5}, "cannot be read", False),
        ({"read": IDLE}, "no reads or writes", False),
        ({"read": None, "write": None, "mixed": direction()}, "unified_rw_reporting", False),
        ({"write": {**IDLE, "bw": 100}}, "write has 0 bytes", True),
        ({"read": direction(lat_ns=distribution(-1.0))}, "read latency mean", True),
        ({"eta": 2}, "2 s to go", True),
        ({"eta": 2**31 - 1}, None, True),
    ):
        found = only(parsed(job(**changes)))
        assert (found.read is not None) is still_read, changes
        assert found.invalid == (() if reason is None else Says(reason)), changes
    cases: tuple[tuple[str, list[Any], str], ...] = (
        ("bw_bytes", [2_100_000], "read.bw_bytes"),
        ("bw", [1900], "read.bw "),
        ("iops", [480], "read.iops"),
        *((name, [None], f"read.{name} is missing") for name in ("io_bytes", "runtime", "total_ios")),
        ("runtime", [0, 1e-320], "in 0 ms"),
        ("runtime", [2**62], "2^63"),
        ("io_bytes", [0], "0 bytes"),
        ("io_bytes", [-4096000], "negative"),
        ("io_bytes", [2**63, 10**30], "2^63"),
        ("io_bytes", ["4096000", True, [4096000]], "not a number"),
    )
    for name, values, reason in cases:
        for value in values:
            found = only(parsed(job(read=direction(**{name: value}))))
            assert found.read is None and found.invalid == Says(reason), (name, value)


def test_what_is_no_contradiction_and_what_concerns_one_job() -> None:
    small = direction(io_bytes=1474560, io_kbytes=1440, bw_bytes=10356, bw=10, iops=2.5, runtime=142386)
    old = {"io_bytes": 1, "bw": 1900, "iops": 1000, "runtime": 1, "total_ios": 1, "lat": distribution(9)}
    for read in ({**small, "total_ios": 360}, old):
        assert only(parsed(job(read=read))).invalid == ()
    bad, good = parsed(job(jobname="bad", read="?"), job(jobname="good")).jobs
    assert (bad.name, bad.read, bool(bad.invalid)) == ("(job 1)", None, True)
    assert (good.name, good.invalid) == ("good", ())


@pytest.mark.parametrize("figure", ["nan", "-nan", "NaN", "inf", "-inf", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("place", ["io_bytes", "bw", "runtime", "lat_ns"])
def test_not_finite_is_an_invalid_figure_with_a_name(figure: str, place: str) -> None:
    is_latency = place == "lat_ns"
    mark = {**distribution(200000), "mean": "@"} if is_latency else "@"
    rows = (job(read=direction(**{place: mark})), job(jobname="nan, inf"))
    bad, other = parse(json.dumps(document(*rows), indent=1).replace('"@"', figure)).jobs
    assert bad.invalid and bad.name == ("(job 1)" if figure == "1e400" else "a")
    has(other, name="nan, inf", invalid=())
    if is_latency and figure != "1e400":
        has(known(bad.read).latency, mean_ns=None, max_ns=2_000_000)
    else:
        assert bad.read is None


def test_what_is_around_or_odd_is_kept_as_a_warning_but_an_interruption_is_invalid() -> None:
    whole = json.dumps(document(), indent=2)
    output = parse(f'a disk of 3.5" {{not json}}, {{"log": 1}}\n{whole}\nDisk stats: \x1b[1mvda\n')
    assert only(output).invalid == ()
    before, after = (w for w in output.warnings if w.startswith("text "))
    assert "not json" in before and "Disk stats" in after
    assert "\x1b" not in "".join(output.warnings)
    output = parse(json.dumps(document(job(read=direction(bw_dev="@")))).replace('"@"', "-nan"))
    assert only(output).invalid == () and output.warnings == Says("-nan")
    whole, line = json.dumps(document()), "\nfio: terminating on signal "
    for text in (f"{whole}{line}2\n", f"{line}15\n{whole}"):
        has(only(parse(text)), error=0, invalid=Says("interrupted"))


def test_only_the_first_of_several_documents_counts() -> None:
    named = [document(job(jobname=name)) for name in ("first", "second", "third")]
    for text, further in (("\n".join(map(json.dumps, named)), 2), (json.dumps(named[:2]), 1)):
        output = parse(text)
        has(only(output), name="first", invalid=())
        assert any(each.startswith(f"{further} further fio documents") for each in output.warnings)
    whole = json.dumps(document())
    assert only(parse(whole[:-30] + "\n" + whole)).invalid == (), "the first is cut"


def test_the_last_of_a_runs_interim_documents_counts() -> None:
    text = sample("fio/status-interval.json")
    output = parse(text)
    read = only(output).read
    has(read, bytes=2457600, ios=600, runtime_ns=3_001_000_000)
    (warning,) = output.warnings
    assert warning.startswith("3 interim documents of the same run (--status-interval) were left out")
    documents = [json.loads(part + "\n}") for part in text.split("\n}\n")[:-1]]
    assert [d["jobs"][0]["read"]["io_bytes"] for d in documents] == [724992, 1540096, 2363392, 2457600]
    # A run behind it is another run; only the first counts.
    later = [{**d, "timestamp_ms": d["timestamp_ms"] + 4000} for d in documents]
    output = parse("\n".join(map(json.dumps, documents + later)))
    assert only(output).read == read
    assert [warning[:10] for warning in output.warnings] == ["3 interim ", "4 further "]
    # So it is without ms, and without times at all.
    for without in (("timestamp_ms",), ("timestamp_ms", "timestamp")):
        timeless = [{key: value for key, value in d.items() if key not in without} for d in documents]
        assert only(parse("\n".join(map(json.dumps, timeless)))).read == read
    second = text.index("\n}\n{") + 3
    for end in (second + 1, second + 8, second + 400, len(text) - 3):
        (problem,) = only(parse(text[:end])).invalid
        assert "later document in this text is cut" in problem
    assert only(parse(text[:second])).invalid == (), "nothing tells that there was more"


def progress(written_ms: int, elapsed_s: int, runtime_ms: int, start_ms: int | None = None) -> str:
    moved = runtime_ms * 4096
    figures = {"io_bytes": moved, "bw_bytes": 4096000, "runtime": runtime_ms, "total_ios": runtime_ms}
    since = {} if start_ms is None else {"job_start": 1795299600000 + start_ms}
    found = job(read=figures, elapsed=elapsed_s, **since)
    return json.dumps(document(found, timestamp_ms=1795299600000 + written_ms))


def test_interim_documents_are_distinguished_from_repeats() -> None:
    for later, runtime_ms in (
        ((1000, 2, 1799), 1799),  # of the same run
        ((2200, 4, 999), 999),  # the same, after its ramp_time
        ((1300, 1, 800), 796),  # the same job again
        ((9000, 2, 1799), 796),  # again and for longer
    ):
        has(only(parse(progress(0, 1, 796) + progress(*later))).read, runtime_ns=runtime_ms * 1_000_000)


def test_a_run_that_began_once_is_one() -> None:
    """Which later versions of fio say: 3.42 counts 2, 2, 4 and 4 s, one of these after 0.9 s."""
    steps = ((901, 2, 897), (1897, 2, 1897), (2899, 4, 2897), (3159, 4, 3003))
    whole = "".join(progress(*step, start_ms=0) for step in steps)
    has(only(parse(whole)).read, runtime_ns=3_003_000_000)
    output = parse(whole + "".join(progress(*step, start_ms=3200) for step in steps))
    has(only(output).read, runtime_ns=3_003_000_000)
    assert [warning[:10] for warning in output.warnings] == ["3 interim ", "4 further "]


def test_trims_are_named() -> None:
    found = only(parse(sample("fio/trim.json")))
    assert found.invalid == ("fio completed only trims (256), no reads or writes",)
    has(found.trim, ios=256, bytes=1 << 24)
    output = parse(sample("fio/trimwrite.json"))
    found = only(output)
    assert (found.invalid, known(found.write).ios, known(found.trim).ios) == ((), 256, 256)
    assert output.warnings == ("job 'both' trimmed 256 blocks in addition to its reads and writes",)
    (shown,) = json.loads(json.dumps(as_json(output)))["jobs"]
    assert (shown["trim"]["ios"], shown["read"]) == (256, None)


def test_the_row_of_all_clients_is_no_job_of_a_client_run() -> None:
    rows = [job(hostname="one"), job(hostname="two"), job(jobname="All clients", hostname="two")]
    output = parse(json.dumps({"fio version": "fio-3.7", "client_stats": rows}))
    assert [found.hostname for found in output.jobs] == ["one", "two"]
    assert output.warnings == Says("All clients")
    assert only(parsed(job(jobname="All clients"))).name == "All clients", "elsewhere it is one"
    whole = json.loads(sample("fio/client.txt"))
    assert len(parse(json.dumps(whole)).jobs) == 2
    whole["client_stats"] = whole["client_stats"][-1:]
    assert "found only the row 'All clients'" in str(refused(parse, json.dumps(whole)))
    for nothing in (document(jobs=[]), document(jobs=None, client_stats=[])):
        text = "<one> error: failed to setup shm segment\n" + json.dumps(nothing)
        assert "failed to setup shm segment" in str(refused(parse, text))


def test_global_options_of_each_server() -> None:
    """fio 3.39 has them as a list if there are several; each with the server's address."""
    text = sample("fio/client-3.39.json")
    output = parse(text)
    assert [output.version, *(job.hostname for job in output.jobs)] == ["fio-3.39", "/tmp/two", "/tmp/one"]
    own = {"rw": "read", "bs": "4k", "filename": "/tmp/x"}
    shared = {"ioengine": "psync", "size": "1M", "runtime": "200ms", "time_based": "1"}
    assert [job.options for job in output.jobs] == [shared | own] * 2
    whole = json.loads(text)
    whole["global options"][1] |= {"hostname": "other", "ioengine": "libaio"}
    whole["client_stats"][1] |= {"hostname": "other"}
    whole["client_stats"][0] |= {"hostname": "nobody"}
    first, second = parse(json.dumps(whole)).jobs
    assert first.options == own
    assert second.options["ioengine"] == "libaio" and "port" not in second.options


def test_messages_that_a_client_hears() -> None:
    for line, expected in (
        ("net      11292 client: got cmd op SERVER_START from /r/a.sock (pdu=0)", (BEGAN, "/r/a.sock")),
        ("net      4944  client: got cmd op SERVER_START from /r/a.sock (pdu=0)\r", (BEGAN, "/r/a.sock")),
        ("<vm> no newlinenet      7     client: removed </r/a b.sock>", (GONE, "/r/a b.sock")),
        ("net      11292 client: got cmd op TS from /r/a.sock (pdu=184056)", ("TS", "/r/a.sock")),
        ("net      11292 client: handle /r/a.sock", None),
        ("net      11292 client: connect to host /r/a.sock", None),
        ("client: host=/r/a.sock disconnected", None),
        ("<vm> rr4k: (g=0): rw=randrw, bs=(R) 4096B-4096B", None),
        ("", None),
    ):
        assert heard(line) == expected, line


CLIENT_LOG = """\
fio: set debug option net
net      15144 client: got cmd op TEXT from /r/b (pdu=128)
<vm> rr4k: (g=0): rw=randrw, bs=(R) 4096B-4096B, ioengine=psync, iodepth=1
net      15144 client: got cmd op START from /r/b (pdu=8)
net      15144 client: got cmd op START from /r/a (pdu=8)
net      15144 client: got cmd op TEXT from /r/a (pdu=77)
<vm> fio: file creation disallowed by allow_file_create=0
net      15144 client: got cmd op STOP from /r/a (pdu=8)
client </r/a>: exited with error 1
net      15144 client: removed </r/a>
net      15144 client: removed </r/c>
</r/c> Bad option <nosuchoption=3>
client: host=/r/b disconnected
net      15144 client: removed </r/b>
"""
"""fio 3.33's words, abridged: /r/a lacks its device, /r/b was killed in the middle, /r/c refused its job."""


def client_text(*rows: dict[str, Any]) -> str:
    whole = {"fio version": "fio-3.33", "client_stats": list(rows)}
    return f"{CLIENT_LOG}\n{json.dumps(whole, indent=2)}\n"


def test_answers_of_each_server() -> None:
    output = parse_client(client_text(job(hostname="/r/a"), job(jobname="All clients", hostname="/r/a")))
    a, b, c = (output.servers[name] for name in ("/r/a", "/r/b", "/r/c"))
    has(a, accepted=True, ended=True, said=("fio: file creation disallowed by allow_file_create=0",))
    assert (known(a.job).read is not None, known(a.job).invalid) == (True, ())
    has(b, accepted=True, ended=False, job=None, said=())
    has(c, accepted=False, ended=False, job=None, said=("Bad option <nosuchoption=3>",))
    assert output.warnings == ()
    several = parse_client(client_text(job(hostname="/r/a"), job(hostname="/r/a"))).servers["/r/a"].job
    has(several, invalid=("expected one job of each server, found 2",))
    for text in (client_text(), CLIENT_LOG):
        output = parse_client(text)
        assert all(server.job is None for server in output.servers.values())
        assert output.servers["/r/c"].said and output.warnings
    whole = client_text(job(hostname="/r/a"), job(hostname="/r/b")).encode()
    for noise in garbled(21, [whole], b'"{}[],:-eN0\\\x1b\n<>', 1000):
        parse_client(noise.decode("utf-8", "replace"))


def test_transport_damage_is_tolerated_with_a_warning() -> None:
    text = json.dumps(document(), indent=2)
    for sent, reported in (
        ("\ufeff" + text, "byte order mark"),
        (text.replace("\n", "\r\n"), "CRLF"),
        (text.replace("{", "\x1b[0m{\x1b[K"), "escape"),
        (text.replace('"a"', '"\x1b[31ma\t"'), None),
        ("\n \t" + text, None),
    ):
        output = parse(sent.encode())
        assert only(output).invalid == ()
        assert reported is None or output.warnings == Says(reported)
    output = parse(text.encode().replace(b'"a"', b'"\xff"'))
    assert only(output).name == "\N{REPLACEMENT CHARACTER}" and output.warnings
    assert only(parse(text.replace('"a"', '"\ud800"'))).invalid == ()


@real_outputs(lambda file: file.startswith("fio/"))
def test_real_outputs(row: dict[str, str]) -> None:
    text = (OUTPUTS / row["file"]).read_bytes()
    contains = row["contains"]
    expected = re.search(r"expect (\d+) (jobs|client_stats)", contains)
    if expected is None or expected[1] == "0":
        refused(parse, text)
        return
    output = parse(text)
    assert output.version == row["tool_version"]
    assert len(output.jobs) == int(expected[1]) - ('"All clients"' in contains)
    first = output.jobs[0]
    bad = any(word in contains for word in ("error=", "INTERRUPTED", "does not match"))
    assert bool(first.invalid) is bad
    for io, stated in ((first.read, "first_read_or_sent"), (first.write, "first_write_or_received")):
        key, _, value = row[stated].partition("=")
        if key == "absent" or value == "0" or (io is None and bad):
            assert io is None
        else:
            unit = {"bw_KiB": 1024, "bw_bytes": 1}[key]
            assert int(value) * unit <= known(io).bytes_per_s < (int(value) + 1) * unit
