"""The command ``harness list``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from tabulate import tabulate

from harness.cli.common import format_option
from harness.model import block_word
from harness.model.choices import TextFormat
from harness.model.escape import as_json, printable
from harness.model.units import format_percent, format_rate, unknown_name
from harness.parse import listed

HEADINGS = {
    "links": ("link", "rate", "round trip", "loss", "MTU", "what it is"),
    "protections": ("protection", "protocol", "cipher", "what it is"),
    "transports": ("transport", "what it is"),
    "workloads": ("workload", "profile", "rw", "bs", "iodepth", "numjobs"),
    "disks": ("disk", "what it is"),
}


def list_command(
    kind: Annotated[str, typer.Argument(metavar="WHAT", help=f"{', '.join(listed.LISTS)}.")],
    format: Annotated[str, format_option(TextFormat)] = TextFormat.TEXT,
) -> None:
    """List links, protections, transports, workloads or disks.

    Files of your own are listed, too: profiles/links/, profiles/disks/ and ipsec/ in the current folder, and
    links/, disks/ and ipsec/ in ~/.config/harness.
    """
    shape = TextFormat(format)
    if kind not in listed.LISTS:
        raise unknown_name("list", kind, listed.LISTS)
    items = tuple(listed.LISTS[kind]())
    if shape is TextFormat.JSON:
        sys.stdout.write(as_json(listed.PrintedList(items=items)) + "\n")
        return
    rows = [[printable(cell) for cell in _row(each)] for each in items]
    sys.stdout.write(tabulate(rows, HEADINGS[kind], disable_numparse=True) + "\n")


def _row(each: object) -> list[str]:
    match each:
        case listed.ListedLink():
            rate = "" if each.rate_bit_s is None else format_rate(each.rate_bit_s)
            trip = f"{each.round_trip_us / 1000:g} ms" if each.mtu_bytes else ""
            loss = format_percent(each.loss_percent / 100) if each.loss_percent else ""
            return [each.name, rate, trip, loss, str(each.mtu_bytes or ""), _what(each)]
        case listed.ListedProtection():
            return [each.name, each.protocol, each.cipher, each.description]
        case listed.ListedTransport():
            return [each.name, each.title]
        case listed.ListedWorkload():
            size = "" if each.bs is None else block_word(each.bs)
            return [each.name, each.profile, each.rw, size, str(each.iodepth or ""), str(each.numjobs or "")]
        case listed.ListedDisk():
            return [each.name, _what(each)]
    raise AssertionError(each)


def _what(each: listed.ListedLink | listed.ListedDisk) -> str:
    return ", ".join(filter(None, (each.title, each.description)))
