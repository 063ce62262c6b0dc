"""The parser of fio's JSON: units, what makes a job invalid, and that no input makes it fall over."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from harness.model.errors import UsageError
from harness.parse.fio import BEGAN, GONE, FioJob, FioOutput, as_json, heard, parse, parse_client
from tests.unit.parsing import OUTPUTS, assert_refused, garbled, real_outputs, sample

IDLE = {"io_bytes": 0, "io_kbytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0}


INTERIM_BYTES = [724992, 1540096, 2363392, 2457600]
"""Read by the end of each document of fio/status-interval.json."""


def distribution(mean: float, percentiles: dict[str, int] | None = None) -> dict[str, Any]:
    moments = {"min": mean / 2, "max": mean * 10, "mean": mean, "stddev": mean / 4}
    return moments if percentiles is None else {**moments, "percentile": percentiles}


def direction(**changes: object) -> dict[str, Any]:
    """1000 I/Os of 4 KiB in 2 s, as fio 3 has it."""
    tail = {"50.000000": 190000, "99.000000": 400000, "99.900000": 900000}
    return {
        "io_bytes": 4096000,
        "io_kbytes": 4000,
        "bw_bytes": 2048000,
        "bw": 2000,
        "iops": 500.0,
        "runtime": 2000,
        "total_ios": 1000,
        "clat_ns": distribution(195000, tail),
        "lat_ns": distribution(200000),
        **changes,
    }


def job(**changes: object) -> dict[str, Any]:
    return {"jobname": "a", "error": 0, "read": direction(), "write": IDLE, **changes}


def document(*jobs: dict[str, Any], **changes: object) -> dict[str, Any]:
    return {"fio version": "fio-3.33", "jobs": list(jobs) or [job()], **changes}


def parsed(*jobs: dict[str, Any], **changes: object) -> FioOutput:
    return parse(json.dumps(document(*jobs, **changes)))


def only(output: FioOutput) -> FioJob:
    (found,) = output.jobs
    return found


def test_nanosecond_form() -> None:
    found = only(parsed())
    assert (found.name, found.error, found.invalid, found.write) == ("a", 0, (), None)
    assert found.read is not None
    assert (found.read.bytes, found.read.ios, found.read.runtime_ns) == (4096000, 1000, 2_000_000_000)
    assert found.read.bytes_per_s == 2048000
    assert found.read.latency.mean_ns == 200000
    assert found.read.latency.p99_9_ns == 900000
    assert found.percentiles_of == "clat"


def test_microsecond_form() -> None:
    old = {
        "io_bytes": 4000,
        "bw": 2000,
        "iops": 500,
        "runtime": 2000,
        "clat": distribution(195, {"50.000000": 190, "99.000000": 400, "99.900000": 900}),
        "lat": distribution(200),
    }
    output = parsed(job(read=old), **{"fio version": "fio-2.1.3"})
    found = only(output)
    assert found.read == only(parsed()).read
    assert (found.invalid, found.read_bins) == ((), {})
    assert any("IOPS times runtime" in warning for warning in output.warnings)


def test_version_that_contradicts_the_units_is_a_warning() -> None:
    output = parsed(**{"fio version": "fio-2.2.10"})
    assert only(output).invalid == ()
    assert any("unusual for this version" in warning for warning in output.warnings)


def test_total_latency_percentiles_and_bins_win_over_completion() -> None:
    both = {**distribution(200000, {"99.000000": 500000}), "bins": {"200192": 999, "500736": 1, "9": 0}}
    found = only(parsed(job(read=direction(lat_ns=both))))
    assert found.percentiles_of == "lat"
    assert found.read is not None
    assert (found.read.latency.p99_ns, found.read.latency.p50_ns) == (500000, None)
    assert found.read_bins == {200192: 999, 500736: 1}


def test_unmeasured_latency_is_unknown_not_zero() -> None:
    nothing = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "percentile": {"99.000000": 0}}
    found = only(parsed(job(read=direction(lat_ns=nothing, clat_ns=nothing), sync={"lat_ns": nothing})))
    assert found.read is not None
    assert (found.read.latency.mean_ns, found.read.latency.p99_ns) == (None, None)
    assert (found.percentiles_of, found.sync_latency, found.invalid) == (None, None, ())


def test_all_that_a_job_says() -> None:
    found = only(
        parsed(
            job(
                **{"job options": {"rw": "read"}},
                hostname="one",
                sync={"total_ios": 3, "lat_ns": distribution(5000, {"99.000000": 9000})},
            ),
            **{"global options": {"rw": "write", "bs": "4k"}},
        )
    )
    assert found.options == {"rw": "read", "bs": "4k"}
    assert found.hostname == "one"
    assert found.sync_latency is not None
    assert (found.sync_latency.mean_ns, found.sync_latency.p99_ns) == (5000, 9000)


def test_as_json() -> None:
    shown = as_json(parsed(job(sync={"lat_ns": distribution(5000)})))
    assert set(shown) == {"version", "jobs", "warnings"}
    (only_job,) = json.loads(json.dumps(shown))["jobs"]
    assert only_job["write"] is None
    assert only_job["invalid"] == []
    assert only_job["sync"]["latency_mean_ns"] == 5000
    read = only_job["read"]
    assert (read["bytes_per_s"], read["iops"], read["bytes"], read["ios"]) == (2048000, 500, 4096000, 1000)
    assert (read["latency_mean_ns"], read["latency_p50_ns"]) == (200000, 190000)
    assert (read["latency_p99_ns"], read["latency_p99_9_ns"]) == (400000, 900000)
    assert read["runtime_ns"] == 2_000_000_000


@pytest.mark.parametrize(
    ("changes", "reason", "still_read"),
    [
        ({"error": 5}, "error 5", True),
        ({"error": None}, "error is missing", True),
        ({"total_err": 3}, "3 I/O errors", True),
        ({"jobname": None}, "jobname is missing", True),
        ({"read": direction(bw_bytes=2_100_000)}, "read.bw_bytes", False),
        ({"read": direction(bw=1900)}, "read.bw ", False),
        ({"read": direction(iops=490)}, None, True),
        ({"read": direction(iops=480)}, "read.iops", False),
        ({"read": direction(io_bytes=None)}, "read.io_bytes is missing", False),
        ({"read": direction(runtime=None)}, "read.runtime is missing", False),
        ({"read": direction(total_ios=None)}, "read.total_ios is missing", False),
        ({"read": direction(runtime=0)}, "in 0 ms", False),
        ({"read": direction(runtime=1e-320)}, "in 0 ms", False),
        ({"read": direction(runtime=2**62)}, "2^63", False),
        ({"read": direction(io_bytes=0)}, "0 bytes", False),
        ({"read": direction(io_bytes=-4096000)}, "negative", False),
        ({"read": direction(io_bytes=2**63)}, "2^63", False),
        ({"read": direction(io_bytes=10**30)}, "2^63", False),
        ({"read": direction(io_bytes="4096000")}, "not a number", False),
        ({"read": direction(io_bytes=True)}, "not a number", False),
        ({"read": direction(io_bytes=[4096000])}, "not a number", False),
        ({"read": {}}, "read.io_bytes is missing", False),
        ({"read": 5}, "cannot be read", False),
        ({"read": IDLE}, "neither reads nor writes", False),
        ({"read": None, "write": None, "mixed": direction()}, "unified_rw_reporting", False),
        ({"write": {**IDLE, "bw": 100}}, "write has 0 bytes", True),
        ({"read": direction(lat_ns=distribution(-1.0))}, "read latency mean", True),
    ],
)
def test_invalid(changes: dict[str, object], reason: str | None, still_read: bool) -> None:
    found = only(parsed(job(**changes)))
    assert (found.read is not None) is still_read
    if reason is None:
        assert found.invalid == ()
    else:
        assert any(reason in problem for problem in found.invalid), found.invalid


def test_rounding_of_small_figures_is_no_contradiction() -> None:
    small = direction(io_bytes=1474560, io_kbytes=1440, bw_bytes=10356, bw=10, iops=2.5, runtime=142386)
    assert only(parsed(job(read={**small, "total_ios": 360}))).invalid == ()
    old = {"io_bytes": 1, "bw": 1900, "iops": 1000, "runtime": 1, "total_ios": 1, "lat": distribution(9)}
    assert only(parsed(job(read=old))).invalid == ()


def test_one_bad_job_leaves_the_others() -> None:
    bad, good = parsed(job(jobname="bad", read="?"), job(jobname="good")).jobs
    assert (bad.name, bad.read, bool(bad.invalid)) == ("(job 1)", None, True)
    assert (good.name, good.invalid) == ("good", ())


@pytest.mark.parametrize("figure", ["nan", "-nan", "NaN", "inf", "-inf", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("place", ["io_bytes", "bw", "runtime", "lat_ns"])
def test_not_finite_is_an_invalid_figure_with_a_name(figure: str, place: str) -> None:
    mark: object = "@"
    if place == "lat_ns":
        mark = {**distribution(200000), "mean": "@"}
    good = job(jobname="nan, inf")
    text = json.dumps(document(job(read=direction(**{place: mark})), good), indent=1).replace('"@"', figure)
    bad, other = parse(text).jobs
    assert bad.name == ("(job 1)" if figure == "1e400" else "a")
    assert (other.name, other.invalid) == ("nan, inf", ())
    assert bad.invalid
    if place == "lat_ns" and figure != "1e400":
        assert bad.read is not None
        assert (bad.read.latency.mean_ns, bad.read.latency.max_ns) == (None, 2_000_000)
    else:
        assert bad.read is None


def test_not_finite_where_nobody_looks_is_a_warning() -> None:
    text = json.dumps(document(job(read=direction(bw_dev="@")))).replace('"@"', "-nan")
    output = parse(text)
    assert only(output).invalid == ()
    assert any("-nan" in warning for warning in output.warnings)


def test_text_around_is_kept_as_a_warning() -> None:
    text = (
        'a disk of 3.5" {not json}, {"log": 1}\n'
        + json.dumps(document(), indent=2)
        + "\nDisk stats: \x1b[1mvda\n"
    )
    output = parse(text)
    assert only(output).invalid == ()
    before, after = (w for w in output.warnings if w.startswith("text "))
    assert "not json" in before
    assert "Disk stats" in after
    assert "\x1b" not in "".join(output.warnings)


@pytest.mark.parametrize(
    "line", ["{}\nfio: terminating on signal 2\n", "\nfio: terminating on signal 15\n{}"]
)
def test_interrupted_run_is_invalid_though_error_is_zero(line: str) -> None:
    found = only(parse(line.replace("{}", json.dumps(document()))))
    assert found.error == 0
    assert any("interrupted" in problem for problem in found.invalid)


def test_only_the_first_of_several_documents_counts() -> None:
    output = parse(
        "\n".join(json.dumps(document(job(jobname=name))) for name in ("first", "second", "third"))
    )
    assert only(output).name == "first"
    assert any(warning.startswith("2 further fio documents") for warning in output.warnings)


def test_the_last_of_a_runs_interim_documents_counts() -> None:
    text = sample("fio/status-interval.json")
    output = parse(text)
    read = only(output).read
    assert read is not None
    assert (read.bytes, read.ios, read.runtime_ns) == (
        INTERIM_BYTES[-1],
        INTERIM_BYTES[-1] // 4096,
        3_001_000_000,
    )
    assert output.warnings == (
        "3 interim documents of the same run (--status-interval) were left out: the last counts",
    )
    documents = [json.loads(part + "\n}") for part in text.split("\n}\n")[:-1]]
    assert [d["jobs"][0]["read"]["io_bytes"] for d in documents] == INTERIM_BYTES
    # A run behind it is another run; only the first counts.
    later = [{**d, "timestamp_ms": d["timestamp_ms"] + 4000} for d in documents]
    output = parse("\n".join(map(json.dumps, documents + later)))
    assert only(output).read == read
    assert [warning[:10] for warning in output.warnings] == ["3 interim ", "4 further "]
    # So it is without ms, and without times at all.
    for without in (("timestamp_ms",), ("timestamp_ms", "timestamp")):
        timeless = [{key: value for key, value in d.items() if key not in without} for d in documents]
        assert only(parse("\n".join(map(json.dumps, timeless)))).read == read


def progress(written_ms: int, elapsed_s: int, runtime_ms: int) -> str:
    moved = runtime_ms * 4096
    figures = {"io_bytes": moved, "bw_bytes": 4096000, "runtime": runtime_ms, "total_ios": runtime_ms}
    return json.dumps(document(job(read=figures, elapsed=elapsed_s), timestamp_ms=1795299600000 + written_ms))


@pytest.mark.parametrize(
    ("later", "runtime_ms"),
    [
        ((1000, 2, 1799), 1799),  # of the same run
        ((2200, 4, 999), 999),  # the same, after its ramp_time
        ((1300, 1, 800), 796),  # the same job again
        ((9000, 2, 1799), 796),  # again and for longer
    ],
)
def test_interim_documents_are_distinguished_from_repeats(
    later: tuple[int, int, int], runtime_ms: int
) -> None:
    read = only(parse(progress(0, 1, 796) + progress(*later))).read
    assert read is not None
    assert read.runtime_ns == runtime_ms * 1_000_000


def test_trims_are_named() -> None:
    found = only(parse(sample("fio/trim.json")))
    assert found.invalid == ("only trims were completed (256), and no reads or writes",)
    assert found.trim is not None
    assert (found.trim.ios, found.trim.bytes) == (256, 1 << 24)
    output = parse(sample("fio/trimwrite.json"))
    found = only(output)
    assert found.invalid == ()
    assert found.write is not None
    assert (found.write.ios, found.trim and found.trim.ios) == (256, 256)
    assert output.warnings == ("job 'both' trimmed 256 blocks besides its reads and writes",)
    (shown,) = json.loads(json.dumps(as_json(output)))["jobs"]
    assert (shown["trim"]["ios"], shown["read"]) == (256, None)


def test_the_row_of_all_clients_alone_is_no_job() -> None:
    whole = json.loads(sample("fio/client.txt"))
    assert len(parse(json.dumps(whole)).jobs) == 2
    whole["client_stats"] = whole["client_stats"][-1:]
    assert_refused(parse, json.dumps(whole), "found only the row 'All clients'")


def test_a_cut_document_may_have_been_the_last_of_the_run() -> None:
    text = sample("fio/status-interval.json")
    second = text.index("\n}\n{") + 3
    for end in (second + 1, second + 8, second + 400, len(text) - 3):
        (problem,) = only(parse(text[:end])).invalid
        assert "after it is cut" in problem
    assert only(parse(text[:second])).invalid == (), "nothing tells that there was more"
    assert any("2 s to go" in problem for problem in only(parsed(job(eta=2))).invalid)
    assert only(parsed(job(eta=2**31 - 1))).invalid == ()


def test_the_first_document_of_a_list_counts() -> None:
    output = parse(json.dumps([document(), document(job(jobname="b"))]))
    assert (only(output).name, only(output).invalid) == ("a", ())
    assert any("1 further fio documents" in warning for warning in output.warnings)


def test_document_behind_a_cut_one_is_found() -> None:
    whole = json.dumps(document())
    assert only(parse(whole[:-30] + "\n" + whole)).invalid == ()


def test_client_run() -> None:
    rows = [job(hostname="one"), job(hostname="two"), job(jobname="All clients", hostname="two")]
    output = parse(json.dumps({"fio version": "fio-3.7", "client_stats": rows}))
    assert [found.hostname for found in output.jobs] == ["one", "two"]
    assert any("All clients" in warning for warning in output.warnings)


def test_global_options_of_each_server() -> None:
    """fio 3.39 has them as a list if there are several; each with the server's address."""
    output = parse(sample("fio/client-3.39.json"))
    assert output.version == "fio-3.39"
    assert [job.hostname for job in output.jobs] == ["/tmp/two", "/tmp/one"]
    for job in output.jobs:
        assert job.options == {
            "ioengine": "psync",
            "size": "1M",
            "runtime": "200ms",
            "time_based": "1",
            "rw": "read",
            "bs": "4k",
            "filename": "/tmp/x",
        }


