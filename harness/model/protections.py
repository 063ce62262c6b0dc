"""Protections other than the ESP proposals of ``ipsec/``: names, bytes they add to packets, and in
which orders they can be nested.

Readers of results need only this; the code that sets one up is in ``protection/``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from harness.model import kinds
from harness.model.errors import UsageError

OFF: Final = "off"
"""The word for no protection, as typed and as shown."""

UDP_HEADER_BYTES = 8
"""RFC 768."""


RETRANSMISSION: Final = {"retransmit_timeout": "4.0", "retransmit_base": "1.8", "retransmit_tries": "5"}
"""strongSwan's defaults (strongswan.conf(5)); the first in s."""

IKE_SETTINGS: Final = {
    "connection": ("dpd_delay", "rekey_time", "reauth_time"),
    "child": ("start_action", "dpd_action", "close_action"),
    "daemon": tuple(RETRANSMISSION),
}
"""What a proposal may set of a connection and of its child, in the words of swanctl.conf(5), and of charon
itself, in those of strongswan.conf(5)."""

CHARON: Final = "charon"

_IKE_TIMERS: Final = (
    kinds.Timer(
        source=CHARON,
        # Without an SPI it is of a negotiation that goes on.
        said="^creating delete job for CHILD_SA ESP/0x(?!0+/)",
        did="ended the kernel's wait for keys",
        parameters=("xfrm_acq_expires",),
    ),
    kinds.Timer(
        source=CHARON,
        said="^giving up after (?P<count>[0-9]+) retransmits",
        did="gave its peer up after {count} retransmissions",
    ),
    kinds.Timer(
        source=CHARON,
        said="^retransmit (?P<count>[0-9]+) of request",
        did="asked its peer again (retransmission {count})",
        repeats=True,
    ),
)


KEPT_KEYS: Final = (
    "Its keys are of before the boot, and charon keeps them until it rekeys: try --ike dpd_delay=10s."
)
"""Of an initiator with IPsec whose target has booted."""


class StackPlace(enum.StrEnum):
    """Where in a stack a protection is, from the outside."""

    LINK = "link"
    """Over Ethernet."""

    INTERFACE = "interface"
    """Over IP, as an interface of its own."""

    WITHIN = "within"
    """Within both, because it keeps the path's addresses, so a protection within it could not be recognised.
    So do proposals."""


class Encapsulation(kinds.Declared, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A protection in a stack, and around packets. ``cipher`` and ``description`` are for lists,
    ``algorithms`` are the kernel's names for what it encrypts with, with keys of ``key_bits`` if several are
    possible.

    Each packet grows by ``around_bytes`` of headers and check values, with ``has_ip`` also by a header of the
    link's IP, after it was padded to a multiple of ``pads_to_bytes``, but not beyond what passes. Of what
    surrounds it ``sealed_bytes`` are encrypted; it ``encrypts`` what it carries, or only authenticates that
    by ``algorithms``, or does neither.
    The link's MTU shrinks by ``takes_bytes``. ``is_queued``: a worker encrypts, so for TCP packets have not
    been sent until then. It ``is_made_again`` on a target that has booted. With ``pre_existing`` no run makes
    it, and what it makes of packets is unknown. If it ``is_missing``, results have it, and the harness does
    not. ``timers`` decide when its keys are new.
    """

    place: StackPlace
    cipher: str = ""
    description: str = ""
    algorithms: tuple[str, ...] = ()
    key_bits: int | None = None
    around_bytes: int = 0
    has_ip: bool = False
    sealed_bytes: int = 0
    pads_to_bytes: int = 1
    takes_bytes: int = 0
    is_queued: bool = False
    is_made_again: bool = False
    encrypts: bool = True
    pre_existing: bool = False
    is_missing: bool = False
    timers: tuple[kinds.Timer, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether it is known what it makes of packets."""
        return not (self.pre_existing or self.is_missing)

    @property
    def has_cipher(self) -> bool:
        """Whether a core encrypts, or computes check values."""
        return self.encrypts or bool(self.algorithms)

    def inner_mtu_bytes(self, mtu_bytes: int) -> int:
        """The longest IP packet that fits, where ``mtu_bytes`` fit without it."""
        return mtu_bytes - self.takes_bytes


RECORDED: Final = ("wireguard", "macsec", "macsec-mka", "tls", "tunnel")
"""Names in stored results that are no ESP proposals, also of kinds that are not here any more."""


def missing(name: str) -> Encapsulation:
    return Encapsulation(name=name, title=name, order=0, place=StackPlace.WITHIN, is_missing=True)


_HERE = kinds.declared("protection", Encapsulation)

PROTECTIONS: Final = _HERE | {name: missing(name) for name in RECORDED if name not in _HERE}
"""By the names of columns."""

MADE: Final = tuple(name for name, each in _HERE.items() if not each.pre_existing)
"""Those that a run can bring up."""

NESTING: Final = tuple(
    tuple(name for name, each in _HERE.items() if each.place is place) for place in StackPlace
)
"""Which can be at each place, from the outside."""


def require(name: str) -> None:
    """UsageError for one that results have and the harness does not."""
    if name in PROTECTIONS and PROTECTIONS[name].is_missing:
        raise UsageError(
            f"expected a protection that this harness has, found {name}", hint="see: harness list protections"
        )


def has_cipher(protection: str) -> bool:
    """Whether a protection of a column costs the work of a cipher or a check, as each proposal does."""
    return protection not in PROTECTIONS or PROTECTIONS[protection].has_cipher


def timers(protection: str) -> tuple[kinds.Timer, ...]:
    """Those of a protection of a column; what is none of the others has IKE's."""
    return PROTECTIONS[protection].timers if protection in PROTECTIONS else _IKE_TIMERS


def protocol(protection: str) -> str:
    """The protocol of a protection's packets on the wire."""
    return PROTECTIONS[protection].title if protection in PROTECTIONS else "ESP"


SEPARATOR = "+"
"""Between the protections of a stack, as typed."""

_OUTER = [name for names in NESTING[:-1] for name in names if name in MADE]

STACK_EXAMPLE = SEPARATOR.join((*_OUTER[:1], "aes128gcm16"))


def place_of(name: str) -> int:
    """A protection's place in a stack, from the outside. What is none of the others is an ESP proposal."""
    return next((place for place, names in enumerate(NESTING) if name in names), len(NESTING) - 1)


def check_stack(protection: Sequence[str]) -> None:
    """UsageError for an impossible order: the link's comes first, IPsec or TLS last, each once at most."""
    places = [place_of(name) for name in protection]
    if places != sorted(set(places)):
        order = " before ".join(" or ".join(names) for names in NESTING)
        raise UsageError(
            f"{SEPARATOR.join(protection)}: expected {order} or an ESP proposal, one of each at most: the "
            "outermost on the wire comes first",
            hint=f"try {STACK_EXAMPLE}",
        )


def split_stack(text: str) -> tuple[str, ...]:
    """A stack as typed, ``macsec+aes128gcm16``; empty for ``off``. UsageError for an impossible order."""
    names = () if text == OFF else tuple(text.split(SEPARATOR))
    check_stack(names)
    return names
