"""An open-loop load generator with Linux AIO: requests are due at random times, whether or not earlier ones
are done.

This program runs by itself under the distribution's Python. It reads fio's job file of one job, which says
``rate_iops``, and prints a report as fio's json+. Latency counts from the time at which a request was due. A
request that is not out yet when the time is over counts with the time that it has waited, so a queue that
grows cannot look short. ``iodepth`` is the most that may be in flight.

fio 3.33 cannot do this. Before it waits for the next request it waits for all that are out (rate_ddir() in
io_u.c). With io_submit_mode=offload a worker that starts before its creator goes on makes workqueue_init()
wait forever, because start_worker() in workqueue.c sets its flags anew. Its replay of a log does not look at
completions while it sleeps (iolog_delay() in iolog.c).
"""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import json
import math
import mmap
import os
import platform
import random
import struct
import sys
import time
from typing import Any

SETUP, SUBMIT, GETEVENTS = (0, 2, 4) if platform.machine() in ("aarch64", "riscv64") else (206, 209, 208)
"""System calls, by include/uapi/asm-generic/unistd.h and arch/x86/entry/syscalls/syscall_64.tbl."""

PREAD, PWRITE = 0, 1
PR_SET_TIMERSLACK = 29
SETTLING = 0.05
"""The part of the time at the beginning that is not counted: a queue begins empty."""

LATE = 0.05
"""The generator was late if this part of a percentile, or more, is its own."""


class Iocb(ctypes.Structure):
    """include/uapi/linux/aio_abi.h, little-endian."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("fd", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    ]


class Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = [("data", ctypes.c_uint64), ("iocb", ctypes.c_uint64), ("result", ctypes.c_int64 * 2)]


class Timespec(ctypes.Structure):
    """struct timespec."""

    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: Any) -> int:
    """A system call; OSError if it fails."""
    found: int = libc.syscall(ctypes.c_long(number), *arguments)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def options_of(text: str) -> dict[str, str]:
    """The options of a job file of one job, as fio's own job file of the harness writes them."""
    pairs = (line.partition("=") for line in text.splitlines()[1:] if line)
    return {name: value for name, _, value in pairs}


def seconds_of(options: dict[str, str]) -> float:
    """How long a job is."""
    return int(options["runtime"].removesuffix("us")) / 1e6


def percentile(ranked: list[int], part: float) -> int:
    """As fio: the least value that so large a part of all does not exceed."""
    return ranked[max(0, math.ceil(part * len(ranked) - 1e-9) - 1)]


def direction(responses: list[int], block: int, span_ns: int, percentiles: list[float]) -> dict[str, object]:
    """What fio's json+ has of reads or of writes; ``responses`` in ns."""
    ranked = sorted(responses)
    mean = sum(ranked) / len(ranked)
    bins: dict[int, int] = {}
    for value in ranked:
        shift = max(0, value.bit_length() - 7)
        key = (value >> shift << shift) + (1 << shift >> 1)
        bins[key] = bins.get(key, 0) + 1
    return {
        "io_bytes": len(ranked) * block,
        "total_ios": len(ranked),
        "runtime": round(span_ns / 1e6, 6),
        "bw_bytes": len(ranked) * block * 1e9 / span_ns,
        "iops": len(ranked) * 1e9 / span_ns,
        "lat_ns": {
            "min": ranked[0],
            "max": ranked[-1],
            "mean": mean,
            "stddev": math.sqrt(sum((value - mean) ** 2 for value in ranked) / max(1, len(ranked) - 1)),
            "percentile": {f"{part:f}": percentile(ranked, part / 100) for part in percentiles},
            "bins": bins,
        },
    }


