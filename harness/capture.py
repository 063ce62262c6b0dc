"""What was really on the link: tcpdump(8) at both ends, outgoing frames only.

Outgoing only, because in tunnel mode the kernel shows a received packet to taps a second time after it
has been decrypted; together the two ends see every frame once, as it left. ESP is sampled by its
sequence number (RFC 4303, section 2.2), cleartext never: one segment is enough to condemn a cell.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import Host
from harness.links import LinkPath
from harness.model import LinkProfile

SNAP_BYTES = 64
PCAP_HEADER_BYTES = 24
ETHERNET_HEADER_BYTES = 14
IPPROTO_TCP, IPPROTO_ESP = 6, 50
SAMPLES_PER_S = 64
MOST_SPARSE = 256


@dataclass(kw_only=True)
class Seen:
    """Frames that one end sent since the last look: ESP packets (sampled), the portal's TCP in clear."""

    esp: int = 0
    cleartext: int = 0


def sampling(profile: LinkProfile) -> int:
    """Of how many ESP packets one is kept: a power of two up to 256.

    It leaves some 64 a second of what the link can be expected to carry. Each kept packet wakes tcpdump,
    which the machine under test pays for; too few would prove nothing. One request at a time makes about
    four packets a round trip, whatever the rate allows.
    """
    packets_per_s = (profile.rate_bit_s or 10**10) / (1538 * 8)
    if profile.path_delay_us:
        packets_per_s = min(packets_per_s, 4e6 / (2 * profile.path_delay_us))
    sparse = max(1, int(packets_per_s / SAMPLES_PER_S))
    return min(MOST_SPARSE, 1 << (sparse.bit_length() - 1))


def expression(path: LinkPath, *, protected: bool, one_in: int) -> str:
    """The pcap-filter(7) of a column: where IPsec is off, only ESP is looked for.

    On a shared path the ESP seen may be another column's, so there the portal's own segments are looked
    for in clear, sampled by the identification of their IP headers.
    """
    hosts = f"host {path.initiator_address} and host {path.target_address}"
    portal = f"tcp port {path.port}"
    if not protected:
        return f"{hosts} and {portal} and (ip[4:2] & {one_in - 1:#x} = 0)" if path.is_shared else "esp"
    # The sequence number is the second word of ESP, behind an IP header of 20 bytes.
    sample = f"esp and (ip[24:4] & {one_in - 1:#x} = 0)"
    return f"{hosts} and (({sample}) or ({portal}))"


@dataclass(kw_only=True)
class Capture:
    """The growing capture files of both ends, and how far each has been read."""

    files: tuple[Path, ...]
    one_in: int
    of_cleartext: bool = False
    """Whether what is sampled is the portal's cleartext, not ESP."""
    _offsets: dict[Path, int] = field(default_factory=dict)

    def look(self) -> list[Seen]:
        """Count what each end has sent since the last call, in the order of ``files``."""
        found = []
        for file in self.files:
            start = self._offsets.get(file, PCAP_HEADER_BYTES)
            with file.open("rb") as stream:
                stream.seek(start)
                data = stream.read()
            seen = Seen()
            self._offsets[file] = start + count_frames(data, seen)
            found.append(seen)
        return found


def count_frames(data: bytes, seen: Seen) -> int:
    """Count the whole pcap records in ``data`` (little-endian, Ethernet); returns the bytes they took."""
    position = 0
    while position + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, position + 8)
        if position + 16 + length > len(data):
            break
        frame = data[position + 16 : position + 16 + length]
        protocol = frame[ETHERNET_HEADER_BYTES + 9] if length > ETHERNET_HEADER_BYTES + 9 else None
        seen.esp += protocol == IPPROTO_ESP
        seen.cleartext += protocol == IPPROTO_TCP
        position += 16 + length
    return position


@contextlib.contextmanager
def capture(path: LinkPath, folder: Path, *, protected: bool) -> Iterator[Capture]:
    """Watch both ends of a link for the length of the context; the files stay as raw output."""
    one_in = sampling(path.profile) if protected or path.is_shared else 1
    # A column that comes up again, after a bad cell or in a resumed run, gets files of its own: in those of
    # before, old frames would be taken for new ones.
    number = next(n for n in itertools.count(1) if not (folder / f"initiator-{n}.pcap").exists())
    files = (folder / f"initiator-{number}.pcap", folder / f"target-{number}.pcap")
    ends: tuple[tuple[Host, str], ...] = (
        (path.initiator, path.initiator_iface),
        (path.target, path.target_iface),
    )
    with contextlib.ExitStack() as stack:
        for (host, iface), file in zip(ends, files, strict=True):
            stack.enter_context(
                host.daemon(
                    ["tcpdump", "-i", iface, "-Q", "out", "-p", "-n", "-U", "--immediate-mode"]
                    + ["-Z", "root", "-s", str(SNAP_BYTES), "-w", "-"]
                    + [expression(path, protected=protected, one_in=one_in)],
                    log=file.with_suffix(".log"),
                    output=file,
                    ready=lambda file=file: file.stat().st_size >= PCAP_HEADER_BYTES,  # type: ignore[misc]
                    deadline_s=10,
                )
            )
        yield Capture(files=files, one_in=one_in, of_cleartext=path.is_shared and not protected)
