"""A run on "machines" with a router between them that is asked by SNMP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.lab.inside import nas
from tests.lab.inside.kernel import RESULTS, harness, measured, unchanged
from tests.lab.inside.over_ssh import ROUTED, SHORT, machines


def a_switch_that_is_asked() -> None:
    """The router by SNMP alone: the cell's octets, drops with their interface, and no secret left."""
    nas.put_a_router_between()
    nas.await_addresses(nas.ROUTED)
    hop, community = f"snmp://{nas.ROUTER}/left0,right0", "not-for-all-7"
    words = ("run", *ROUTED, *SHORT, "--repeats=1", "--workload=rand-read-4k", "--ipsec=off", f"--hop={hop}")
    with nas.snmpd(community):
        says: tuple[str, ...] = ("could not be reached: Timeout: No Response", "defCommunity")
        harness("doctor", f"--hop={hop}", status=2, says=says)
        settings = Path.home() / ".snmp"
        settings.mkdir(mode=0o700)
        (settings / "snmp.conf").write_text(f"defCommunity {community}\n", encoding="utf-8")
        with unchanged("a switch"):
            says = (f"hop   {hop}: answers SNMP: Linux ", "interfaces: left0 (")
            print(harness("doctor", f"--hop={hop}", says=says))
            says = ("expected the interface left7", "found lo, left0, right0")
            harness("doctor", f"--hop=snmp://{nas.ROUTER}/left7", status=2, says=says)
            with nas.frames_that_nobody_takes(nas.ROUTED):
                (record,) = measured(*words, "--runtime=6s").values()
            counted_at_it(record)
            (short,) = measured(*words, "--runtime=0.3s").values()
            # On a busy machine even so short a cell is watched for long enough, for fio starts while it is.
            lost = short["telemetry"]["lost_hops"]
            assert not lost or "try --runtime " in lost["hop"], short
    for file in RESULTS.rglob("*"):
        assert not file.is_file() or community.encode() not in file.read_bytes(), file


def counted_at_it(record: dict[str, Any]) -> None:
    telemetry = record["telemetry"]
    assert record["status"] == "ok" and not telemetry["lost_hops"], record
    carried = {i["interface"]: i for i in telemetry["interfaces"] if i["host"] == "hop"}
    ends = {i["host"]: i for i in telemetry["interfaces"] if i["host"] != "hop"}
    assert set(carried) == {"left0", "right0"}, telemetry
    received, sent = carried["right0"]["rx_bytes"], carried["left0"]["tx_bytes"]
    moved = ends["target"]["tx_bytes"]
    # The questions are counted as well, and what belongs to no cell but passes just before and after it.
    counted = f"target sent {moved}, router received {received} and sent {sent} bytes"
    # The ends are read seconds before and after the hop: a few frames of theirs alone are not the cell's.
    assert moved - 10_000 <= min(received, sent) and max(received, sent) < 1.02 * moved + 200_000, counted
    dropped = carried["left0"]["drops"]
    assert dropped > 100 and carried["right0"]["drops"] == 0, telemetry
    assert f"packets dropped: {dropped} by the hop's interface left0" in record["warnings"], record
    print(f"a switch: carried {sent} bytes of {moved}, dropped {dropped}")


if __name__ == "__main__":
    with machines():
        a_switch_that_is_asked()
