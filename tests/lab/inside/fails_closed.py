"""A protection fails closed, and so does its proof.

The first argument is one of these, the second what protects the path (``aes128gcm16``):

``fail_closed``: both charons are killed and the SAs deleted under a disk at work, and not one segment leaves
in clear. At the end the fail-closed policy is taken away as well, to show that it was what held, and that the
captures would have seen what they did not see.

``gravest``, ``some``, ``one`` and ``three``: whatever protects a cell, or proves that it was protected,
breaks while the cell is measured, one thing or three at once, at its beginning, in its middle or at its end.
No cell is ok in which an independent capture saw one segment in clear.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from harness.hosts import PRIVATE, Host
from harness.hosts.journal import Journal
from harness.hosts.undo import UndoStep, carry_out
from harness.model import ENDS, PROTECTION_OFF, Cell, Column, Record, Status
from harness.model.errors import HarnessError
from harness.network.links import LinkPath
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import overlay
from harness.protection.ipsec.kind import IpsecDriver
from harness.protection.xfrm import IpsecFailClosed
from harness.results.events import Event
from harness.results.store import RunFolder
from harness.runs import executor
from harness.runs.cells import CellComposer
from harness.runs.measure import ConnectedLun
from harness.storage.chap import Secrets
from harness.storage.iscsi import initiator
from tests.lab.cli import is_sampled
from tests.lab.inside.kernel import arguments, processes, sh, wait_for

STALL_S = 4.0
BOUND_S = 240.0
PORTAL = "tcp port 3260"
WORKLOADS = ("seq-read-256k", "rand-write-4k")
RUNTIME_S = 2.0
TRIES = 4


def emit(_event: Event) -> None:
    """Nobody follows this run."""


def ends(path: LinkPath) -> tuple[tuple[Host, str, str], ...]:
    """The host of each end, its interface and its address."""
    return (
        (path.initiator, path.initiator_iface, path.initiator_address),
        (path.target, path.target_iface, path.target_address),
    )


@contextlib.contextmanager
def clear_segments(host: Host, iface: str) -> Iterator[Path]:
    """A capture of its own at one end: a line for each segment of the portal that is sent in clear."""
    argv = ["tcpdump", "-i", iface, "-Q", "out", "-p", "-n", "-l", "--immediate-mode", PORTAL]
    file, log = Path(f"/root/clear-{iface}"), Path(f"/root/clear-{iface}.log")
    for each in (file, log):
        each.write_text("", encoding="utf-8")

    def is_listening() -> bool:
        return "listening on" in log.read_text(encoding="utf-8")

    with host.daemon(argv, log=log, output=file, deadline_s=20, ready=is_listening):
        yield file


@contextlib.contextmanager
def independently(path: LinkPath) -> Iterator[Callable[[], list[str]]]:
    """Captures at both ends that nothing of the harness's knows of: the lines of both until now."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(clear_segments(host, iface)) for host, iface, _ in ends(path)]
        yield lambda: [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def cleartext_seen(connected_lun: ConnectedLun) -> int:
    """What the harness's own captures have seen in clear since they were last asked, of both ends."""
    return sum(seen.cleartext for seen in connected_lun.up.watched[0].capture.look())


def kill_both(which: Callable[[int, str], bool]) -> None:
    killed = [pid for pid, name in processes().items() if which(pid, name)]
    assert len(killed) == 2, processes()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)


def kill_charons() -> None:
    kill_both(lambda _, name: name.startswith("charon"))


def delete_states(host: Host) -> None:
    for line in host.run(["ip", "xfrm", "state", "list", "nokeys"]).stdout.split("\nsrc "):
        words = line.removeprefix("src ").split()
        if "spi" in words:
            state = ["src", words[0], "dst", words[2], "proto", "esp", "spi", words[words.index("spi") + 1]]
            host.run(["ip", "xfrm", "state", "delete", *state])
    assert not host.run(["ip", "xfrm", "state", "list", "nokeys"]).stdout


def delete_policies_of_charon(host: Host, path: LinkPath) -> None:
    """Leave the fail-closed policy alone, as if somebody had flushed all that charon had installed."""
    addresses = (path.initiator_address, path.target_address)
    for source, destination in itertools.permutations(addresses):
        for direction in ("in", "out", "fwd"):
            selector = ["src", f"{source}/32", "dst", f"{destination}/32", "dir", direction]
            host.run(["ip", "xfrm", "policy", "delete", *selector], check=False)
    left = host.run(["ip", "xfrm", "policy"]).stdout
    assert "tmpl" not in left and "action block" in left, left


def position(process: subprocess.Popen[bytes]) -> str:
    """How far dd has read, by the kernel's account of its open file."""
    return Path(f"/proc/{process.pid}/fdinfo/0").read_text(encoding="utf-8").split()[1]


