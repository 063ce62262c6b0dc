"""The commands ``harness parse TOOL``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from harness.model.escape import as_json
from harness.parse import echo, fio, iperf3, iperf_text
from harness.parse.files import read_bytes

parse_app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

PARSERS: dict[str, tuple[Callable[[bytes], object], str]] = {
    "fio": (lambda text: fio.as_json(fio.parse(text)), "fio: JSON of any version since 2.1"),
    "ping": (echo.parse_ping, "ping: iputils, busybox, macOS, BSD"),
    "iperf3": (iperf3.parse, "iperf3: JSON, or the text of a client"),
    "iperf2": (iperf_text.parse_iperf2, "iperf2: the text of a client"),
    "hping3": (echo.parse_hping3, "hping3, with or without the output of time"),
}


def _add_parser(tool: str, understand: Callable[[bytes], object], what: str) -> None:
    @parse_app.command(tool, help=f"Parse the output of {what}.")
    def parse_file(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="File with the output.", readable=False)],
    ) -> None:
        text = read_bytes(file, kind=f"{tool}'s output,")
        sys.stdout.write(as_json(understand(text)) + "\n")


for _tool, (_understand, _what) in PARSERS.items():
    _add_parser(_tool, _understand, _what)