def test_global_options_of_another_server_are_not_the_job_s() -> None:
    whole = json.loads(sample("fio/client-3.39.json"))
    whole["global options"][1] |= {"hostname": "other", "ioengine": "libaio"}
    whole["client_stats"][1] |= {"hostname": "other"}
    whole["client_stats"][0] |= {"hostname": "nobody"}
    first, second = parse(json.dumps(whole)).jobs
    assert first.options == {"rw": "read", "bs": "4k", "filename": "/tmp/x"}
    assert second.options["ioengine"] == "libaio" and "port" not in second.options


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("net      11292 client: got cmd op SERVER_START from /r/a.sock (pdu=0)", (BEGAN, "/r/a.sock")),
        ("net      4944  client: got cmd op SERVER_START from /r/a.sock (pdu=0)\r", (BEGAN, "/r/a.sock")),
        ("<vm> no newlinenet      7     client: removed </r/a b.sock>", (GONE, "/r/a b.sock")),
        ("net      11292 client: got cmd op TS from /r/a.sock (pdu=184056)", ("TS", "/r/a.sock")),
        ("net      11292 client: handle /r/a.sock", None),
        ("net      11292 client: connect to host /r/a.sock", None),
        ("client: host=/r/a.sock disconnected", None),
        ("<vm> rr4k: (g=0): rw=randrw, bs=(R) 4096B-4096B", None),
        ("", None),
    ],
)
def test_messages_that_a_client_hears(line: str, expected: tuple[str, str] | None) -> None:
    assert heard(line) == expected


