"""Which probes a run of cells makes of its columns, and in which rounds of its matrix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.model import Column, LinkProfile, Plan, Proposal
from harness.model.probing import Cipher, Probe, Tcp
from harness.model.protections import PROTECTIONS

TCP_S = 1
TCP_ROUNDS = 3
CIPHER_ROUNDS = 5
"""Several, because machines vary over time; more would add little."""


def due(plan: Plan, column: Column, repeat: int) -> list[tuple[Probe, int]]:
    """The probes of a column in a round, each with its own number."""
    found: list[tuple[Probe, int]] = []
    # A probe of TCP takes a program at the target.
    if plan.probes and plan.probes_paths and plan.sees_target:
        found += tcp(column, plan.links[column.link], repeat)
    # In virtual time ciphers cost nothing.
    if plan.probes and repeat <= CIPHER_ROUNDS and not plan.setting.is_virtual:
        of_cipher = of_protection(column.protection, plan.proposals)
        found += [(of_cipher, repeat)] if of_cipher is not None else []
    return found


def tcp(column: Column, link: LinkProfile, repeat: int) -> list[tuple[Tcp, int]]:
    """One in all, but of a real link without protection both directions in each of the first rounds, because
    one stream is a lower bound."""
    if link.interface is None or column.protection:
        return [(Tcp(duration_s=TCP_S), 1)]
    ways = (False, True) if repeat <= TCP_ROUNDS else ()
    return [(Tcp(duration_s=TCP_S, reverse=reverse), repeat) for reverse in ways]


def of_proposal(proposal: Proposal) -> Cipher:
    """The probe of a proposal's ciphers."""
    # strongSwan's keywords: aes256gcm16, aes256; aes alone has 128 bits.
    match = re.match(r"aes(\d{3})?", proposal.esp)
    key_bits = None if match is None else int(match[1] or 128)
    return Cipher(algorithms=proposal.kernel_algorithms, key_bits=key_bits)


def of_protection(protection: Sequence[str], proposals: Mapping[str, Proposal]) -> Cipher | None:
    """The probe of a path's cipher; None without protection, for a stack, and for what has no cipher."""
    if len(protection) != 1:
        return None
    (name,) = protection
    if name in proposals:
        return of_proposal(proposals[name])
    if name not in PROTECTIONS or not PROTECTIONS[name].algorithms:
        return None
    return Cipher(algorithms=PROTECTIONS[name].algorithms, key_bits=PROTECTIONS[name].key_bits)
