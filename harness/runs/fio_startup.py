"""fio as it starts soonest: a copy that loads only the libraries that its jobs here can need.

Debian's fio loads some sixty libraries at each start, most of them for the I/O engines of Ceph, GlusterFS,
RDMA, NBD and persistent memory, which no job of a run may name (``harness.parse.jobfile``). That makes 2,165
page faults (fio 3.33, `fio --version`), each of which takes its time in the lab; without these libraries it
is 490. Code and data of the copy are those of the original. Only its lists of libraries and of their versions
have the C library in place of these, and what only those define is marked as not necessary (``STB_WEAK``).

Where the lab has made a library for it (``testbeds/lab/boot/early.c``), fio also waits a tenth of a second
less before its jobs begin and after they end, and gets the memory for their state at once.

A start costs 0.3 s more without the copy, and 0.17 s more without the library (docs/decisions/less.md). The
environment of a run says which of them it had.

Source: elf(5), and ``_dl_check_map_versions()`` of glibc's ``elf/dl-version.c``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import runner
from harness.model.errors import HarnessError
from harness.testbeds.entry_points import EARLY

DISPENSABLE = re.compile(
    r"lib(gfapi|nbd|ibverbs|rdmacm|rados|rbd|pmem|pmem2|pmemblk|daxctl|ndctl|iscsi|nfs|curl|curl-gnutls|hdfs)\.so\b"
)
"""Libraries of I/O engines that a job may not name."""

FIO = "fio"
RELIABLE, UNRELIABLE = "cs: reliable_tsc: yes", "cs: reliable_tsc: no"
"""What ``fio --cpuclock-test`` prints (fio_monotonic_clocktest() in fio's gettime.c)."""

NOT_LOADED = "cannot be preloaded"
"""What ld.so(8) prints of a library that it then goes without."""

IDENT = b"\x7fELF\x02\x01\x01"
"""64 bits, little-endian."""

DT_NULL, DT_NEEDED, DT_STRTAB, DT_SYMTAB = 0, 1, 5, 6
DT_GNU_HASH, DT_VERNEED = 0x6FFFFEF5, 0x6FFFFFFE
PT_LOAD, PT_DYNAMIC = 1, 2
SHN_UNDEF, STB_GLOBAL, STB_WEAK = 0, 1, 2
SYMBOL_BYTES = 24
C_LIBRARY = "libc.so.6"


class NotUnderstood(Exception):
    """It is not a program of the expected kind."""


@dataclass(frozen=True)
class _Program:
    """A program's bytes, and where its segments are: file offset, address and length of each."""

    data: bytearray
    segments: tuple[tuple[int, int, int], ...]
    dynamic: int

    def at(self, address: int) -> int:
        """Where in the file an address is."""
        for offset, start, length in self.segments:
            if start <= address < start + length:
                return offset + address - start
        raise NotUnderstood(f"no segment has the address {address:#x}")

    def text(self, place: int) -> str:
        return self.data[place : self.data.index(0, place)].decode("ascii", "replace")

    def entries(self) -> Iterator[tuple[int, int, int]]:
        """Where each entry of the dynamic section is, its tag and its value."""
        place = self.dynamic
        while True:
            tag, value = struct.unpack_from("<QQ", self.data, place)
            if tag == DT_NULL:
                return
            yield place, tag, value
            place += 16

    def versions(self, place: int) -> Iterator[tuple[int, int, list[int]]]:
        """Of each library whose versions are asked for: where its entry in the list at ``place`` is, its name
        in the table of strings, and where each version's entry is."""
        following = 1
        while following:
            _, count, file, first, following = struct.unpack_from("<HHIII", self.data, place)
            asked = [place + first]
            for _ in range(count - 1):
                asked.append(asked[-1] + struct.unpack_from("<I", self.data, asked[-1] + 12)[0])
            yield place, file, asked
            place += following


def _read(data: bytearray) -> _Program:
    if not data.startswith(IDENT):
        raise NotUnderstood("it is no 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments, dynamic = [], None
    for number in range(count):
        kind, _, offset, address, _, length, _, _ = struct.unpack_from(
            "<IIQQQQQQ", data, table + number * size
        )
        if kind == PT_LOAD:
            segments.append((offset, address, length))
        elif kind == PT_DYNAMIC:
            dynamic = offset
    if dynamic is None:
        raise NotUnderstood("it has no dynamic section")
    return _Program(data, tuple(segments), dynamic)


def without_libraries(program: bytes, dispensable: re.Pattern[str] = DISPENSABLE) -> bytearray:
    """The program without the libraries whose names match. NotUnderstood if it is of another kind."""
    try:
        return _without(_read(bytearray(program)), dispensable)
    except (struct.error, ValueError, IndexError) as error:
        raise NotUnderstood(str(error)) from error


def _without(elf: _Program, dispensable: re.Pattern[str]) -> bytearray:
    data = elf.data
    values = {tag: value for _, tag, value in elf.entries()}
    if not values.keys() >= {DT_STRTAB, DT_SYMTAB, DT_GNU_HASH, DT_VERNEED}:
        raise NotUnderstood("its dynamic section lacks something")
    names, symbols = elf.at(values[DT_STRTAB]), elf.at(values[DT_SYMTAB])
    needed = [(place + 8, value) for place, tag, value in elf.entries() if tag == DT_NEEDED]
    asked = list(elf.versions(elf.at(values[DT_VERNEED])))
    theirs = [each for each in asked if elf.text(names + each[1]) == C_LIBRARY]
    if not theirs:
        raise NotUnderstood(f"it asks for no version of {C_LIBRARY}")
    (_, instead, (version, *_)), *_ = theirs
    for place, name in needed:
        if dispensable.match(elf.text(names + name)):
            struct.pack_into("<Q", data, place, instead)
    for place, name, versions in asked:
        if dispensable.match(elf.text(names + name)):
            struct.pack_into("<I", data, place + 4, instead)
            for each in versions:  # hash and name
                struct.pack_into("<I", data, each, *struct.unpack_from("<I", data, version))
                struct.pack_into("<I", data, each + 8, *struct.unpack_from("<I", data, version + 8))
    # In a GNU hash table symbols that are looked up elsewhere come first.
    (hashed,) = struct.unpack_from("<I", data, elf.at(values[DT_GNU_HASH]) + 4)
    for symbol in range(symbols + SYMBOL_BYTES, symbols + hashed * SYMBOL_BYTES, SYMBOL_BYTES):
        (info, _, section) = struct.unpack_from("<BBH", data, symbol + 4)
        if section == SHN_UNDEF and info >> 4 == STB_GLOBAL:
            data[symbol + 4] = STB_WEAK << 4 | info & 0xF
    return data


@dataclass(frozen=True, kw_only=True)
class Fio:
    """What is started as fio on a kernel.

    ``has_tested_clock``: there fio has tested the processor's clock and would choose it, so it need not be
    tested at each start, which takes some 0.1 s. ``env`` lets its jobs begin early.
    """

    program: str = FIO
    has_tested_clock: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def described(self) -> dict[str, bool]:
        """How it differs from fio as installed, for the environment."""
        return {
            "is_copy": self.program != FIO,
            "has_preloaded_library": bool(self.env),
            "has_tested_clock": self.has_tested_clock,
        }


@functools.cache
def fio(folder: Path) -> Fio:
    """fio on this kernel: a copy in ``folder``, or fio itself if there can be none; with the library.

    It is made and tried once.
    """
    ways: list[tuple[str, dict[str, str]]] = [(FIO, {})]
    if (found := shutil.which(FIO)) is not None:
        copy = folder / FIO
        with contextlib.suppress(NotUnderstood, OSError):
            copy.write_bytes(without_libraries(Path(found).read_bytes()))
            copy.chmod(0o700)
            ways.insert(0, (str(copy), {}))
    if library := os.environ.get(EARLY):
        ways.insert(0, (ways[0][0], {"LD_PRELOAD": library}))
    for program, env in ways:
        # It also shows that the program starts. A missing fio is reported by whoever starts it.
        with contextlib.suppress(HarnessError, OSError):
            done = runner.run([program, "--cpuclock-test"], check=False, env=env)
            if (RELIABLE in done.stdout or UNRELIABLE in done.stdout) and NOT_LOADED not in done.stderr:
                is_good = done.status == 0 and RELIABLE in done.stdout
                return Fio(program=program, has_tested_clock=is_good, env=env)
    return Fio()
