"""A measuring tool's JSON, with whatever a pipe, a terminal or an editor put around it and into it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class NoDocument(Exception):
    """There is no whole document; the message says what was found instead, as part of a sentence."""


@dataclass(frozen=True, kw_only=True)
class Embedded(Generic[T]):
    """The documents (at least one) and the text before the first and after it."""

    documents: list[T]
    before: str = ""
    after: str = ""


def quote(text: str) -> str:
    """The beginning of a text on one line, in quotes, harmless to print."""
    start = " ".join(text.strip()[:1000].split())
    shown = start if len(start) <= 160 else start[:160] + "..."
    return "'" + "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown) + "'"


def to_string(text: bytes | str, warnings: list[str]) -> str:
    """The text without encoding problems; ``warnings`` get each problem."""
    data = text.encode(errors="replace") if isinstance(text, str) else text
    try:
        string = data.decode()
    except UnicodeDecodeError as error:
        string = data.decode(errors="replace")
        warnings.append(f"the text is not UTF-8 (byte {error.start}): characters were replaced")
    if string.startswith("\ufeff"):
        string = string[1:]
        warnings.append("the text begins with a byte order mark: another program has rewritten it")
    if "\r\n" in string:
        warnings.append("lines end in CRLF: the text went through another system")
    return string


# Strings come first, so that the rest is only looked for between them. A quote that its line does not close
# counts up to the end of the line: JSON has no line breaks in strings, and the time stays linear.
_MENDABLE = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\.)*+"?)'
    r"|(?P<escape>\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_]))"
    r"|(?<=[\s:,\[])(?P<not_finite>[-+]?(?:nan|inf(?:inity)?))(?=\s*[,}\]])",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f]")
# Nearly no output has any: then nothing need be mended, and to see that takes a tenth of the time.
_SUSPICIOUS = re.compile(r"[\x00-\x09\x0b-\x1f]|nan|inf", re.IGNORECASE)


def mend(string: str, warnings: list[str]) -> str:
    """Make JSON of what C's printf and a terminal put in: nan, inf, escape sequences.

    ``nan`` becomes the string "nan", which a reader refuses like any string instead of a number.
    """
    if not _SUSPICIOUS.search(string):
        return string
    not_finite: list[str] = []
    escapes: list[str] = []

    def mended(match: re.Match[str]) -> str:
        if match.lastgroup == "not_finite":
            not_finite.append(match[0])
            return f'"{match[0]}"'
        if match.lastgroup == "escape":
            escapes.append(match[0])
            return ""
        if match[0].isprintable():
            return match[0]
        return _CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", match[0])

    string = _MENDABLE.sub(mended, string)
    if not_finite:
        warnings.append(f"not finite: {len(not_finite)} figures ({', '.join(sorted(set(not_finite)))})")
    if escapes:
        warnings.append(f"terminal escape sequences were removed: {len(escapes)}")
    return string


_OPENING = re.compile(r'\{\s*"')
# JSONDecodeError counts the lines before it: without a limit, a text of braces takes quadratic time.
_MOST_DAMAGED = 1000
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Each object around a document is read once more: without a limit, nested ones would take quadratic time.
_MOST_AROUND = 8
# Only finds where an object ends: converting its numbers would be wasted work, and may fail.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def _holds(value: object, keys: Collection[str], depth: int) -> bool:
    """Whether this, or something in it down to a depth, is an object with one of ``keys``."""
    if isinstance(value, dict) and any(key in value for key in keys):
        return True
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and any(_holds(each, keys, depth - 1) for each in within)


def find(
    string: str, keys: Collection[str], decoder: msgspec.json.Decoder[T], warnings: list[str]
) -> Embedded[T]:
    """The objects that have one of ``keys``, decoded; text around them is quoted in ``warnings``.

    They may be within other JSON: a script that runs the tool adds a status and puts its output below "data".
    Raises ``NoDocument`` if there is none, or if one has another form.
    """
    if not string.strip():
        raise NoDocument("an empty text")
    # Nearly every output is a document and no more: to look for one takes three times as long.
    if string.lstrip().startswith("{"):
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            if not _MEMBERS.decode(string).keys().isdisjoint(keys):
                return Embedded(documents=[decoder.decode(string)])
    string = mend(string, warnings)
    spans: list[tuple[int, int]] = []
    position, damaged, problem = 0, 0, f"no JSON object in a text that begins with {quote(string)}"
    while damaged < _MOST_DAMAGED and (opening := _OPENING.search(string, position)):
        start = opening.start()
        try:
            object_, end = _SCANNER.raw_decode(string, start)
        except json.JSONDecodeError as error:
            if not damaged:
                problem = f"a document that is cut or damaged in line {error.lineno}, column {error.colno}"
            # Go on after the error, not after the brace, or nested braces would take quadratic time.
            position, damaged = max(error.pos, start + 1), damaged + 1
        except RecursionError:
            raise NoDocument("JSON that is nested too deeply") from None
        else:
            is_one = _holds(object_, keys, 0)
            is_around = not is_one and _holds(object_, keys, _MOST_AROUND)
            position = start + 1 if is_around else end
            if is_one:
                spans.append((start, end))
            elif not (damaged or is_around):
                problem = f"a JSON object without any of {', '.join(keys)}"
    if not spans:
        raise NoDocument(problem)
    try:
        documents = [decoder.decode(string[start:end]) for start, end in spans]
    except (msgspec.DecodeError, RecursionError) as error:
        raise NoDocument(f"JSON of another form: {error}") from None
    before, after = string[: spans[0][0]], ""
    for (_, gap_start), (gap_end, _) in zip(spans, [*spans[1:], (len(string), 0)], strict=True):
        after += string[gap_start:gap_end]
    for where, outside in (("before", before), ("after", after)):
        if outside.strip():
            warnings.append(f"text {where} the JSON ({len(outside)} characters): {quote(outside)}")
    return Embedded(documents=documents, before=before, after=after)
