"""The command ``harness list``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from tabulate import tabulate

from harness.model import PRE_EXISTING, SWANCTL, block_word
from harness.model.choices import TextFormat
from harness.model.escape import as_json, printable
from harness.model.lines import wrapped
from harness.model.protections import STACK_EXAMPLE
from harness.model.units import format_percent, format_rate, unknown_name
from harness.parse import listed
from harness.parse.profiles import DEFAULT_PROPOSAL
from harness.terminal.common import format_option

HEADINGS = {
    "links": ("link", "rate", "round trip", "loss", "MTU", "what it is"),
    "protections": ("protection", "protocol", "cipher", "what it is"),
    "transports": ("transport", "what it is"),
    "workloads": ("workload", "profile", "rw", "bs", "iodepth", "numjobs"),
    "disks": ("disk", "what it is"),
}

NOTES = {
    "links": "Round trip: the profile's delay, without the time to send. wired has the whole delay of three "
    "switches in it; in links with hops (switched, routed, pppoe, openflow) the time in which each hop sends "
    "every frame again comes on top. Changes follow the name: wired:jumbo (MTU 9000), "
    "wired:rate=2.5G,rtt=5ms; also jitter=, loss=, mtu=, queue=, "
    "window= and unshaped. A real link (wired=eth0) takes none: it is used as it is.",
    "protections": f"on is {DEFAULT_PROPOSAL}; both is off and on; {STACK_EXAMPLE} is one "
    f"within the other. Only with --portal: {PRE_EXISTING}, what already protects the path (the default), "
    f"and {SWANCTL}FILE#CHILD, a connection of strongSwan's.",
}
"""Below the table: what the option takes besides its names."""


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
    if kind in NOTES:
        sys.stdout.write("\n" + "\n".join(wrapped(NOTES[kind], 80)) + "\n")


def _row(each: object) -> list[str]:
    match each:
        case listed.ListedLink():
            rate = "" if each.rate_bit_s is None else format_rate(each.rate_bit_s)
            trip = "-" if each.mtu_bytes else ""
            if each.round_trip_us:
                trip = f"{each.round_trip_us / 1000:g} ms"
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
