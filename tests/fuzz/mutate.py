"""Damage as data, so that it can be made again and reduced: edits of bytes, changes of a JSON document."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from random import Random
from typing import Any

NUMBERS = (
    *("0", "-0", "1", "-1", "0.0", "-0.0", "1e-320", "1e308", "-1e308", "1e309", "nan", "-nan", "NaN", "inf"),
    *("Infinity", "-Infinity", "9" * 20, "9" * 400, "1" * 5000, "0x10", "1_000", "1e5", "1,5", "٣", "²", ""),
    *(" ", str(2**31), str(2**53 + 1), str(2**63 - 1), str(2**63), str(2**64), "4294967296", "0.1e-9"),
    *("1/0", "true"),
)
"""What may stand where a number is expected."""

TEXTS = (
    *("\x1b[2J", "\x1b]0;title\x07", "[/b]", "[red]", "[link=file:///etc/passwd]x[/link]"),
    *("\N{RIGHT-TO-LEFT OVERRIDE}", "../../../etc/passwd", "/etc/passwd", "/dev/zero", "/proc/self/mem"),
    *("~", "-", "--", "-rf", "a/b", "a\0b", ".", "$(touch owned)", "`touch owned`", "; touch owned", "%s%n"),
    *("${HOME}", "{0}", "a\nb", "a\r\nb", "\t", "\u2028", "<script>alert(1)</script>", "</svg>", '"', "'"),
    *("\\", "=1+1", "@SUM(1)", "|", "&amp;", "\\input{x}", "🦀", "x" * 300, "ä" * 200, "\ud800", "None"),
    *("null", "local", "wired", "r1", "a.b.r1", "ssh://-oProxyCommand=x", ":"),
)
"""What may stand where a name is expected."""

ODD = (*NUMBERS, *TEXTS)
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_VALUE = re.compile(rb"(?<==)[ \t]*(?:\"[^\"\n]*\"|[^\n,}\]]*)")
_ALPHABET = b'0123456789./,:%-+eE[]{}()<>"=\\ \n\r\t\x00\x1b\x7f\xff\xc3NKMGT'


@dataclass(frozen=True)
class Edit:
    """One damage to a text: at which part of its length (0 to 1), to how many bytes, with what."""

    kind: str
    at: float
    length: int = 1
    text: bytes = b""

    def __call__(self, data: bytes) -> bytes:
        start = int(self.at * len(data))
        end = min(len(data), start + self.length)
        match self.kind:
            case "replace":
                return data[:start] + self.text + data[end:]
            case "flip" if start < len(data):
                return data[:start] + bytes([data[start] ^ (1 << self.length % 8)]) + data[start + 1 :]
            case "cut":
                return data[:start]
            case "begin late":
                return data[start:]
            case "repeat":
                return data[:end] + data[start:end] * 2 + data[end:]
            case "move":
                return data[:start] + data[end:] + data[start:end]
            case "line" if lines := data.splitlines(keepends=True):
                # One line less, twice, or elsewhere.
                number = int(self.at * len(lines))
                other = (number + self.length) % len(lines)
                line = lines.pop(number)
                return b"".join([*lines[:other], *[line] * (self.length % 3), *lines[other:]])
            case "number" if found := _NUMBER.search(data, start):
                return data[: found.start()] + self.text + data[found.end() :]
            case "value" if found := _VALUE.search(data, start):
                return data[: found.start()] + b" " + self.text + data[found.end() :]
        return data


KINDS = ("replace", *["replace", "line", "flip", "cut", "begin late", "repeat", "move"], *["number"] * 3)


def edit(chance: Random) -> Edit:
    kind = chance.choice(KINDS)
    length = chance.choice((0, 1, 1, 2, 8, 40, 400))
    if kind == "number":
        text = chance.choice(NUMBERS).encode()
    elif chance.random() < 0.4:
        text = chance.choice(ODD).encode(errors="surrogatepass")
    else:
        text = bytes(chance.choice(_ALPHABET) for _ in range(chance.choice((0, 1, 1, 2, 5))))
    return Edit(kind, chance.random(), length, text)


_TOML = (*NUMBERS, "[]", "{}", "[[]]", "[1]", "false", "1979-05-27T07:32:00Z", '""', "[{}]", "''")


def rewrite(chance: Random) -> Edit:
    """One damage to a text that a person writes: half of them another value of a key."""
    if chance.random() < 0.5:
        return edit(chance)
    text = chance.choice(_TOML) if chance.random() < 0.6 else json.dumps(chance.choice(ODD))
    return Edit("value", chance.random(), text=text.encode())


@dataclass(frozen=True)
class Change:
    """One damage to a JSON document: at which part of all its values (0 to 1), and what becomes of it."""

    kind: str
    at: float
    value: str = ""
    """JSON, which Python's ``json`` takes with NaN and the like."""

    def __call__(self, data: bytes) -> bytes:
        try:
            whole = json.loads(data)
        except (ValueError, RecursionError):
            return data
        if not (found := places(whole)):
            return data

        holder, key = found[int(self.at * len(found))]
        value = json.loads(self.value) if self.value else None
        match self.kind:
            case "set":
                holder[key] = value
            case "like":
                same = [other for other in _VALUES_AND_TEXTS if type(other) is type(holder[key])]
                holder[key] = same[int(self.at * 1e6) % len(same)] if same else value
            case "remove":
                del holder[key]
            case "rename" if isinstance(holder, dict):
                holder[str(value)] = holder.pop(key)
            case "wrap":
                holder[key] = [holder[key], value]
            case "repeat" if isinstance(holder, list):
                holder.extend([holder[key]] * 50)
            case "swap":
                other, name = found[(int(self.at * len(found)) + 7) % len(found)]
                holder[key] = copy.deepcopy(other[name])
        return json.dumps(whole).encode()


def places(whole: Any) -> list[tuple[Any, Any]]:
    """Every value of a document but the whole: what holds it, and its key or number there."""
    found: list[tuple[Any, Any]] = []
    left = [whole]
    while left:
        if isinstance(holder := left.pop(), dict | list):
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            found += [(holder, key) for key in keys]
            left += [holder[key] for key in keys]
    return found


CHANGES = ("set", "set", *["like"] * 8, "remove", "remove", "rename", "wrap", "repeat", "swap")
_VALUES = (
    *("0", "-1", "1", "0.0", "-0.0", "1e308", "-1e308", "1e-320", "NaN", "Infinity", "-Infinity", "null"),
    *("true", "[]", "{}", '""', "[[[[]]]]", "9" * 400, str(2**63), str(2**63 - 1), str(2**64), "0.5", "1e18"),
    *("1500", '"0"', "[1]"),
)
_VALUES_AND_TEXTS = (*(json.loads(value) for value in _VALUES), False, *TEXTS)


def change(chance: Random) -> Change:
    kind = chance.choice(CHANGES)
    text = chance.choice(_VALUES) if chance.random() < 0.6 else json.dumps(chance.choice(ODD))
    return Change(kind, chance.random(), text)