def assert_nothing_in_clear(stack: contextlib.ExitStack, connected_lun: ConnectedLun) -> None:
    path = connected_lun.path
    hosts = (path.initiator, path.target)
    lines = stack.enter_context(independently(path))
    argv = ["dd", f"if={connected_lun.disk.device}", "of=/dev/null", "bs=4k", "iflag=direct"]
    reader = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stack.callback(reader.kill)
    wait_for(lambda: position(reader) != "0", "the first block", deadline_s=20)
    assert cleartext_seen(connected_lun) == 0

    kill_charons()
    for host in hosts:
        delete_states(host)
    time.sleep(0.5)  # what had arrived is read by then
    before = position(reader)
    time.sleep(STALL_S)
    assert reader.poll() is not None or position(reader) == before, "without SAs nothing may move"
    for host in hosts:
        delete_policies_of_charon(host, path)
    time.sleep(STALL_S)
    assert not lines(), lines()
    assert cleartext_seen(connected_lun) == 0

    began = time.monotonic()
    reader.wait(timeout=BOUND_S)
    print(f"I/O failed after {2 * STALL_S + time.monotonic() - began:.1f} s")
    assert reader.returncode != 0, "the read fails"
    assert not lines(), lines()

    # The other way round: without the fail-closed policy the initiator's next attempt to connect goes out in
    # clear.
    for role, host in zip(ENDS, hosts, strict=True):
        fail_closed = IpsecFailClosed(role, path.initiator_address, path.target_address, path.port)
        assert carry_out(fail_closed.undo(), host.run).problems == []
    wait_for(lambda: bool(lines()), "cleartext once the fail-closed policy is gone", deadline_s=30)
    assert cleartext_seen(connected_lun) > 0


# The matrix


def kill_captures(_lane: ConnectedLun, _composer: CellComposer) -> None:
    """Those of the harness's, which write to a pipe or file and not to a terminal."""
    kill_both(lambda pid, name: name == "tcpdump" and "-w" in arguments(pid))


def rekey(connected_lun: ConnectedLun, composer: CellComposer) -> None:
    """charon replaces the security associations; not if it is not there any more."""
    with contextlib.suppress(HarnessError):
        kind = composer._paths._kinds["aes128gcm16"]
        assert isinstance(kind, IpsecDriver)
        charons = kind.daemons._charons
        charons["charon-initiator"].ask(
            "rekey", {"child": f"harness-{composer.plan.tag}-{connected_lun.path.index}"}
        )


def flush(what: str) -> Callable[[ConnectedLun, CellComposer], None]:
    def at_both_ends(connected_lun: ConnectedLun, _composer: CellComposer) -> None:
        for host in (connected_lun.path.initiator, connected_lun.path.target):
            host.run(["ip", "xfrm", what, "flush"])

    return at_both_ends


def interface_gone(connected_lun: ConnectedLun, _composer: CellComposer) -> None:
    """That of WireGuard or MACsec, at both ends."""
    for host, iface, _ in ends(connected_lun.path):
        host.run(["ip", "link", "del", "dev", iface])


ROOM = "harness.protection.wireguard"


def peer_gone(connected_lun: ConnectedLun, _composer: CellComposer) -> None:
    """WireGuard's, at the initiator: another takes its place, and what it had counted is gone with it."""
    path = connected_lun.path
    words = {"address": "", "port": 1, "allowed": path.target_address, "public_key": os.urandom(32).hex()}
    overlay.ask(
        path.initiator, "peer", room=ROOM, program=overlay.PROGRAM, interface=path.initiator_iface, **words
    )


def addresses_on_the_link(connected_lun: ConnectedLun, composer: CellComposer) -> None:
    """The worst that can be: no fail-closed policy, no interface, and the portal's addresses on the link
    itself."""
    flush("policy")(connected_lun, composer)
    interface_gone(connected_lun, composer)
    for (host, iface, _), (_, _, address) in zip(
        ends(connected_lun.link), ends(connected_lun.path), strict=True
    ):
        host.run(["ip", "address", "add", f"{address}/30", "dev", iface])


Fault = Callable[[ConnectedLun, CellComposer], None]
FAULTS: dict[str, Fault] = {
    # In this order, if there are several: what would see it goes first.
    "tcpdump killed": kill_captures,
    "rekeyed": rekey,
    "charon killed": lambda _lane, _composer: kill_charons(),
    "SA flushed": flush("state"),
    "policy flushed": flush("policy"),
}
SEVERED = ("charon killed", "SA flushed")
"""What nothing gets through after, so that a session cannot end."""
FAULTS_OF_INTERFACES: dict[str, Fault] = {
    "tcpdump killed": kill_captures,
    "interface gone": interface_gone,
    "addresses on the link": addresses_on_the_link,
}
FAULTS_OF_WIREGUARD: dict[str, Fault] = {**FAULTS_OF_INTERFACES, "peer gone": peer_gone}
MOMENTS = {"beginning": 0.0, "middle": 0.5, "end": 0.9, "after": None}
"""As parts of the time for which fio moves data; None: the cell has been measured, its column is still up."""