class Slots:
    """The disk, with a slot for each request that may be in flight: its control block and its buffer."""

    def __init__(self, options: dict[str, str], *, goes_on: bool = False) -> None:
        self.goes_on = goes_on
        self.block, self.most = int(options["bs"]), int(options["iodepth"])
        pattern = options["rw"]
        self.reads = {"r": 100, "w": 0}.get(pattern.replace("rand", "")[0], 100)
        if pattern in ("rw", "randrw"):
            self.reads = int(options.get("rwmixread", "50"))
        self.is_random = pattern.startswith("rand")
        self.blocks, self.offset = int(options["size"]) // self.block, int(options.get("offset", "0"))
        flags = (os.O_RDWR if self.reads < 100 else os.O_RDONLY) | (
            os.O_DIRECT if options.get("direct") == "1" else 0
        )
        self.fd = os.open(options["filename"].replace("\\:", ":"), flags)
        self.step = step = -(-self.block // 4096) * 4096
        self.memory = mmap.mmap(-1, step * self.most)
        if self.reads < 100:
            self.memory[:] = os.urandom(len(self.memory))
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.iocbs = (Iocb * self.most)()
        for slot, iocb in enumerate(self.iocbs):
            iocb.data, iocb.fd, iocb.buffer, iocb.length = slot, self.fd, base + slot * step, self.block
        first = ctypes.addressof(self.iocbs)
        self.addresses = [first + slot * ctypes.sizeof(Iocb) for slot in range(self.most)]
        self.errors = [0] * self.most
        self.context = ctypes.c_ulong(0)
        call(SETUP, ctypes.c_int(self.most), ctypes.byref(self.context))
        self.events = (Event * self.most)()

    def submit(self, slots: list[int]) -> None:
        """Send out the requests of these slots."""
        pointers = (ctypes.c_void_p * len(slots))(*[self.addresses[slot] for slot in slots])
        done = 0
        while done < len(slots):
            at = ctypes.byref(pointers, done * ctypes.sizeof(ctypes.c_void_p))
            done += call(SUBMIT, self.context, ctypes.c_long(len(slots) - done), at)

    def completed(self, wait_ns: int) -> list[int]:
        """The slots whose requests have ended, after so many ns at most."""
        limit = Timespec(*divmod(max(0, wait_ns), 10**9))
        found = call(
            GETEVENTS,
            self.context,
            ctypes.c_long(1),
            ctypes.c_long(self.most),
            self.events,
            ctypes.byref(limit),
        )
        for event in self.events[:found]:
            if event.result[0] != self.block and not self.goes_on:
                raise OSError(max(0, -event.result[0]), "expected a whole block, found an error or a part")
            self.errors[event.data] = 0 if event.result[0] == self.block else max(errno.EIO, -event.result[0])
        return [event.data for event in self.events[:found]]


def arrivals(rate: int, seconds: float, generator: random.Random) -> list[int]:
    """When requests are due, in ns from the start: exponential times between them."""
    due, end = 0.0, seconds * 1e9
    found: list[int] = []
    while (due := due + generator.expovariate(rate) * 1e9) < end:
        found.append(round(due))
    return found


def measure(
    device: Slots, due: list[int], generator: random.Random
) -> tuple[list[bool], list[int], list[int]]:
    """Of all requests whether they read, and the response times in ns; and by how much each was sent too late
    by this program: not for want of a free slot, or because the disk took no more."""
    reads = [generator.random() * 100 < device.reads for _ in due]
    blocks = [
        generator.randrange(device.blocks) if device.is_random else n % device.blocks for n in range(len(due))
    ]
    responses, late = [0] * len(due), list[int]()
    free, holds = list(range(device.most)), [0] * device.most
    clock = time.monotonic_ns
    start, sent, submitted, waited = clock() + 10**7, 0, 0, False
    end = due[-1] if due else 0
    while sent < len(due) or len(free) < device.most:
        now = clock() - start
        if now > end and not free:
            break
        slots = []
        while sent < len(due) and due[sent] <= now and free:
            slot = free.pop()
            iocb = device.iocbs[slot]
            iocb.opcode, iocb.offset = (
                (PREAD if reads[sent] else PWRITE),
                device.offset + blocks[sent] * device.block,
            )
            holds[slot] = sent
            late.append(0 if waited else now - max(due[sent], submitted))
            slots.append(slot)
            sent += 1
        waited = not free
        if slots:
            device.submit(slots)  # it waits while the disk's own queue is full
            submitted = clock() - start
        wait_ns = due[sent] + start - clock() if sent < len(due) and free else 10**8
        for slot in device.completed(wait_ns):
            responses[holds[slot]] = clock() - start - due[holds[slot]]
            free.append(slot)
    now = clock() - start
    out = set(range(device.most)) - set(free)
    for number in (*(holds[slot] for slot in out), *range(sent, len(due))):
        responses[number] = now - due[number]
    while len(free) < device.most:
        free += device.completed(10**8)
    return reads, responses, late


LATE_NS = 10**8
"""A request is late after so much, or after the longest before the fault."""

DRAINING_NS = 10**9
"""How long requests that are out at the end are waited for."""

STAMP, UNIT = b"harness\0", struct.Struct("<8sQQQ")
"""What a written block consists of: these bytes, its number, the number of the request, the job's seed."""

WINDOW_BLOCKS = 4096
"""Blocks are written in turn: two requests for one are never out at the same time."""


class Outlasting:
    """Writes or reads at a rate, whatever becomes of them, around a fault that somebody else makes: for
    ``warm_s`` before it, ``fault_s`` while it lasts, and then until those of two seconds are on time,
    ``most_s`` at most. Each block that is written is stamped, and read back at the end. A path in place of
    ``fault_s`` is of a file that is there when the fault is over, which is before the job's time is."""

    def __init__(self, options: dict[str, str], warm: str, fault: str, most: str) -> None:
        self.file = fault if fault.startswith("/") else ""
        warm_s, fault_s, most_s = float(warm), 0.0 if self.file else float(fault), float(most)
        self.device = Slots(options, goes_on=True)
        self.opcode = PREAD if self.device.reads else PWRITE
        self.seed = int(options["randseed"])
        self.warm_ns = round(warm_s * 1e9)
        self.end_ns = math.inf if self.file else round((warm_s + fault_s) * 1e9)
        self.most_ns = round(most_s * 1e9)
        generator = random.Random(self.seed)  # noqa: S311 -- arrivals are to be repeated
        whole_s = seconds_of(options) if self.file else warm_s + fault_s + most_s
        self.due = arrivals(int(options["rate_iops"]), whole_s, generator)
        self.window = min(self.device.blocks, WINDOW_BLOCKS)
        if self.window <= self.device.most:
            raise SystemExit(f"expected room for more than {self.device.most} blocks, found {self.window}")
        self.rows: list[list[int]] = []
        """Of each request that was due: when, in ns; its latency since then, -1 without an end; errno."""
        self.late_ns, self.start = LATE_NS, 0

    def stamp(self, slot: int, request: int) -> None:
        unit = UNIT.pack(STAMP, request % self.window, request, self.seed)
        at = slot * self.device.step
        self.device.memory[at : at + self.device.block] = unit * (self.device.block // UNIT.size)

    def is_over(self, now: int) -> bool:
        """Whether all that were due in a second were on time, after the fault."""
        from_ns, to_ns = now - self.late_ns - 10**9, now - self.late_ns
        # A kernel may have kept this program from sending for long: nbd does, in io_submit(2).
        if from_ns < self.end_ns or self.due[len(self.rows)] <= now:
            return False
        rows = itertools.takewhile(lambda row: row[0] >= from_ns, reversed(self.rows))
        return all(0 <= row[1] <= self.late_ns and not row[2] for row in rows if row[0] <= to_ns)

    def run(self) -> None:
        device, clock = self.device, time.monotonic_ns
        free, holds = list(range(device.most)), [0] * device.most
        self.start, looks_at = clock() + 10**7, 0

        def end(wait_ns: int) -> None:
            for slot in device.completed(wait_ns):
                row = self.rows[holds[slot]]
                row[1], row[2] = clock() - self.start - row[0], device.errors[slot]
                free.append(slot)

        while len(self.rows) < len(self.due):
            now = clock() - self.start
            if now >= looks_at:
                looks_at = now + 10**8
                if now < self.warm_ns:
                    self.late_ns = max([LATE_NS, *(row[1] for row in self.rows)])
                elif math.isinf(self.end_ns):
                    if os.access(self.file, os.F_OK):
                        self.end_ns = now
                        self.due = [due for due in self.due if due < now + self.most_ns]
                elif self.is_over(now):
                    break
            slots = []
            while (request := len(self.rows)) < len(self.due) and self.due[request] <= now:
                self.rows.append([self.due[request], -1, 0 if free else errno.EAGAIN])
                if not free:
                    continue
                slot = free.pop()
                iocb, holds[slot] = device.iocbs[slot], request
                iocb.opcode, iocb.offset = self.opcode, device.offset + request % self.window * device.block
                if self.opcode == PWRITE:
                    self.stamp(slot, request)
                slots.append(slot)
            if slots:
                device.submit(slots)
            if request < len(self.due):
                end(min(10**8, self.due[request] + self.start - clock()))
        until = clock() + DRAINING_NS
        while len(free) < device.most and clock() < until:
            end(10**8)

    def read_back(self) -> dict[str, object]:
        """Which acknowledged writes are not there any more: of those to each block the last."""
        acknowledged: dict[int, int] = {}
        for request, row in enumerate(self.rows):
            if row[1] >= 0 and not row[2] and self.opcode == PWRITE:
                acknowledged[request % self.window] = request
        device, lost = self.device, []
        for number, request in acknowledged.items():
            at, into = device.offset + number * device.block, memoryview(device.memory)[: device.block]
            if os.preadv(device.fd, [into], at) < device.block:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))  # the kernel has removed the disk
            found = device.memory[: device.block]
            unit = UNIT.unpack(found[: UNIT.size])
            is_whole = found == found[: UNIT.size] * (device.block // UNIT.size)
            is_ours = is_whole and (unit[0], unit[1], unit[3]) == (STAMP, number, self.seed)
            if not is_ours or unit[2] < request:
                lost.append([number, request, unit[2] if is_ours else -1])
        return {"blocks": len(acknowledged), "lost": lost}

    def around(self) -> dict[str, object]:
        """Each request, and what was read back; times in ns from ``start_ns`` of the monotonic clock."""
        try:
            read_back = self.read_back()
        except OSError as error:
            read_back = {"not_read_back": str(error.strerror)}
        return {"start_ns": self.start, "late_ns": self.late_ns, "rows": self.rows, **read_back}


def report(parts: list[float], block: int, span_ns: int, **responses: list[int]) -> dict[str, object]:
    """fio's report of response times in ns, by direction."""
    found = {name: direction(own, block, span_ns, parts) for name, own in responses.items() if own}
    job = {"jobname": "open_loop", "groupid": 0, "error": 0, "elapsed": math.ceil(span_ns / 1e9), **found}
    return {"fio version": "open_loop", "jobs": [job]}


def outlast(options: dict[str, str], parts: list[float], *times: str) -> dict[str, object]:
    """The report of a load around a fault, with ``around``: each of its requests."""
    load = Outlasting(options, *times)
    load.run()
    done = [row[1] for row in load.rows if row[1] >= 0 and not row[2]]
    span_ns = max(load.rows[-1][0], 1) if load.rows else 1
    did = {"read" if load.opcode == PREAD else "write": done}
    return {**report(parts, load.device.block, span_ns, **did), "around": load.around()}


def trial(options: dict[str, str], parts: list[float]) -> dict[str, object]:
    """The report of a load of the time that the options say."""
    device = Slots(options)
    generator = random.Random(int(options["randseed"]))  # noqa: S311 -- arrivals are to be repeated
    seconds = seconds_of(options)
    due = arrivals(int(options["rate_iops"]), seconds, generator)
    reads, responses, late = measure(device, due, generator)
    first = round(SETTLING * seconds * 1e9)
    counted = [number for number, at in enumerate(due) if at >= first]
    span_ns = max((due[number] + responses[number] for number in counted), default=first) - first
    lateness = percentile(sorted(late), 0.99) if late else 0
    whole = percentile(sorted(responses), 0.99) if responses else 0
    if lateness > LATE * whole:
        sys.stderr.write(
            f"requests were sent {lateness / 1e3:.0f} us late, of {whole / 1e3:.0f} us (99 % of them)\n"
        )
    return report(
        parts,
        device.block,
        span_ns,
        read=[responses[number] for number in counted if reads[number]],
        write=[responses[number] for number in counted if not reads[number]],
    )


def main() -> None:
    """See above; with three times in seconds, a load around a fault (``Outlasting``)."""
    options = options_of(sys.stdin.read())
    libc.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    gc.disable()
    parts = [float(part) for part in options["percentile_list"].split(":")]
    times = sys.argv[1:]
    json.dump(outlast(options, parts, *times) if times else trial(options, parts), sys.stdout)


if __name__ == "__main__":
    main()
