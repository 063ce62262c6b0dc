"""Links and ESP proposals by name: TOML files of the user's and of the project's, checked and typed.

The keys of a file are the fields of its Struct in ``model``; its name is the file's name.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from harness.model import (
    IN_CLEAR,
    IPV4,
    IPV6,
    LINK_LOCAL,
    PROTECTION_OFF,
    Duplex,
    Family,
    Hops,
    LinkProfile,
    Proposal,
)
from harness.model.errors import UsageError
from harness.model.kinds import HOPS
from harness.model.protections import IKE_SETTINGS
from harness.model.units import check_name, shown, unknown_name
from harness.parse import of_hops
from harness.parse.files import TomlFile, read_bytes, read_text, shown_path
from harness.parse.ranges import Refuse, check_ranges

DEFAULT_PROPOSAL = "aes128gcm16"
"""What ``--ipsec on`` means."""

_MEANINGS = {"on": (DEFAULT_PROPOSAL,), "both": (PROTECTION_OFF, DEFAULT_PROPOSAL)}


def data_folder() -> Path:
    """The folder with ``profiles/``, ``ipsec/`` and ``packages.txt``: as installed, or the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data"
    return installed if installed.is_dir() else package.parent


def search_folders(*parts: str) -> tuple[Path, ...]:
    """Where files of the kind ``parts`` are looked up; the first match counts.

    ``parts`` is a path below the data folder: ``("profiles", "links")`` or ``("ipsec",)``. The working
    directory has the same layout; below ``$XDG_CONFIG_HOME/harness`` (or ``~/.config/harness``) only its last
    part counts.
    """
    config = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
    return (
        Path(*parts),
        Path(config, "harness", parts[-1]),
        data_folder().joinpath(*parts),
    )


_REAL = re.compile(r"(?P<name>[^=:/.]+)=(?P<interface>[^@]+)(?:@(?P<portal>.+))?")
_INTERFACE = re.compile(r"[^\s/:@]{1,15}", re.ASCII)
"""dev_valid_name() of net/core/dev.c, and no modifiers."""


def is_real(spec: str) -> bool:
    """Whether ``spec`` names a real interface: ``wired=eth0``, ``wifi=wlan0@192.168.1.10``."""
    return _REAL.fullmatch(spec) is not None


def real_link(spec: str) -> LinkProfile:
    """The link of ``NAME=INTERFACE[@ADDRESS]``: as it is, with nothing known about it and nothing changed."""
    match = _REAL.fullmatch(spec)
    if match is None or not _INTERFACE.fullmatch(match["interface"]):
        raise UsageError(
            f"link {shown(spec)}: expected NAME=INTERFACE or NAME=INTERFACE@ADDRESS, such as wired=eth0; a "
            "real interface takes no modifiers, because it is used as it is",
            hint="`ip link` lists the interfaces",
        )
    name = check_name("link", match["name"])
    if name == LINK_LOCAL:
        raise UsageError(
            f"link {shown(spec)}: '{LINK_LOCAL}' is the disk without a network", hint="choose another name"
        )
    portal = match["portal"]
    if portal:
        try:
            # In the one form that kernels print.
            portal = str(ipaddress.ip_address(portal))
            if "%" in portal:
                raise ValueError("a scope")
        except ValueError as error:
            raise UsageError(
                f"link {shown(spec)}: expected an IPv4 or IPv6 address of the target after @, without a "
                f"scope, found {shown(match['portal'])}",
                hint=f"try {name}={match['interface']}@192.168.1.10",
            ) from error
    return LinkProfile(
        name=name,
        title=f"{name} ({match['interface']})",
        emulated=False,
        description="a real interface",
        interface=match["interface"],
        portal=portal,
    )


IPV6_NAME, IPV6_TITLE = "-ip6", ", IPv6"
"""The ends of a link's name and title that say so."""

LEAST_IPV6_MTU = 1280
"""RFC 8200, section 5."""