ALL = frozenset({*FAULTS, *FAULTS_OF_WIREGUARD})
HOW = {
    "gravest": (1, (("middle",),), {"SA flushed", "policy flushed"}),
    "some": (1, (("middle",), ("after",)), ALL),
    "one": (1, (tuple(MOMENTS),), ALL),
    "three": (3, (tuple(MOMENTS),), ALL),
}
"""How many faults at once, at which moments (one combination after the other takes these in turn), and which
faults."""

HARMLESS = {"rekeyed", "charon killed"}
"""Neither lets anything out, nor keeps the cell from being proved."""


def at(pool: Executor, connected_lun: ConnectedLun, part: float, act: Callable[[], None]) -> Future[bool]:
    """Act when so much of the time is over for which fio moves data; whether it was not over afterwards."""
    stat = Path(connected_lun.disk.sysfs, "stat")
    before = stat.read_text(encoding="utf-8")

    def wait() -> bool:
        wait_for(lambda: stat.read_text(encoding="utf-8") != before, "fio's first I/O", deadline_s=60)
        began = time.monotonic()
        time.sleep(part * RUNTIME_S)
        act()
        return time.monotonic() - began < RUNTIME_S

    return pool.submit(wait)


def broken(
    composer: CellComposer, cell: Cell, faults: Sequence[Fault], part: float | None
) -> tuple[Record, int, bool]:
    """Measure a cell under which these things break: what became of it, how many segments were in clear, and
    whether they broke in time."""
    (connected_lun,) = composer.column(cell.column).connected_luns

    def break_it() -> None:
        for fault in faults:
            fault(connected_lun, composer)

    with independently(connected_lun.link) as lines, ThreadPoolExecutor(1) as pool:
        broke = None if part is None else at(pool, connected_lun, part, break_it)
        composer.record(cell, 0)
        in_time = broke is None or broke.result()
        if broke is None:
            break_it()
        if cell.column in composer._columns:
            # Then it was ok: what its own captures see until now may still speak against it.
            undo = lingering if part is None else IpsecFailClosed.undo
            with mock.patch.object(IpsecFailClosed, "undo", undo):
                composer.take_down(cell.column)
        in_clear = len(lines())
    records = {(each.workload.name, each.repeat): each for each in composer.folder.load_records()}
    return records[cell.workload, cell.repeat], in_clear, in_time


LINGER_S = 3
"""TCP sends again about every second what was not acknowledged."""


def lingering(
    self: IpsecFailClosed, *, usual: Callable[[IpsecFailClosed], tuple[UndoStep, ...]] = IpsecFailClosed.undo
) -> tuple[UndoStep, ...]:
    """Take the fail-closed policy down, and leave the link as it is for some time."""
    return (*usual(self), UndoStep(("sleep", str(LINGER_S))))


LONGEST_STILL_S = 0.5
"""Half of what a session of ``faster`` waits for an answer."""


@contextlib.contextmanager
def stood_still() -> Iterator[list[float]]:
    """For how long at a time this kernel did nothing while the context lasted: the last is the longest."""
    longest_s, end = [0.0], threading.Event()

    def look() -> None:
        last = time.monotonic()
        while not end.wait(0.05):
            now = time.monotonic()
            longest_s.append(max(longest_s[-1], now - last - 0.05))
            last = now

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield longest_s
    finally:
        end.set()
        looking.join()


def require_expected(record: Record, in_clear: int, faults: set[str], moment: str, what: str) -> None:
    """What is to become of a cell under which these things broke at that moment."""
    if faults <= HARMLESS:
        assert record.status is Status.OK and not in_clear, what
        assert record.proof is not None
        assert is_sampled(record.proof), record.proof
        if "rekeyed" in faults and moment not in ("end", "after"):
            assert record.proof.rekeys >= 1, record.proof
    if moment == "after" and faults <= {*SEVERED, "interface gone", "peer gone"}:
        assert not in_clear, f"{what}: what the fail-closed policy kept in left when it was taken down"
    noticed = {"tcpdump killed", "addresses on the link"} & faults
    lost = {"SA flushed", "interface gone", "peer gone"} & faults
    if noticed or (lost and moment not in ("end", "after")):
        assert record.status is not Status.OK, what
    if faults == {"peer gone"} and moment not in ("end", "after"):
        assert "the counters of WireGuard at the initiator went backwards" in (record.reason or ""), what
    if {"policy flushed", "addresses on the link"} & faults and moment != "end":
        assert in_clear, f"{what}: nothing left in clear, so nothing was tested"


