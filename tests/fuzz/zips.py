"""A shared run's ZIP archive from somebody else: refused in a sentence, or read as far as a run is in it."""

from __future__ import annotations

import io
import itertools
import re
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from harness.results import archive
from tests.fuzz import commands
from tests.fuzz.driver import Case, several
from tests.fuzz.folders import COMMANDS as OF_RUNS
from tests.fuzz.folders import RESULTS, RUN, whole
from tests.fuzz.mutate import TEXTS, Change, Edit, change, edit

FILE = "theirs.zip"
COMMANDS: dict[str, tuple[str, ...]] = {
    **{name: words for name, words in OF_RUNS.items() if "RUN" in words},
    "table of all": ("table", "."),
    "resume": ("run", "--resume", "RUN", "--plan"),
    "cpu-cost": ("cpu-cost", "RUN"),
    "parse": ("parse", "fio", "RUN"),
}

HEADERS: Mapping[bytes, tuple[tuple[int, str], ...]] = {
    b"PK\x03\x04": ((4, "H"), (6, "H"), (8, "H"), (14, "I"), (18, "I"), (22, "I"), (26, "H"), (28, "H")),
    b"PK\x01\x02": (
        *((8, "H"), (10, "H"), (16, "I"), (20, "I"), (24, "I"), (28, "H"), (30, "H"), (32, "H"), (34, "H")),
        *((38, "I"), (42, "I"), (46, "H")),
    ),
    b"PK\x05\x06": ((4, "H"), (6, "H"), (8, "H"), (10, "H"), (12, "I"), (16, "I"), (20, "H")),
}
"""Records of an archive by their marks: offset and form of their fields (APPNOTE.TXT 4.3.7, 4.3.12 with the
begin of the name, 4.3.16)."""

FIGURES = (
    *(0, 1, 2, 5, 8, 9, 12, 14, 20, 46, 93, 95, 98, 99, 0x41, 0x800, 0x2000, 0x7FFF, 0xFFFE, 0xFFFF),
    *(1 << 16, 1 << 20, 1 << 28, (1 << 28) + 1, 1 << 31, 0x7FFFFFFF, 0xA1FF0000, 0xFFFFFFF0, 0xFFFFFFFF),
)
"""Methods, flags, lengths, offsets and attributes (a symbolic link's are 0xA1FF0000)."""

NAMES = (
    *("plan.json", "environment.json", "cells/a.json", "cells/", "cells", "probes/a.json", "raw/fio.json"),
    *("../plan.json", "/plan.json", "cells/../../x.json", "cells/.x.json", "cells\\x.json", "a.zip", ""),
    *("cells/" + "x" * 300 + ".json", "cells/" + "a/" * 500 + "x.json", "x" * 60_000, "PLAN.JSON"),
)
CONTENTS: Mapping[str, tuple[bytes, int]] = {
    "nothing": (b"", 1),
    "object": (b"{}", 1),
    "spaces": (b" " * (1 << 20), 30),
    "bomb": (b" " * (1 << 20), 255),
    "larger bomb": (b" " * (1 << 20), 257),
    "deep": (b"[" * (1 << 20), 1),
    "objects": (b"{}," * (1 << 18), 40),
    "number": (b"9" * (1 << 20), 4),
}
"""What an added member has, and how often that is repeated."""

LIGHT = ("nothing", "object", "deep")
METHODS = (*[zipfile.ZIP_DEFLATED] * 5, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


@cache
def members() -> dict[str, bytes]:
    """What such an archive has of a run: its files of JSON that may be in one."""
    run = RESULTS / RUN
    files = {str(file.relative_to(run)): file.read_bytes() for file in sorted(run.rglob("*.json"))}
    return {name: content for name, content in files.items() if archive.is_member(name)}


@dataclass(frozen=True)
class Inside:
    """A damage to a member before it is packed."""

    name: str
    damage: Edit | Change


@dataclass(frozen=True)
class Added:
    """Other members: ``times`` of them, whose names then are numbered; and how they are compressed."""

    name: str
    content: str
    method: int
    times: int

    def __call__(self, archive: zipfile.ZipFile) -> None:
        text, count = CONTENTS[self.content]
        if self.method == zipfile.ZIP_STORED:
            count = min(count, 20)  # more is refused by the file's size, and fills the fuzzer's own memory
        for number in range(self.times):
            name = f"cells/{number}.json" if self.times > 1 else self.name
            info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode())
            info.compress_type = self.method
            with archive.open(info, "w") as member:
                for _ in range(1 if self.times > 1 else count):
                    member.write(text)


@dataclass(frozen=True)
class Header:
    """Another figure in a field of a record: of that one of its kind."""

    mark: bytes
    at: float
    offset: int
    form: str
    figure: int

    def __call__(self, data: bytes) -> bytes:
        found = itertools.islice(re.finditer(re.escape(self.mark), data), 2000)
        places = [each.start() for each in found]
        if not places:
            return data
        figure = struct.pack("<" + self.form, self.figure & (0xFFFF if self.form == "H" else 0xFFFFFFFF))
        place = places[int(self.at * len(places))] + self.offset
        return data[:place] + figure + data[place + len(figure) :]


@dataclass(frozen=True)
class Nested:
    """The archive as the member of another one, or behind other bytes."""

    name: str

    def __call__(self, data: bytes) -> bytes:
        if not self.name:
            return data * 2
        outer = io.BytesIO()
        with zipfile.ZipFile(outer, "w") as archive:
            archive.writestr(self.name, data)
        return outer.getvalue()


def packed(parts: tuple[object, ...]) -> bytes:
    files = dict(members())
    for part in parts:
        if isinstance(part, Inside):
            files[part.name] = part.damage(files[part.name])[: 1 << 20]
    data = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        warnings.simplefilter("ignore")  # a name that appears twice
        for name, content in files.items():
            made.writestr(name, content)
        for part in parts:
            if isinstance(part, Added):
                part(made)
    whole_archive = data.getvalue()
    for part in parts:
        if isinstance(part, Header | Edit | Nested):
            whole_archive = part(whole_archive)
    return whole_archive


class Zips:
    name = "zips"

    def draw(self, chance: Random) -> Case:
        def part(chance: Random) -> object:
            kind = chance.random()
            if kind < 0.3:
                mark = chance.choice(list(HEADERS))
                offset, form = chance.choice(HEADERS[mark])
                return Header(mark, chance.random(), offset, form, chance.choice(FIGURES))
            if kind < 0.55:
                name = chance.choice((*NAMES, *(f"cells/{text}.json" for text in TEXTS)))
                # What takes seconds comes seldom.
                content = chance.choice(list(CONTENTS) if chance.random() < 0.1 else LIGHT)
                times = 3000 if content == "object" and chance.random() < 0.1 else 1
                return Added(name, content, chance.choice(METHODS), times)
            if kind < 0.6:
                return Nested(chance.choice(("plan.json", "cells/a.json", "a.zip", "")))
            if kind < 0.75:
                return edit(chance)
            name = chance.choice([*members()])
            return Inside(name, change(chance) if chance.random() < 0.75 else edit(chance))

        return Case(chance.choice(list(COMMANDS)), several(chance, part, most=4))

    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            folder = Path(name)
            (folder / FILE).write_bytes(packed(case.parts))
            known = {"RUN": FILE, "GOOD": str(whole().other)}
            argv = [known.get(word, word) for word in COMMANDS[case.start]]
            commands.require_good(commands.run(argv, folder), may_start="--plan" in argv)