def over_ip(profile: LinkProfile, family: Family) -> LinkProfile:
    """A link as it is with a version of IP. With IPv6, its name and title say so."""
    if profile.portal is not None and ipaddress.ip_address(profile.portal).version != family:
        raise UsageError(
            f"link {profile.name}: expected an IPv{family} address of the target after @, "
            f"found {shown(profile.portal)}",
            hint="--ip 6 is for IPv6, and IPv4 is the default",
        )
    if family == IPV4:
        return profile
    if profile.mtu_bytes < LEAST_IPV6_MTU:
        raise UsageError(
            f"link {profile.name}: IPv6 takes an MTU of {LEAST_IPV6_MTU} or more, found {profile.mtu_bytes}",
            hint=f"give it an MTU of {LEAST_IPV6_MTU} or more (:mtu=N), or leave --ip 6 out",
        )
    return msgspec.structs.replace(
        profile,
        name=check_name("link", f"{profile.name}{IPV6_NAME}"),
        title=f"{profile.title}{IPV6_TITLE}",
        family=IPV6,
    )


FOLDERS = {
    "link": ("profiles", "links"),
    "proposal": ("ipsec",),
    "disk": ("profiles", "disks"),
    "CPU cost file": ("profiles", "cpu-costs"),
    "profile": ("profiles",),
}
"""Where files of a kind are, for ``search_folders``."""

SUFFIXES = (".toml", ".fio")


def overrides(kind: str, names: Iterable[str]) -> Iterator[str]:
    """Those of names, or of files, that are not what is shipped by that name: ``link wired:
    profiles/links/wired.toml``."""
    parts = FOLDERS[kind]
    for name in dict.fromkeys(names):
        is_file = name.endswith(SUFFIXES)
        path = Path(name) if is_file else find(kind, name, search_folders(*parts), known=())
        shipped = data_folder().joinpath(*parts, path.name)
        if shipped.is_file() and read_bytes(path) != read_bytes(shipped):
            yield f"{kind} {path.stem}: {shown_path(path)}"


def load_link(spec: str, folders: Sequence[Path] | None = None) -> LinkProfile:
    """The link profile of ``spec``: ``NAME`` or ``FILE.toml``, then modifiers after colons.

    ``:unshaped`` removes rate, delay, jitter, loss, window and half duplex; ``:rate=2.5G,rtt=5ms`` and so on
    (``modifiers.QUANTITIES``) set a quantity; ``:jumbo`` is ``:mtu=9000``. Links with hops have more of them.
    The profile's name says what it is, and is valid in file names: ``wired:jumbo:unshaped`` is called
    ``wired-unshaped-mtu9000``.

    ``folders`` replaces ``search_folders("profiles", "links")``. ``LINK_LOCAL`` has no profile: callers treat
    it before they ask. UsageError for unknown names and modifiers, and for files that are wrong.
    """
    base, *modifiers = spec.split(":")
    if Path(base).name in (LINK_LOCAL, f"{LINK_LOCAL}.toml"):
        raise UsageError(
            f"link {shown(spec)}: '{LINK_LOCAL}' is the disk without a network and has no profile to change",
            hint=f"use plain '{LINK_LOCAL}', or put the modifiers on another link",
        )
    if folders is None:
        folders = search_folders(*FOLDERS["link"])
    path = Path(base) if base.endswith(".toml") else find("link", base, folders, known=(LINK_LOCAL,))
    file = TomlFile("link", path, read_text(path, "link"))
    # Profiles are those of emulated links: real interfaces are named on the command line.
    profile = file.load_named(LinkProfile, interface=None, portal=None, base="")
    check_link(profile, file.refuse)
    if (unknown := unknown_hops(profile)) is not None:
        raise file.refuse("hops", unknown.message, unknown.hint or "")
    if modifiers or profile.hops is not None:
        from harness.parse.modifiers import modify  # here, because most links are as their file says

        profile = modify(profile, spec, modifiers, lambda name: load_link(name, folders))

    def refuse(key: str, message: str, hint: str) -> UsageError:
        return UsageError(f"link {shown(spec)}: {key}: {message}", hint=hint)

    check_link(profile, refuse)
    return profile


