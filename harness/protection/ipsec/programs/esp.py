"""Whether ESP works on a kernel, and a capture sees it: one packet, sent to itself.

It runs under ``unshare --net``: its loopback, states and policies belong to a network namespace that ends
with it. If anything is wrong, it says so on standard error and exits.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, cast

HERE, THERE = "127.0.0.1", "127.0.0.2"
SPI, PORT = "0x48000001", 4800
ESP = 50
"""RFC 4303: the number of the protocol."""

PCAP_HEADER_BYTES, RECORD_HEADER_BYTES, ETHERNET_BYTES = 24, 16, 14
CAPTURE = ["tcpdump", "-i", "lo", "-Q", "in", "-p", "-n", "-U", "--immediate-mode", "-Z", "root", "-w", "-"]
"""As for the columns of a run, except the direction: libpcap skips what goes out on loopback."""

DEADLINE_S = 10.0
PAYLOAD = b"harness"


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ip {words[0]} {words[1]}: {done.stderr.strip()}")


def protect() -> None:
    """Make the kernel send packets from HERE to THERE as ESP only, and accept them as ESP only."""
    # Loopback is exempt by default (net/ipv4/devinet.c).
    for word in ("disable_xfrm", "disable_policy"):
        Path(f"/proc/sys/net/ipv4/conf/lo/{word}").write_text("0")
    ip("link", "set", "lo", "up")
    ends = ["src", HERE, "dst", THERE]
    key = f"0x{os.urandom(20).hex()}"  # a key of AES-128 and RFC 4106's salt
    ip(
        *("xfrm", "state", "add", *ends, "proto", "esp", "spi", SPI, "mode", "transport"),
        *("aead", "rfc4106(gcm(aes))", key, "128"),
    )
    for way in ("out", "in"):
        template = ["tmpl", *ends, "proto", "esp", "mode", "transport"]
        ip("xfrm", "policy", "add", *ends, "proto", "udp", "dir", way, *template)


def send() -> None:
    """Send a packet, and receive it; TimeoutError if nothing arrives."""
    with socket.socket(type=socket.SOCK_DGRAM) as there, socket.socket(type=socket.SOCK_DGRAM) as here:
        there.bind((THERE, PORT))
        there.settimeout(DEADLINE_S)
        here.bind((HERE, 0))
        here.sendto(PAYLOAD, (THERE, PORT))
        if there.recv(100) != PAYLOAD:
            sys.exit("expected the packet that was sent, received another")


def captured(data: bytes) -> int:
    """The protocol of the first packet of a capture, 0 if there is none."""
    packet = data[PCAP_HEADER_BYTES + RECORD_HEADER_BYTES + ETHERNET_BYTES :]
    return packet[9] if len(packet) >= 20 else 0


def main() -> None:
    protect()
    capture = subprocess.Popen(
        [*CAPTURE, "-c", "1", "udp or esp"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    header = cast(IO[bytes], capture.stdout).read(PCAP_HEADER_BYTES)
    if len(header) == PCAP_HEADER_BYTES:
        try:
            send()
        except OSError as error:
            capture.kill()
            sys.exit(f"an ESP packet did not arrive: {error}")
    try:
        data, said = capture.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        capture.kill()
        sys.exit("tcpdump saw no packet")
    if capture.returncode != 0:
        words = said.decode(errors="replace").strip().splitlines()
        sys.exit(words[-1] if words else f"tcpdump ended with status {capture.returncode} and said nothing")
    if captured(header + data) != ESP:
        sys.exit(f"expected a packet with protocol {ESP} (ESP), found {captured(header + data)}")


main()