CLIENT_LOG = """\
fio: set debug option net
net      15144 client: added </r/a>
net      15144 client: got cmd op PROBE from /r/a (pdu=112)
net      15144 client: got cmd op TEXT from /r/b (pdu=128)
<vm> rr4k: (g=0): rw=randrw, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=psync, iodepth=1
net      15144 client: got cmd op START from /r/b (pdu=8)
net      15144 client: got cmd op START from /r/a (pdu=8)
net      15144 client: got cmd op TEXT from /r/a (pdu=66)
<vm> rr4k: Laying out IO file (1 file / 32MiB)
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
    document = {"fio version": "fio-3.33", "client_stats": list(rows)}
    return f"{CLIENT_LOG}\n{json.dumps(document, indent=2)}\n"


def test_answers_of_each_server() -> None:
    output = parse_client(client_text(job(hostname="/r/a"), job(jobname="All clients", hostname="/r/a")))
    a, b, c = (output.servers[name] for name in ("/r/a", "/r/b", "/r/c"))
    assert (a.accepted, a.ended, a.said) == (
        True,
        True,
        ("fio: file creation disallowed by allow_file_create=0",),
    )
    assert a.job is not None
    assert (a.job.read is not None, a.job.invalid) == (True, ())
    assert (b.accepted, b.ended, b.job, b.said) == (True, False, None, ())
    assert (c.accepted, c.ended, c.job, c.said) == (False, False, None, ("Bad option <nosuchoption=3>",))
    assert output.warnings == ()


def test_a_server_with_several_jobs_has_an_invalid_one() -> None:
    found = parse_client(client_text(job(hostname="/r/a"), job(hostname="/r/a"))).servers["/r/a"].job
    assert found is not None
    assert found.invalid == ("expected one job of each server, found 2",)


@pytest.mark.parametrize("text", [client_text(), CLIENT_LOG])
def test_a_client_without_jobs_still_tells_why(text: str) -> None:
    output = parse_client(text)
    assert all(server.job is None for server in output.servers.values())
    assert output.servers["/r/c"].said
    assert output.warnings


def test_garbled_client_output() -> None:
    whole = client_text(job(hostname="/r/a"), job(hostname="/r/b")).encode()
    for text in garbled(21, [whole], b'"{}[],:-eN0\\\x1b\n<>', 1000):
        parse_client(text.decode("utf-8", "replace"))


def test_a_job_of_that_name_outside_client_runs_is_a_job() -> None:
    assert only(parsed(job(jobname="All clients"))).name == "All clients"


@pytest.mark.parametrize("changes", [{"jobs": []}, {"jobs": None, "client_stats": []}])
def test_no_job_is_refused_with_what_fio_said(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="failed to setup shm segment"):
        parse("<one> error: failed to setup shm segment\n" + json.dumps(document(**changes)))


def test_transport_damage_is_tolerated_with_a_warning() -> None:
    text = json.dumps(document(), indent=2)
    for damaged, reported in (
        ("\ufeff" + text, "byte order mark"),
        (text.replace("\n", "\r\n"), "CRLF"),
        (text.replace("{", "\x1b[0m{\x1b[K"), "escape"),
        (text.replace('"a"', '"\x1b[31ma\t"'), None),
        ("\n \t" + text, None),
    ):
        output = parse(damaged.encode())
        assert only(output).invalid == ()
        assert reported is None or any(reported in warning for warning in output.warnings)
    output = parse(text.encode().replace(b'"a"', b'"\xff"'))
    assert only(output).name == "\N{REPLACEMENT CHARACTER}"
    assert output.warnings
    assert only(parse(text.replace('"a"', '"\ud800"'))).invalid == ()


def test_options_that_contradict_the_figures_are_a_warning() -> None:
    output = parsed(job(write=direction(), **{"job options": {"rw": "randread"}}))
    assert any("counts writes" in warning for warning in output.warnings)


def test_missing_version_is_a_warning() -> None:
    output = parsed(**{"fio version": None})
    assert output.version is None
    assert any("version" in warning for warning in output.warnings)


@real_outputs(lambda file: file.startswith("fio/"))
def test_real_outputs(row: dict[str, str]) -> None:
    text = (OUTPUTS / row["file"]).read_bytes()
    expected = re.search(r"expect (\d+) (jobs|client_stats)", row["contains"])
    if expected is None or expected[1] == "0":
        with pytest.raises(UsageError):
            parse(text)
        return
    output = parse(text)
    assert output.version == row["tool_version"]
    has_sum = '"All clients"' in row["contains"]
    assert len(output.jobs) == int(expected[1]) - has_sum

    bad = (
        "error=" in row["contains"] or "INTERRUPTED" in row["contains"] or "does not match" in row["contains"]
    )
    assert bool(output.jobs[0].invalid) is bad
    first = output.jobs[0]
    for io, stated in (
        (first.read, row["first_read_or_sent"]),
        (first.write, row["first_write_or_received"]),
    ):
        key, _, value = stated.partition("=")
        if key == "absent" or value == "0" or (io is None and bad):
            assert io is None
        else:
            assert io is not None
            unit = {"bw_KiB": 1024, "bw_bytes": 1}[key]
            assert int(value) * unit <= io.bytes_per_s < (int(value) + 1) * unit
