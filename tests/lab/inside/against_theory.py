"""What one I/O takes in virtual time, over every framing: what `harness.analysis.theory` predicts, measured.

`python -m tests.lab.inside.against_theory TAG [square]`, with --virtual-time; prints a `Measured` as JSON.
With "square" each framing has one workload, and each workload is that of some.

All columns are up at once, and one fio measures them one after another: every start of fio reads the clock
so often that virtual time takes seconds for it. Of a short and a long run of each workload the difference
counts: what a connection does after a pause, and the ACK that waits at the end for data to go with, are not
in it.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.hosts import Host
from harness.model import PROTECTION_OFF, Flash, IkeAuth, IpsecMode, LinkProfile
from harness.network import links
from harness.parse.profiles import load_proposal
from harness.protection import ipsec
from harness.protection.ipsec import charon
from harness.runs import fio_startup
from harness.storage import disks
from harness.storage.disks import MIB, FlashDisk
from harness.storage.iscsi.transport import shared
from harness.storage.transport import Disk, Shared
from tests.lab.inside import exports
from tests.lab.square import square

FOLDER = Path("/run/theory")
SIZE_BYTES = 64 * MIB
DISK = Flash(page_bytes=1 << 20, page_us=100, pages_at_once=1)

MTUS = (1500, 9000)
PROPOSALS = ("null-sha256", "aes128gcm16", "aes128-sha256")
WORKLOADS = {
    "read-256k": (48, 4, 36),
    "write-256k": (4, 4, 36),
    "read-4k": (8, 8, 136),
    "write-4k": (8, 8, 136),
}
"""How many I/Os each run of a workload has: one for the connection to settle, a short one, a long one.

After 48 reads of 256K the initiator's receive window has grown to where it stays.
"""

PAUSE_S = 0.5
"""Before each run: longer than TCP's retransmission timeout, for after that long Linux answers a while with
more ACKs, and fio's own pause is sometimes as long."""

GROWING = "read-256k"
RUNS = ("settling", "short", "long")
COUNTERS = ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")
OPTIONS = ("direct=1", "ioengine=psync", "thread", "randseed=1", "allow_file_create=0", "size=16m")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """So many I/Os: their time, and what the initiator's interface counted meanwhile."""

    ios: int
    total_ns: int
    to_initiator_bytes: int
    to_initiator_frames: int
    to_target_bytes: int
    to_target_frames: int


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A framing: what brought it up, what was negotiated, and its cells by their workloads."""

    mtu_bytes: int
    proposal: str
    mode: str
    session: dict[str, str]
    mss_bytes: int
    window_bytes: int
    cells: dict[str, Cell]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All columns by name, and how long the disk takes for one command, by workload."""

    device_ns: dict[str, float]
    columns: dict[str, Column]


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    mtu_bytes: int
    proposal: str = PROTECTION_OFF
    mode: IpsecMode = IpsecMode.TRANSPORT

    @property
    def name(self) -> str:
        esp = "plain" if self.proposal == PROTECTION_OFF else f"{self.proposal}-{self.mode.value}"
        return f"{esp}-{self.mtu_bytes}"

    @property
    def link(self) -> LinkProfile:
        """Gigabit Ethernet, as ``wired`` has it."""
        return LinkProfile(
            name="exact", title="", emulated=True, rate_bit_s=10**9, delay_us=50, mtu_bytes=self.mtu_bytes
        )


FRAMINGS = tuple(
    framing
    for mtu in MTUS
    for framing in (
        Framing(mtu_bytes=mtu),
        *(Framing(mtu_bytes=mtu, proposal=name, mode=mode) for name in PROPOSALS for mode in IpsecMode),
    )
)


class Up(msgspec.Struct, frozen=True, kw_only=True):
    framing: Framing
    path: links.LinkPath
    disk: Disk
    session: dict[str, str]


