"""IPsec that somebody else has set up: which policy of this end covers a leg, and how it encrypts."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import msgspec

from harness.model import IN_CLEAR, IpsecMode, Proposal, addresses
from harness.network.links import LinkPath
from harness.parse import proc_crypto
from harness.protection import xfrm, xfrm_listener
from harness.protection.ipsec.layer import EspFrames, EspLayer
from harness.protection.kind import Found, Leg
from harness.protection.xfrm_listener import SaCounters
from harness.storage import requests

WORDS = {
    "rfc4106(gcm(aes))": ("aes{}gcm16", 32),
    "rfc4309(ccm(aes))": ("aes{}ccm16", 24),
    "rfc4543(gcm(aes))": ("aes{}gmac", 32),
    "rfc7539esp(chacha20,poly1305)": ("chacha20poly1305", 32),
    "cbc(aes)": ("aes{}", 0),
    "rfc3686(ctr(aes))": ("aes{}ctr", 32),
    "cbc(des3_ede)": ("3des", 0),
    "ecb(cipher_null)": ("null", 0),
    "hmac(md5)": ("md5", 0),
    "hmac(sha1)": ("sha1", 0),
    "hmac(sha256)": ("sha256", 0),
    "hmac(sha384)": ("sha384", 0),
    "hmac(sha512)": ("sha512", 0),
    "xcbc(aes)": ("aesxcbc", 0),
    "cmac(aes)": ("aescmac", 0),
}
"""strongSwan's words for the kernel's algorithms (crypto/proposal/proposal_keywords_static.txt), and how many
bits of a key are its salt."""

_TEMPLATE = re.compile(r"tmpl src \S+ dst (\S+)\s+proto esp (?:spi \S+ )?reqid (\d+)\S* mode (\w+)")


def _number(text: str) -> int:
    """One as ip(8) prints it: 42, 0x2a, or 0.0.0.42 for the key of a tunnel."""
    return int(ip_address(text)) if text.count(".") == 3 else int(text, 0)


def _is_of(policy: xfrm.Policy, leg: Leg) -> bool:
    """Whether a policy is for what is sent on a leg (xfrm_policy_match() in net/xfrm/xfrm_policy.c)."""
    device = leg.device
    stated = device.linkinfo.info_data
    # Interfaces of IPsec's own take the policies of their number alone (xfrm), or those of their mark (vti).
    wanted = {"if_id": _number(str(stated.get("if_id", 0))), "mark": leg.mark}
    if "okey" in stated:
        wanted["mark"] = _number(str(stated["okey"]))
    if_id = re.search(r"\bif_id (\w+)", policy.rest)
    marked = re.search(r"\bmark (\w+)/(\w+)", policy.rest)
    mark, mask = marked.groups() if marked else ("0", "0")
    said = dict(re.findall(r" (proto|sport|dport|dev) (\S+)", policy.text))
    fits = {"proto": ("tcp", "6") if leg.port else (), "dport": (str(leg.port),), "dev": (device.name,)}
    source, destination = map(ipaddress.ip_network, (policy.source, policy.destination))
    return (
        policy.direction == "out"
        and ip_address(leg.source) in source
        and ip_address(leg.address) in destination
        and all(value in fits.get(name, ()) for name, value in said.items())
        and wanted["if_id"] == (_number(if_id[1]) if if_id else 0)
        and wanted["mark"] & _number(mask) == _number(mark)
    )


def _words(state: SaCounters) -> str:
    """What an association encrypts with, in strongSwan's words; "" if it has none for that."""
    found = [WORDS.get(name) for name in state.algorithms]
    bits = (*state.cipher_bits, *(0 for _ in found))
    words = [word.format(size - salt) for (word, salt), size in zip(filter(None, found), bits, strict=False)]
    return "-".join(words) if len(words) == len(found) else ""


def recognise(leg: Leg) -> Found | str | None:
    if leg.is_past_policies or not leg.source:
        return None
    policies = [policy for policy in xfrm.policies_of(leg.host) if _is_of(policy, leg)]
    policy = min(policies, key=lambda each: each.priority, default=None)
    template = _TEMPLATE.search(policy.rest) if policy is not None else None
    if template is None:
        return None
    destination, reqid, mode = template.groups()
    if mode == IpsecMode.TRANSPORT:
        destination = leg.address
    step = requests.step(
        xfrm_listener.__package__, "xfrm_listener", "associations", reqid=int(reqid), peer=destination
    )
    stated = requests.reported(leg.host, step, f"the {leg.host.name}'s associations could not be read")
    states = msgspec.convert(stated["states"], tuple[SaCounters, ...])
    between = [each for each in states if (each.destination, each.mode) == (destination, mode)]
    if not between:
        return f"IPsec to {destination} has no security association"
    state = max(between, key=lambda each: each.bytes)
    name = _words(state)
    if not name:
        return f"IPsec to {destination} encrypts by {' + '.join(state.algorithms)}, which has no known name"
    (crypto,) = leg.host.read_files(["/proc/crypto"])
    return Found(
        name=name,
        frames=EspFrames(
            addresses=(ip_address(state.source).packed, ip_address(state.destination).packed),
            family=addresses.family_of(destination),
            udp_ports=state.udp_ports,
        ),
        watch=functools.partial(_watch, state=state, reqid=int(reqid)),
        peer=destination,
        agreed={
            "proposal": name,
            "algorithm": " + ".join(state.algorithms),
            "mode": mode,
            "drivers": ", ".join(proc_crypto.drivers(crypto, state.algorithms)),
        },
        proposal=Proposal(
            name=name,
            title=name,
            esp=name,
            ike="pre-existing",
            kernel_algorithms=state.algorithms,
            encrypts=IN_CLEAR.isdisjoint(state.algorithms),
        ),
        is_past_policies=True,
    )


@contextlib.contextmanager
def _watch(
    below: LinkPath, within: LinkPath, raw: Path, *, state: SaCounters, reqid: int
) -> Iterator[EspLayer]:
    with xfrm_listener.listeners(below, raw, reqid) as watching:
        yield EspLayer(
            below=below,
            inner=within,
            algorithms=state.algorithms,
            mode=IpsecMode(state.mode),
            listeners=watching,
        )
