"""Times single operations of this machine, in ns of a processor's time: no root, no files, nothing left.

The program prints ``{"processor", "cores", "kernel", "governor", "operations": [{"part", "per", "ns", "low",
"high", "what"}, ...]}``. Each operation is done in batches; ``ns`` is that of the middle batch, ``low`` and
``high`` hold nine of ten.
"""

import json
import os
import platform
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCHES, BATCH_NS = 40, 10_000_000
BLOCK_BYTES, CHUNK_BYTES, MESSAGE_BYTES = 1 << 20, 1 << 16, 48


def timed(
    part: str, per: str, what: str, do: Callable[[], object], clock: Callable[[], int], each: float = 1.0
) -> dict[str, Any]:
    """An operation, of which ``do`` does so many, by a clock of processor time. What Python takes to call
    something that does nothing is taken off."""
    count, took_ns = 1, 0
    while took_ns < BATCH_NS:
        count, began = 2 * count, time.perf_counter_ns()
        for _ in range(count):
            do()
        took_ns = time.perf_counter_ns() - began
    samples = []
    for _ in range(BATCHES):
        times = []
        for call in (bool, do):
            began = clock()
            for _ in range(count):
                call()
            times.append(clock() - began)
        samples.append(max(0.0, (times[1] - times[0]) / count / each))
    samples.sort()
    outer = BATCHES // 20
    places = {"ns": BATCHES // 2, "low": outer, "high": BATCHES - 1 - outer}
    figures = {name: float(f"{samples[place]:.4g}") for name, place in places.items()}
    return {"part": part, "per": per, "what": what, **figures}


def answering(take: Callable[[], object], give: Callable[[], object]) -> None:
    """A thread that gives once for each that it could take."""

    def serve() -> None:
        while take():
            give()

    threading.Thread(target=serve, daemon=True).start()


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection to this machine itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def operations() -> list[dict[str, Any]]:
    """All of them."""
    mine, all_threads = time.thread_time_ns, time.process_time_ns
    source, room = memoryview(bytes(BLOCK_BYTES)), memoryview(bytearray(BLOCK_BYTES))

    def copy() -> None:
        room[:] = source

    here, there = os.pipe(), os.pipe()
    answering(lambda: os.read(here[0], 1), lambda: os.write(there[1], b"x"))

    def wake() -> None:
        os.write(here[1], b"x")
        os.read(there[0], 1)

    near, far = connected()
    chunk, taken = bytes(CHUNK_BYTES), bytearray(CHUNK_BYTES)
    answering(lambda: far.recv_into(taken), bool)
    asking, answers = connected()
    message = bytes(MESSAGE_BYTES)
    answering(lambda: answers.recv(MESSAGE_BYTES), lambda: answers.sendall(message))

    def ask() -> None:
        asking.sendall(message)
        asking.recv(MESSAGE_BYTES)

    send = "loopback, 64 KiB at a time, both ends"
    return [
        timed("kernel", "system call", "getppid(2)", os.getppid, mine),
        timed("kernel", "wake-up", "a byte through a pipe to another thread", wake, all_threads, 2),
        timed("copy", "byte", "memcpy(3) of 1 MiB", copy, mine, BLOCK_BYTES),
        timed("checksum", "byte", "CRC-32 of 1 MiB", lambda: zlib.crc32(source), mine, BLOCK_BYTES),
        timed("TCP/IP", "byte", send, lambda: near.sendall(chunk), all_threads, CHUNK_BYTES),
        timed("TCP/IP", "I/O", "loopback, 48 bytes and an answer, both ends", ask, all_threads),
    ]


def text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    lines = (line.partition(":") for line in text_of("/proc/cpuinfo").splitlines())
    models = [value.strip() for name, _, value in lines if name.strip().lower() == "model name"]
    governor = text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()
    found = {"processor": (models or [platform.machine()])[0][:100], "cores": os.cpu_count() or 1}
    found |= {"kernel": platform.release()[:100], "governor": governor, "operations": operations()}
    sys.stdout.write(json.dumps(found))