class Lab:
    """What all columns share, and each as it is brought up; ``stack`` takes all of it down."""

    def __init__(self, tag: str, stack: contextlib.ExitStack) -> None:
        self.tag, self.stack, self.near = tag, stack, exports.NEAR
        self.journal = stack.enter_context(exports.journal_in(FOLDER))
        stack.enter_context(self.journal.hold(self.near, FlashDisk(SIZE_BYTES, DISK)))
        self.lun = exports.lun(tag, disks.FLASH_DEVICE, SIZE_BYTES)
        self.sides = exports.sides(self.journal, tag, self.lun, FOLDER)
        self.iscsi = stack.enter_context(shared(self.sides))
        self.charon = self._charon(self.near, "near", charon.ANY_PORT)
        self.credentials = ipsec.make_credentials(self.near, IkeAuth.PSK, FOLDER, paths=len(FRAMINGS))

    def _charon(self, host: Host, name: str, port: int) -> charon.Charon:
        log = FOLDER / f"charon-{name}.log"
        return self.stack.enter_context(
            charon.running(host, FOLDER / name, log=log, plugins=charon.BASE_PLUGINS, port=port)
        )

    def link(self, framing: Framing, index: int) -> links.LinkPath:
        """A link with its protection, in a steady state."""
        place = links.LinkPlace(
            self.journal, self.near, framing.link, tag=self.tag, index=index, frame_by_frame=True
        )
        path = self.stack.enter_context(links.bring_up(place))
        self.keep_steady(path)
        if framing.proposal != PROTECTION_OFF:
            self.stack.enter_context(
                ipsec.Tunnel(
                    path=path,
                    name=f"harness-{self.tag}-{index}",
                    proposal=load_proposal(framing.proposal),
                    mode=framing.mode,
                    credentials=self.credentials,
                ).up((self.charon, self._charon(path.target, f"far-{index}", ipsec.IKE_PORT)))
            )
        return path

    @staticmethod
    def keep_steady(path: links.LinkPath) -> None:
        for host, iface in ((path.initiator, path.initiator_iface), (path.target, path.target_iface)):
            # fio pauses between two workloads, and it is the steady state that theory tells of. And ARP
            # would ask again after 15 to 45 s: the one delay here that the kernel draws at random.
            # By the shell: a minimal system has no sysctl(8).
            host.run(
                [
                    *("sh", "-c", 'cd /proc/sys/net/ipv4 && echo 0 >"$1" && echo "$3" >"$2"', "sh"),
                    *("tcp_slow_start_after_idle", f"neigh/{iface}/base_reachable_time_ms", str(10**8)),
                ]
            )

    def log_in(self, framing: Framing, path: links.LinkPath, shared: Shared) -> Up:
        """A disk over a path."""
        wanted = exports.export(path, self.lun, framing.name)
        session = self.stack.enter_context(shared.attach(wanted))
        return Up(framing=framing, path=path, disk=session.disk, session=session.agreed)


def chosen(names: Sequence[str], how_many: str) -> dict[str, list[str]]:
    if how_many != "square":
        return {name: list(WORKLOADS) for name in names}
    found: dict[str, list[str]] = {name: [] for name in names}
    for name, workload in square(names, list(WORKLOADS)):
        found[name].append(workload)
    return found


def job_file(ups: list[Up], cells: Mapping[str, Sequence[str]]) -> str:
    """The workloads of all columns, one after another; after each the counters of its interface."""
    lines = ["[global]", "clocksource=clock_gettime", *OPTIONS]

    def section(column: str, device: str, workload: str, run: str) -> None:
        kind, _, block = workload.partition("-")
        ios = WORKLOADS[workload][RUNS.index(run)]
        lines.extend([f"[{column}.{workload}.{run}]", "stonewall", f"filename={device}"])
        lines.extend([f"rw={kind}", f"bs={block}", f"number_ios={ios}", f"exec_prerun=sleep {PAUSE_S:g}"])

    for up in ups:
        folder = f"/sys/class/net/{up.path.initiator_iface}/statistics"
        for workload in WORKLOADS:
            # The first reads of 256K grow the initiator's window, which theory has to know of each column.
            is_chosen = workload in cells[up.framing.name]
            for run in RUNS if is_chosen else RUNS[: workload == GROWING]:
                section(up.framing.name, up.disk.device, workload, run)
                # fio itself sends what is printed to a file of the section's name.
                lines.append(f"exec_postrun=cat {' '.join(f'{folder}/{counter}' for counter in COUNTERS)}")
    for workload in WORKLOADS:
        section("disk", disks.FLASH_DEVICE, workload, "long")
    return "\n".join([*lines, ""])


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """What fio and the interface say of one section; the counters are those before and after it."""

    ios: int
    total_ns: int
    before: list[int]
    after: list[int]