def matrix(
    composer: CellComposer,
    column: Column,
    at_once: int,
    in_turn: Sequence[Sequence[str]],
    wanted: Collection[str],
) -> None:
    """Each combination of so many faults at its moments, and before them a cell that nothing breaks."""
    known = FAULTS_OF_WIREGUARD if "wireguard" in column.protection else FAULTS_OF_INTERFACES
    known = FAULTS if column.ipsec != PROTECTION_OFF else known
    repeats, judged, outcomes = Counter[str](), Counter[bool](), Counter[tuple[str, bool]]()
    combinations = list(itertools.combinations([name for name in known if name in wanted], at_once))
    if known is FAULTS and wanted is ALL and SEVERED not in combinations:
        combinations.append(SEVERED)
    workloads = itertools.cycle(WORKLOADS)
    for faults, moments in zip([(), *combinations], itertools.cycle(in_turn), strict=False):
        for moment in moments if faults else [""]:
            part = MOMENTS.get(moment, 0.0)
            workload = next(workloads)
            for left in reversed(range(TRIES)):
                repeats[workload] += 1
                cell = Cell(column=column, workload=workload, repeat=repeats[workload])
                began = time.monotonic()
                with stood_still() as still_s:
                    record, in_clear, in_time = broken(composer, cell, [known[name] for name in faults], part)
                what = f"{moment:9} {', '.join(faults) or 'nothing'}"
                reason = f": {record.reason}" if record.reason else ""
                took = f"{in_clear:5} in clear, {time.monotonic() - began:.0f} s"
                print(f"{what:60} {record.status:7} {took}{reason}"[:400], flush=True)
                outcomes[str(record.status), bool(in_clear)] += 1
                assert not (in_clear and record.status is Status.OK), what
                # On a busy machine it may have broken too late, or a session may have heard nothing for too
                # long.
                was_late = not (in_time or moment == "end") or still_s[-1] >= LONGEST_STILL_S
                if not was_late:
                    break
                print(f"{what}: {'again' if left else 'not judged'}, for the machine was late", flush=True)
            judged[was_late] += 1
            if not was_late:
                require_expected(record, in_clear, set(faults), moment, what)
    assert judged[False] > judged[True], f"the machine was late too often: {judged}"
    total = sum(outcomes.values())
    leaky = sum(count for (_, was_in_clear), count in outcomes.items() if was_in_clear)
    ok = outcomes[Status.OK, True]
    print(f"{total} cells, {leaky} of them with cleartext on the link, of which ok: {ok}")


def faster(
    chap_user: str,
    secrets: Secrets | None,
    *,
    usual: Callable[[str, Secrets | None], str] = initiator.configuration,
) -> str:
    """open-iscsi's configuration with which a session without an answer fails in 3 s instead of 20."""
    names = (
        *(f"conn[0].timeo.{name}" for name in ("noop_out_interval", "noop_out_timeout", "logout_timeout")),
        *("session.timeo.replacement_timeout", "session.err_timeo.abort_timeout"),
        "session.err_timeo.lu_reset_timeout",
    )
    return usual(chap_user, secrets) + "".join(f"node.{name} = 1\n" for name in names)


def main(what: str, protection: str = "aes128gcm16") -> None:
    runtime = "1s" if what == "policy" else f"{RUNTIME_S}s"
    request = RunRequest(
        links=("wired",), protect=(protection,), repeats=1, size="32M", runtime=runtime, probes=False
    )
    plan = make_plan(request)
    (column,) = (column for column in plan.columns if column.protection)
    folder = RunFolder(Path("/root/run"))
    folder.path.mkdir()
    journal = Journal(Path("/root/journal.jsonl"))
    executor.mount_private()
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(executor.hosts(plan, folder, lambda _: None))
        executor.prepare(plan, hosts)
        composer = CellComposer(plan, folder, emit, hosts=hosts, journal=journal, private=PRIVATE)
        if what != "policy":
            initiator.configuration = faster
        stack.enter_context(composer.shared())
        if what == "policy":
            assert_nothing_in_clear(stack, composer.column(column).connected_luns[0])
        else:
            matrix(composer, column, *HOW[what])
        began_teardown = time.monotonic()
    took_s = time.monotonic() - began_teardown
    print(f"torn down in {took_s:.1f} s, leaks: {journal.leaks}")
    assert took_s < BOUND_S
    assert not journal.open_entries() and not journal.leaks, journal.leaks
    assert not sh("ip", "xfrm", "state") and not sh("ip", "xfrm", "policy")
    assert not list(Path("/sys/class/iscsi_session").iterdir())


if __name__ == "__main__":
    main(*sys.argv[1:])