def unknown_hops(profile: LinkProfile) -> UsageError | None:
    """The error for hops of a kind that is not here, which no run can bring up."""
    if profile.hops is None or profile.hops.kind in HOPS:
        return None
    return unknown_name("kind of hops", profile.hops.kind, HOPS)


def load_proposal(name: str, folders: Sequence[Path] | None = None) -> Proposal:
    """The ESP proposal of that name. ``folders`` replaces ``search_folders("ipsec")``.

    UsageError for unknown names (the message lists the known ones) and for files that are wrong.
    """
    if folders is None:
        folders = search_folders(*FOLDERS["proposal"])
    path = find("proposal", name, folders, known=(PROTECTION_OFF, *_MEANINGS))
    file = TomlFile("proposal", path, read_text(path, "proposal"))
    proposal = file.load_named(Proposal)
    check_proposal(proposal, file.refuse)
    return proposal


def expand_ipsec(options: str | Sequence[str]) -> tuple[str, ...]:
    """What ``--ipsec`` asks for, each once and in the order asked: ``off`` or names of proposals.

    Takes one value or all values of a repeated option, each a comma list; ``on`` is ``DEFAULT_PROPOSAL`` and
    ``both`` is ``off`` and that. UsageError for empty or invalid names; ``load_proposal`` says whether a
    proposal exists.
    """
    asked = [options] if isinstance(options, str) else options
    names = [
        name
        for word in ",".join(asked).split(",")
        for name in _MEANINGS.get(word.strip(" ")) or (_stack(word.strip(" ")),)
    ]
    return tuple(dict.fromkeys(names))


def _stack(word: str) -> str:
    """One name, or several joined by ``+``. UsageError for text that cannot be a name."""
    for name in word.split("+"):
        check_name("proposal", name)
    return word


def find(kind: str, name: str, folders: Sequence[Path], known: Sequence[str]) -> Path:
    """The first file ``NAME.toml`` in ``folders``; ``known`` are names that need no file."""
    check_name(kind, name)
    for folder in folders:
        path = folder / f"{name}.toml"
        # A folder that may not be entered, such as another user's configuration, has nothing to offer.
        with contextlib.suppress(OSError):
            if path.is_file():
                return path
    raise unknown_name(kind, name, names_in(folders).union(known))


def names_in(folders: Sequence[Path]) -> set[str]:
    """The names of all files ``NAME.toml`` in these folders."""
    return {file.stem for folder in folders for file in folder.glob("*.toml")}


def check_link(profile: LinkProfile, refuse: Refuse) -> None:
    """Raise ``refuse``'s error for the first figure that no link can have."""
    check_ranges(profile, refuse)
    if profile.emulated is (profile.interface is not None):
        raise refuse(
            "emulated",
            "expected true: only a real interface, named on the command line, is not emulated",
            "otherwise tables would show its figures as measured over a real link",
        )
    if profile.jitter_us > profile.delay_us:
        raise refuse(
            "jitter_us",
            f"expected at most delay_us, which is {profile.delay_us:g}, found {profile.jitter_us:g}",
            "no packet arrives before it was sent: raise delay_us or lower jitter_us",
        )
    if profile.duplex is Duplex.HALF and profile.rate_bit_s is None:
        raise refuse(
            "duplex",
            "half duplex shares rate_bit_s between both directions, but rate_bit_s is missing",
            'add rate_bit_s, or say duplex = "full"',
        )
    if profile.hops is not None:
        _check_hops(profile, profile.hops, refuse)