def run_fio(host: Host, ups: list[Up], cells: Mapping[str, Sequence[str]]) -> dict[str, Section]:
    (FOLDER / "job.fio").write_text(job_file(ups, cells), encoding="utf-8")
    argv = ["sh", "-euc", 'cd "$1" && exec fio --output-format=json job.fio', "sh", str(FOLDER)]
    printed = host.run(argv, timeout_s=3600, env=fio_startup.in_virtual_time(host, FOLDER).env).stdout
    found: dict[str, Section] = {}
    counted = [0] * len(COUNTERS)
    for job in json.loads(printed[printed.index("{") :])["jobs"]:
        name = job["jobname"]
        done = job["write" if ".write" in name else "read"]
        file = FOLDER / f"{name}.postrun.txt"
        before = counted
        if file.exists():
            counted = list(map(int, file.read_text(encoding="utf-8").split()))
        ios = done["total_ios"]
        found[name] = Section(
            ios=ios, total_ns=round(done["lat_ns"]["mean"] * ios), before=before, after=counted
        )
    return found


def cell(short: Section, long: Section) -> Cell:
    """The long run without the short one."""
    readings = zip(COUNTERS, long.before, long.after, short.before, short.after, strict=True)
    counters = {name: (last - first) - (end - begin) for name, first, last, begin, end in readings}
    return Cell(
        ios=long.ios - short.ios,
        total_ns=long.total_ns - short.total_ns,
        to_initiator_bytes=counters["rx_bytes"],
        to_initiator_frames=counters["rx_packets"],
        to_target_bytes=counters["tx_bytes"],
        to_target_frames=counters["tx_packets"],
    )


def connection(path: links.LinkPath) -> tuple[int, int]:
    """The target's MSS and window, as ss(8) tells them."""
    reported = path.target.run(["ss", "-tinH", "sport", f"= :{path.port}"]).stdout
    found = []
    for line in reported.splitlines():
        names = re.findall(r"\b(mss|cwnd|snd_wnd|bytes_sent):(\d+)", line)
        if values := {name: int(value) for name, value in names}:
            window_bytes = min(values["snd_wnd"], values["cwnd"] * values["mss"])
            found.append((values.get("bytes_sent", 0), values["mss"], window_bytes))
    # Some transports have a connection for administration as well.
    _, mss_bytes, window_bytes = max(found)
    return mss_bytes, window_bytes


def measure(tag: str, bring_up: Callable[[Lab], list[Up]], how_many: str = "all") -> None:
    """Bring columns up, measure all cells or those of a "square", and print what was measured."""
    with contextlib.ExitStack() as stack:
        lab = Lab(tag, stack)
        ups = bring_up(lab)
        cells = chosen([up.framing.name for up in ups], how_many)
        sections = run_fio(lab.near, ups, cells)
        columns = {}
        for up in ups:
            mss_bytes, window_bytes = connection(up.path)
            name = up.framing.name
            columns[name] = Column(
                mtu_bytes=up.framing.mtu_bytes,
                proposal=up.framing.proposal,
                mode=up.framing.mode.value,
                session=up.session,
                mss_bytes=mss_bytes,
                window_bytes=window_bytes,
                cells={
                    workload: cell(sections[f"{name}.{workload}.short"], sections[f"{name}.{workload}.long"])
                    for workload in cells[name]
                },
            )
        of_disk = {workload: sections[f"disk.{workload}.long"] for workload in WORKLOADS}
        device_ns = {workload: of.total_ns / of.ios for workload, of in of_disk.items()}
        measured = Measured(device_ns=device_ns, columns=columns)
        print(msgspec.json.encode(measured).decode(), flush=True)


def bring_up(lab: Lab) -> list[Up]:
    numbered = enumerate(FRAMINGS)
    return [lab.log_in(framing, lab.link(framing, index), lab.iscsi) for index, framing in numbered]


if __name__ == "__main__":
    measure(sys.argv[1], bring_up, *sys.argv[2:])
