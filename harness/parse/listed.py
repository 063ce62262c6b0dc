"""What there is to measure with, by name: links, protections, transports, workloads and modelled disks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from harness.model import LINK_LOCAL, PROTECTION_OFF, TRANSPORTS
from harness.model.protections import MADE, PROTECTIONS
from harness.parse.disks import load_disk
from harness.parse.jobfile import described, load_jobs, shipped
from harness.parse.profiles import FOLDERS, load_link, load_proposal, names_in, search_folders


class ListedLink(msgspec.Struct, frozen=True, kw_only=True, tag="link", tag_field="kind"):
    """A link of ``--link``.

    ``rate_bit_s`` is None without a limit. ``round_trip_us`` leaves out the time to send.
    ``loss_percent`` applies to each direction.
    """

    name: str
    title: str
    rate_bit_s: int | None = None
    round_trip_us: float = 0.0
    loss_percent: float = 0.0
    mtu_bytes: int | None = None
    description: str = ""


class ListedProtection(msgspec.Struct, frozen=True, kw_only=True, tag="protection", tag_field="kind"):
    """A protection of ``--protect``.

    If its ``protocol`` is ESP, ``--ipsec`` takes it, too.
    """

    name: str
    protocol: str
    cipher: str
    description: str = ""


class ListedTransport(msgspec.Struct, frozen=True, kw_only=True, tag="transport", tag_field="kind"):
    """A transport of ``--transport``."""

    name: str
    title: str


class ListedWorkload(msgspec.Struct, frozen=True, kw_only=True, tag="workload", tag_field="kind"):
    """A workload of ``--workload`` in its ``profile``; the other fields are fio's options.

    ``bs``, in bytes, is None if there are several.
    """

    name: str
    profile: str
    rw: str
    bs: int | None
    iodepth: int | None
    numjobs: int | None


class ListedDisk(msgspec.Struct, frozen=True, kw_only=True, tag="disk", tag_field="kind"):
    """A modelled disk of ``--disk``."""

    name: str
    title: str
    description: str = ""


Listed = ListedLink | ListedProtection | ListedTransport | ListedWorkload | ListedDisk


class PrintedList(msgspec.Struct, frozen=True, kw_only=True):
    """The ``items`` that ``harness list`` prints, in its order."""

    items: tuple[Listed, ...]


def names(kind: str) -> list[str]:
    """The names of a kind of ``profiles.FOLDERS``, the user's own included."""
    return sorted(names_in(search_folders(*FOLDERS[kind])))


def workloads() -> list[str]:
    """The names of their workloads, each once."""
    return sorted({job.name for profile in shipped() for job in load_jobs(profile)[1]})


def _links() -> Iterator[ListedLink]:
    yield ListedLink(name=LINK_LOCAL, title="the disk without a network")
    found = [(name, load_link(name)) for name in names("link")]
    for name, link in sorted(found, key=lambda each: (each[1].rate_bit_s or 0, each[0])):
        yield ListedLink(
            name=name,
            title=link.title,
            rate_bit_s=link.rate_bit_s,
            round_trip_us=2 * link.path_delay_us,
            loss_percent=link.loss_percent,
            mtu_bytes=link.mtu_bytes,
            description=link.description,
        )


def _protections() -> Iterator[ListedProtection]:
    yield ListedProtection(name=PROTECTION_OFF, protocol="none", cipher="none", description="in clear")
    for proposal in map(load_proposal, names("proposal")):
        yield ListedProtection(
            name=proposal.name, protocol="ESP", cipher=proposal.title, description=proposal.description
        )
    for name in MADE:
        each = PROTECTIONS[name]
        yield ListedProtection(
            name=name, protocol=each.title, cipher=each.cipher, description=each.description
        )


def _workloads() -> Iterator[ListedWorkload]:
    for profile in shipped():
        for job in load_jobs(profile)[1]:
            found = described(job)
            yield ListedWorkload(
                name=job.name,
                profile=profile,
                rw=dict(job.options)["rw"] or "",
                bs=found.block_bytes,
                iodepth=found.depth,
                numjobs=found.numjobs,
            )


LISTS: Mapping[str, Callable[[], Iterator[Listed]]] = {
    "links": _links,
    "protections": _protections,
    "transports": lambda: (ListedTransport(name=name, title=title) for name, title in TRANSPORTS.items()),
    "workloads": _workloads,
    "disks": lambda: (
        ListedDisk(name=disk.name, title=disk.title, description=disk.description)
        for disk in map(load_disk, names("disk"))
    ),
}
"""By the word after ``harness list``. UsageError for a file that is wrong."""