def _check_hops(profile: LinkProfile, hops: Hops, refuse: Refuse) -> None:
    # Of a kind that is not here nothing else is known, and results have it.
    kind = HOPS.get(hops.kind)
    low, high = (kind.least, kind.most) if kind is not None else (0, hops.most)
    if not low <= hops.least <= hops.count <= hops.most <= high:
        raise refuse(
            "hops",
            f"expected {low} <= least <= count <= most <= {high} of the kind {hops.kind}, found "
            f"{shown(str(hops.least))}, {shown(str(hops.count))} and {shown(str(hops.most))}",
            "compare it with a shipped file, such as profiles/links/switched.toml",
        )
    check_ranges(hops, refuse, "hops")
    for words in of_hops.OF_KINDS.values():
        words.check(hops, refuse)
    if profile.tcp_window_bytes is not None and hops.is_routed:
        raise refuse(
            "tcp_window_bytes", "a window can be limited only if the ends are in one network", "leave one out"
        )
    if profile.duplex is Duplex.HALF or profile.radio is not None:
        raise refuse("hops", "a link with hops is made of cables, full duplex", "leave one out")


CHARON_PLUGINS = {
    *("aes", "aesni", "af-alg", "blowfish", "botan", "ccm", "chapoly", "cmac", "constraints", "ctr"),
    *("curve25519", "des", "drbg", "fips-prf", "gcm", "gcrypt", "gmp", "hmac", "kdf", "md4", "md5", "mgf1"),
    *("ml", "newhope", "nonce", "ntru", "openssl", "pem", "pkcs1", "pkcs12", "pkcs7", "pkcs8", "pubkey"),
    *("random", "rc2", "rdrand", "sha1", "sha2", "sha3", "wolfssl", "x509", "xcbc"),
}
"""strongSwan's that only calculate. Others change the machine or talk to it: bypass-lan makes policies by
which neighbours are reached in clear, farp answers ARP, kernel-libipsec takes ESP from the kernel."""


def check_proposal(proposal: Proposal, refuse: Refuse) -> None:
    """These words are written into charon's configuration, so nothing else may slip in with them."""
    words = r"[a-z0-9_-]{1,64}"
    for key, pattern, values in (
        ("esp", words, (proposal.esp,)),
        ("ike", words, (proposal.ike,)),
        ("kernel_algorithms", r"[a-z0-9_(),-]{1,64}", proposal.kernel_algorithms or ("",)),
        ("charon_plugins", words, proposal.charon_plugins),
        ("settings", r"[a-z0-9._-]{1,64}", tuple(proposal.settings.values())),
    ):
        for value in values:
            if not re.fullmatch(pattern, value):
                raise refuse(
                    key,
                    f"expected names as strongSwan and the kernel spell them, found {shown(value)}",
                    "compare it with a shipped file, such as ipsec/aes128gcm16.toml",
                )
    known = [name for names in IKE_SETTINGS.values() for name in names]
    if others := sorted({*proposal.settings} - {*known}):
        raise refuse(
            "settings",
            f"expected settings of a connection, found {', '.join(others)}",
            f"these are: {', '.join(known)}",
        )
    for name in IKE_SETTINGS["daemon"]:
        # charon takes its default for what it cannot read, and says nothing.
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", value := proposal.settings.get(name, "0")):
            raise refuse("settings", f"expected {name} as a number, found {shown(value)}", f"try {name}=2")
    if others := sorted({*proposal.charon_plugins} - CHARON_PLUGINS):
        raise refuse(
            "charon_plugins",
            f"expected plugins that only do cryptography, found {', '.join(others)}",
            f"these do: {', '.join(sorted(CHARON_PLUGINS))}",
        )
    in_clear = sorted(IN_CLEAR.intersection(proposal.kernel_algorithms))
    if proposal.encrypts is bool(in_clear):
        found = f"{in_clear[0]} leaves" if in_clear else f"{' + '.join(proposal.kernel_algorithms)} leaves no"
        raise refuse(
            "encrypts",
            f"expected {str(not in_clear).lower()}, because {found} data readable",
            "say so in the file, and do not name it after a cipher",
        )
