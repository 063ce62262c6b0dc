"""Sizes, times and names: what is understood, the sentences for what is not, and how they are cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.model.errors import UsageError
from harness.model.lines import wrapped
from harness.model.units import (
    check_name,
    closest,
    format_duration,
    format_size,
    parse_duration_s,
    parse_size,
    shown,
    slug,
    unknown_name,
)

CONVERTED: dict[Callable[[Any], object], tuple[tuple[object, object], ...]] = {
    parse_size: (
        *(("1", 1), ("512B", 512), ("4k", 4096), ("4K", 4096), ("128M", 128 << 20), ("64MiB", 64 << 20)),
        *(("1.5G", 3 << 29), (" 2 T ", 2 << 40), ("1P", 1 << 50), (str(2**63 - 1), 2**63 - 1)),
    ),
    parse_duration_s: (
        *(("1.5s", 1.5), ("2m", 120), ("250ms", 0.25), ("90", 90), ("1h", 3600), ("1d", 86400)),
        ("20us", 2e-5),
    ),
    format_size: (
        *((0, "0 B"), (512, "512 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB")),
        *((128 << 20, "128 MiB"), (2**20 - 1, "1 MiB"), (2**63, "8192 PiB")),
    ),
    format_duration: (
        *((0, "0 s"), (5e-5, "50 us"), (0.25, "250 ms"), (0.9999, "1 s"), (1.5, "1.5 s")),
        *((59.6, "1 min 0 s"), (125, "2 min 5 s"), (3599.7, "1 h 0 min"), (7260, "2 h 1 min")),
    ),
}

HOSTILE_NUMBERS = [
    *("", " ", "-1", "-4k", "0", "0k", "nan", "inf", "1e309", "1e3", "0x10", "k", "4kk", "4 k k", "1,5"),
    *("1_000", "٣", "4\x00", "4\nk", "$(id)", "1;", "9" * 5000, "1.", ".5", "+1", "4\u212a"),
]
SIZES = [*HOSTILE_NUMBERS, str(2**63), "8388608T", "1.0001k", "128MB", "4kb", "5s"]
DURATIONS = [*HOSTILE_NUMBERS, "0s", "1w", "4k", "1S", "106752d", str(2**63)]


@pytest.mark.parametrize("convert", CONVERTED)
def test_sizes_and_durations(convert: Callable[[Any], object]) -> None:
    for given, expected in CONVERTED[convert]:
        assert convert(given) == expected, given


@pytest.mark.parametrize(("parse", "texts"), [(parse_size, SIZES), (parse_duration_s, DURATIONS)])
def test_all_else_is_refused_with_a_hint(parse: Callable[..., object], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(UsageError) as refusal:
            parse(text, what="--what")
        said = str(refusal.value)
        assert refusal.value.message.startswith("--what: ") and refusal.value.hint, text
        assert "\n" not in said and "\x00" not in said and len(said) < 300, text
        assert text != "128MB" or "1000 or of 1024 (write 128M or 128MiB" in said


def test_names() -> None:
    for name in ("a", "wired", "4k", "aes128-sha256", "my_profile.2", "x" * 64):
        assert check_name("link", name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "-rf", ".", "..", "../x", "/etc/passwd", "a/b", "a b", "A", "a\n", "a\0", "\x1b[31m", "ä"),
        *("sda; reboot", "$(reboot)", "`id`", "a:b", "a%b", "$jobnum", "${HOME}", "x" * 65, "x" * 5000),
        *("a'b", 'a"b', "a\\b", "a|b", "a*b", "_a", "a\u2028", "\udcff"),
    ],
)
def test_names_refused(name: str) -> None:
    with pytest.raises(UsageError) as refusal:
        check_name("link", name)
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < 300
    # What the hint suggests is itself a name.
    suggestion = (refusal.value.hint or "").removeprefix("try ")
    assert check_name("link", suggestion) == suggestion


def test_a_slug_falls_back_and_unknown_names_list_what_there_is() -> None:
    assert [slug(text, fallback="x") for text in ("Seq Read!", "///")] == ["seq-read", "x"]
    assert [closest(name, ["wifi", "wired"]) for name in ("wirde", "zzz")] == ["wired", None]
    error = unknown_name("link", "wirde", ["wired", "wifi"])
    assert str(error) == "there is no link 'wirde' (did you mean wired? there are wifi, wired)"
    assert unknown_name("link", "x", []).hint == "there are none at all"


def test_shown_shortens_and_disarms() -> None:
    assert shown("a\x1b[2J") == r"'a\x1b[2J'" and len(shown("x" * 1000)) < 70


def test_neither_names_nor_percentages_are_cut() -> None:
    text = "Only in A: wired rand-read-4k, which lost between -21 and +29 % of it."
    lines = ["Only in A: wired", "  rand-read-4k, which", "  lost between -21 and", "  +29 % of it."]
    assert wrapped(text, 22, "  ") == lines
