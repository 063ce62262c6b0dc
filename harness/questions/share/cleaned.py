"""A run as one file for others: its figures, without what tells whose they are.

What may be in it is a list, and everything else is left out. Numbers, enumerations and words that a type
declares are kept. Of each kind of text (``model.texts``) ``RULES`` says what becomes of it, of a few fields
``FIELDS``: what has the grammar of the field stays, such as a name that the harness ships with figures and
their units; instead of anything else its kind stands there with a number (the same one wherever it stands),
or nothing. A field in neither is an error, and so a test says which has no rule yet. Outputs of tools,
captures and logs are not in it.
"""

from __future__ import annotations

import enum
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import inspect

from harness.model import (
    ENDS,
    FILE_SYSTEMS,
    LATENCIES,
    LINK_LOCAL,
    PROTECTION_OFF,
    TRANSPORTS,
    HopKindName,
    Plan,
    Record,
    TransportName,
    kinds,
    texts,
)
from harness.model.errors import UsageError
from harness.model.kinds import HOPS
from harness.model.lines import counted
from harness.model.protections import PROTECTIONS
from harness.model.telemetry import CPU_SATURATED, NOT_STEADY, WARMING_UP
from harness.parse.files import shown_path
from harness.parse.jobfile import load_jobs
from harness.parse.profiles import data_folder
from harness.results import sections
from harness.results.axes import AXES
from harness.results.machine import MACHINE, TOOLS
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder, record_key

T = TypeVar("T")
WITHHELD = "a shared file does not say it"
"""Instead of a sentence that may name something."""

ROOTS = (Plan, Record, ProbeRecord, *(section.holds for section in sections.known().values()))
"""The types of all that is in a shared file, but for the environment (``FACTS``)."""

_TOKEN = re.compile(r"[^\s,;()\[\]+=-]+")
_HOPS = re.compile(r"(?:switched|routed)-[0-9]{1,2}(?![0-9.])")
_NUMBER = r"(?:0|[1-9][0-9]{0,4})(?:\.[0-9]{1,3})?"
_QUANTITY = re.compile(
    # With its unit, or behind the word that it is of: 5ms, 256k, 50%, qd16, mtu9000, rtt0.5ms.
    rf"(?:rtt|jitter|rate|loss|window|queue|cpu|initiators|bs|block)?{_NUMBER}(?:us|ms|s|k|m|g|kib|mib|gib|%)"
    rf"|[1-9][0-9]{{0,6}}iops|(?:qd|j|depth|mtu|cpu|queue|x|initiators){_NUMBER}"
)
_COUNTED = re.compile(
    r"(?:(?:round trip|jitter|loss|window|queue) )?"
    rf"{_NUMBER}(?: (?:us|ms|s|min|[kMG]?bit/s|[KMG]iB|B|packets|switch(?:es)?|routers?|initiators)"
    r"|%(?: CPU)?)"
    rf"|(?:MTU|queue depth) {_NUMBER}|802\.11(?:a|b|g|n|ac|ax|be)"
)
"""Figures in titles."""
_WORD = re.compile(rf"{_HOPS.pattern}|{_TOKEN.pattern}")

_WORDS = """
    sequential seq random rand read write reads writes randread randwrite rw randrw mixed mix trim depth qd
    j bs iops jobs job block 1m rate rtt round trip jitter loss window queue packets mtu jumbo unshaped
    flows controller cpu pap chap ip6 ipv6 initiators of in a the one no and with hwsim wpa2 wpa3 open
    switch switches router routers percent portal volume nas disk as found none off on local us ms s k m g
    bit/s over at rest
"""
_ENGINES = """
    psync sync vsync pvsync pvsync2 libaio io_uring posixaio poisson linear zipf pareto normal zoned inline
    offload
"""
_CIPHERS = """
    aes aesni aes128 aes192 aes256 aes128gcm16 aes192gcm16 aes256gcm16 aes128gcm128 aes256gcm128 gcm ccm ctr
    cbc ecb cipher_null null chacha20 poly1305 chacha20poly1305 hmac sha1 sha256 sha384 sha512 md5 generic
    rfc4106 rfc4309 rfc4543 rfc7539 rfc7539esp gcm_base ghash seqiv echainiv authenc authencesn cryptd
    pcrypt simd avx avx2 avx512 avx10_512 vaes ssse3 ni ce neon arm64 arm x86_64 x86 lib asm fast gmac
    modp2048 modp3072 modp4096 ecp256 ecp384 ecp521 x25519 curve25519 prfsha256 prfsha384 openssl gcrypt 128
    192 256 512 xpn tls 1.2 1.3 v1.3 transport tunnel static mka ike wpa2 wpa3 psk sae ccmp gcmp tkip wpa
    key none dh kdf hkdf tlsv1.3 ecdhe rsa
"""
_INTEL = (
    r"(?:[0-9]{2}th Gen )?(?:Genuine )?Intel(?:\(R\))? "
    r"(?:(?:Xeon|Core|Atom|Pentium|Celeron|Processor|CPU)(?:\((?:R|TM)\))?2?"
    r"(?: (?:Gold|Silver|Platinum|Bronze|Ultra|Max|Duo|Quad|Solo|Extreme|Dual|CPU|Processor|[EDWNXJ3579]))*"
    r"(?: (?:(?:[CDEGJLNQTWX]|[Em][357]|i[3579])-?)?[0-9]{3,5}[A-Z]{0,2}[0-9]?[A-Z]?)?(?: ?v[2-6])?"
    r"(?: (?:CPU|Processor))?(?: 0)?|N[0-9]{2,4})"
    r"(?: \((?:Skylake|Cascadelake|Icelake|SapphireRapids|GraniteRapids|Broadwell|Haswell|IvyBridge|"
    r"SandyBridge|Cooperlake)(?:, (?:no TSX|[A-Z]{3,8})){0,3}\))?(?: @ [0-9]\.[0-9]{1,2}GHz)?"
)
_AMD = (
    r"(?:AMD )?(?:EPYC|Ryzen|Ryzen Threadripper|Athlon|Opteron|Phenom|Embedded|GX)(?:\(tm\))?(?: II)?"
    r"(?:-(?:Milan|Rome|Genoa|Turin|Naples)(?:-v[1-9])?)?"
    r"(?: (?:PRO|AI|Embedded|Max|Gold|Silver|[3579]|X[234]))*"
    r"(?: (?:[A-Z]{1,2}-?)?[0-9][0-9A-Z]{2,4}(?:X3D|[A-Z]{1,2})?)?"
    r"(?: (?:[0-9]{1,3}|Dual|Quad|Six|Eight|Twelve|Sixteen)-Cores?)?(?: Processor)?"
    r"(?: (?:with|w/) Radeon(?:\(?TM\)?| Vega| Graphics| [0-9]{3}M?)*)?"
)
_PROCESSOR = re.compile(
    rf"{_INTEL}|{_AMD}|UML|Cortex-[AXR][0-9]{{1,3}}(?:AE|C)?|Neoverse-(?:[NVE][0-9](?:AE)?|512TVB)"
    r"|(?:Ampere(?:\(R\))? )?(?:Altra(?:\(R\))?(?: Max)?|Ampere-1[ab]?)(?: Processor)?"
    r"|(?:Apple )?M[1-9](?: (?:Pro|Max|Ultra))?|(?:Fire|Ice|Bliz|Ava)(?:storm|lanche|zard)(?:-M[1-9])?"
    r"|VirtualApple(?: @ [0-9]\.[0-9]{2}GHz processor)?"
    r"|QEMU Virtual CPU version [0-9](?:\.[0-9]{1,2}){0,2}\+?"
    r"|Common (?:32-bit )?KVM processor"
    r"|(?:ARMv[6-9]|AArch64) Processor rev [0-9]{1,2} \((?:v[6-9]l|aarch64)\)"
    r"|Kunpeng-9[0-9]{2}|POWER(?:[7-9]|10|11)(?: \([a-z]+\))?|A64FX|VIA Nano[A-Z ]{0,10}"
)
"""The model's name as /proc/cpuinfo and lscpu(1) have it: the maker, its series, one model, its frequency."""
_RELEASE = re.compile(
    r"[1-9]\.[0-9]{1,3}(?:\.[0-9]{1,3})?(?:-[0-9]{1,3}(?![0-9-]))?(?:[-+.~](?:deb[0-9]{1,2}(?:u[0-9]{1,2})?|rc[0-9]{1,2}"
    r"|[0-9]{1,2}(?=-[a-z])|fc[0-9]{2}|el[0-9]{1,2}(?:_[0-9]{1,2})?|arch[0-9]|amd64|arm64|armhf|x86_64|aarch64"
    r"|generic|cloud|server|rt|pve|bpo|rpi|v8|lts|lowlatency|azure|aws|gcp|kvm|default|harness))*(?![0-9A-Za-z])"
)
"""Of Linux, as uname(1) has it, with what distributions add."""
_KERNEL = re.compile(
    rf"Linux (?:version )?(?:{_RELEASE.pattern}|[1-9]\.[0-9]{{1,3}}(?:\.[0-9]{{1,3}})?(?=[-+]))"
)
_VERSION = re.compile(r"v?[0-9]{1,3}(?:\.[0-9]{1,3}){1,2}(?:-[0-9]{1,2}(?:\.[0-9]{1,2}){0,2})?(?![0-9.])")
_SYSTEMS = """
    version debian gnu/linux linux ubuntu fedora arch rocky almalinux alpine opensuse leap tumbleweed red hat
    enterprise centos stream bookworm trixie forky sid lts server edition bullseye noble jammy plucky fio
    strongswan swanctl ip utility iproute2 libbpf tcpdump open-iscsi iscsi iscsiadm nbdkit nvme-cli nvme
    libnvme python3-rtslib-fb targetcli tls macsec hostapd openvswitch
"""
_CHOSEN = """
    kvm vmware microsoft xen oracle qemu parallels innotek bhyve none tsc hpet acpi_pm timer jiffies
    arch_sys_counter time-travel-clock kvm-clock xen hyperv_clocksource_tsc_page performance powersave
    schedutil ondemand conservative userspace cubic bbr bbr2 reno dctcp
"""
"""Of which each is a whole fact: hypervisors, clocks, governors, congestion controls."""
SESSION = """
    initial_r2t immediate_data first_burst_len max_burst_len max_outstanding_r2t data_pdu_in_order
    data_seq_in_order erl recovery_tmo recv_tmo ping_tmo max_recv_dlength max_xmit_dlength
    reconnect_delay ctrl_loss_tmo fast_io_fail_tmo header_digest data_digest
    queue_depth scheduler max_sectors_kb nr_requests in_capsule_bytes kato max_hw_sectors_kb
    max_transfer_bytes queue_count sqsize transport write_cache connections read_only tls logical_block_size
"""
_AGREED = "algorithm drivers keys mode mtu_bytes proposal version"
_AGREED_VALUES = re.compile(r"[0-9]{1,5}|yes|no", re.IGNORECASE)
_SESSION_VALUE = re.compile(
    r"[0-9]{1,10}|Yes|No|None|CRC32C(,None)?|None,CRC32C|tcp|write (back|through)|TLS ?1\.3|1\.3"
    r"|\[?(none|mq-deadline|kyber|bfq)\]?( \[?(none|mq-deadline|kyber|bfq)\]?)*"
)
_OPTIONS = """
    rw bs bsrange bssplit iodepth numjobs runtime time_based size io_size ramp_time ioengine direct rate
    rate_iops rate_min rate_process rwmixread rwmixwrite thinktime sync fsync fdatasync end_fsync
    norandommap randrepeat random_distribution percentage_random io_submit_mode offset
"""
_WARNING = re.compile(
    rf"{re.escape(NOT_STEADY)}|{re.escape(WARMING_UP)}"
    rf"|{CPU_SATURATED}"
    r": a core(?: (?:of|the|that|and|share|(?:initiator|target|hop)[0-9]{0,3}))+ was busy for "
    r"[0-9]{1,3} ?% of the time(?: or more)?"
    rf"|{_NUMBER} % of the requests were lost, so "
    r"(?:twice the replies is not the rate|the packet rate is not twice the rate of replies)"
    r"|[0-9]+ of [0-9]+ echo requests were lost|the sum still grew with [0-9]+ at once"
)
_ROLE = re.compile(
    rf"(?:{'|'.join(ENDS)}|hop|switch|router|controller)[0-9]{{0,3}}"
    + "".join(f"|{re.escape(name)}" for kind in HOPS.values() for name in kind.hops)
)
_RUN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_INTERFACE = re.compile(
    r"(?:eth|eno|ens|wlan|bond|br|vmbr|wg|tun|tap|macsec|ipsec|tailscale|veth)[0-9]{0,3}"
    r"|(?:en|wl)p[0-9]{1,3}s[0-9]{1,3}(?:f[0-9])?(?:np[0-9])?|lo|h[0-9a-f]{4}[a-z]{1,2}[0-9]{1,3}[a-z]?"
)

Rule = Callable[["Cleaner", str], "str | None"]


def _words(*lists: str) -> frozenset[str]:
    return frozenset(word for words in lists for word in words.split())


_CIPHER_WORDS, _ENGINE_WORDS = _words(_CIPHERS), _words(_ENGINES, _WORDS)


class Shipped(NamedTuple):
    """Names and titles of what the harness ships, whole, and the words in them that are no numbers."""

    names: frozenset[str]
    words: frozenset[str]


@functools.cache
def _shipped() -> Shipped:
    said = [
        *PROTECTIONS,
        *TRANSPORTS,
        *FILE_SYSTEMS,
        *AXES,
        *LATENCIES,
        LINK_LOCAL,
        PROTECTION_OFF,
        "harness",
        "fio",
    ]
    said += [kind.title for kind in PROTECTIONS.values()]
    for file in (*data_folder().glob("profiles/**/*.toml"), *data_folder().glob("ipsec/*.toml")):
        found = tomllib.loads(file.read_text())
        said += [file.stem, str(found.get("title", ""))]
    for file in data_folder().glob("profiles/*.fio"):
        said += [file.stem, *(job.name for job in load_jobs(file.stem)[1])]
    said += [part for text in said for part in text.split(", ")]
    words = {token.lower() for text in said for token in _TOKEN.findall(text)} | _words(_WORDS)
    return Shipped(frozenset(said), frozenset(word for word in words if re.search("[a-z]", word)))


def _knows(token: str) -> bool:
    """Whether a token is a word of what is shipped, or a figure with its unit."""
    low = token.lower()
    return low in _shipped().words or any(known.fullmatch(low) for known in (_QUANTITY, _HOPS))


def _of(words: frozenset[str], text: str) -> bool:
    """Whether a text has these words alone."""
    return all(token.lower() in words for token in _TOKEN.findall(text))


class Cleaner:
    """Makes the parts of one run fit for others. ``replaced`` has the names by kind, each with what stands
    for it; ``left_out`` how many texts were left out, by field."""

    def __init__(self) -> None:
        self.replaced: dict[str, dict[str, str]] = {}
        self.left_out: Counter[str] = Counter()

    def numbered(self, kind: str, text: str, form: str = "{kind}{number}") -> str:
        """What stands for a text of this kind everywhere."""
        table = self.replaced.setdefault(kind, {})
        return table.setdefault(text, form.format(kind=kind, number=len(table) + 1))

    def title(self, text: str) -> str:
        """A name or title with each unknown word replaced, and each number without a unit."""

        def part(text: str) -> str:
            if text in _shipped().names or _COUNTED.fullmatch(text):
                return text
            return _WORD.sub(lambda found: found[0] if _knows(found[0]) else self.unknown(found[0]), text)

        # Figures have parts of a title, and names of a column, of their own.
        return "".join(part(each) for each in re.split(r"(, |\+)", text))

    def unknown(self, token: str) -> str:
        return self.numbered("name", token.lower())

    def clean(self, value: T) -> T:
        """A struct without free text, or with another one, by the kinds of its fields (``RULES``)."""
        return self._clean(value, inspect.AnyType(), "")  # type: ignore[no-any-return]

    def _clean(self, value: Any, kind: inspect.Type, field: str) -> Any:
        if value is None or value is msgspec.UNSET or isinstance(value, int | float | enum.Enum):
            return value
        if isinstance(value, msgspec.Struct):
            cls = type(value)
            return cls(**{each.name: self._field(value, each) for each in _fields(cls)})
        if isinstance(kind, inspect.UnionType):
            kind = next(each for each in kind.types if _holds(each, value))
        if isinstance(kind, inspect.Metadata) and not isinstance(kind.type, inspect.StrType):
            kind = kind.type
        match kind:
            case inspect.DictType():
                pairs = ((self._clean(key, kind.key_type, field), each) for key, each in value.items())
                return {key: self._clean(each, kind.value_type, field) for key, each in pairs}
            case inspect.VarTupleType():
                return tuple(self._clean(each, kind.item_type, field) for each in value)
            case inspect.TupleType():
                items = zip(value, kind.item_types, strict=True)
                return tuple(self._clean(each, item, field) for each, item in items)
            case inspect.LiteralType():
                return value
        found = RULES[title_of(kind)](self, value) if value else value
        self.left_out[field] += bool(value) and not found
        return found

    def _field(self, struct: msgspec.Struct, each: inspect.Field) -> Any:
        field, value = f"{type(struct).__name__}.{each.name}", getattr(struct, each.name)
        if field not in FIELDS:
            return self._clean(value, each.type, field)
        found = FIELDS[field](self, value)
        self.left_out[field] += len(value) - len(found)
        return found


@functools.cache
def _fields(cls: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    kind = inspect.type_info(cls)
    return kind.fields if isinstance(kind, inspect.StructType) else ()


def _holds(kind: inspect.Type, value: object) -> bool:
    """Whether a variant of a type is that of a value: of a text, a table or a list."""
    held = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(value, str):
        return isinstance(held, inspect.StrType | inspect.LiteralType)
    tables = inspect.DictType if isinstance(value, Mapping) else inspect.VarTupleType | inspect.TupleType
    return isinstance(held, tables)


def title_of(kind: inspect.Type | Any) -> str:
    """The title of a kind of text (``model.texts``), by its type. KeyError for a text without a kind."""
    if isinstance(kind, inspect.Metadata):
        return str((kind.extra_json_schema or {})["title"])
    return str(get_args(kind)[1].title) if get_args(kind) else ""


def _name(cleaner: Cleaner, text: str) -> str:
    found = cleaner.title(text)
    return found if re.fullmatch(texts.NAME, found) else cleaner.unknown(text)


def _withheld(cleaner: Cleaner, _text: str) -> str:
    cleaner.left_out["sentences of messages"] += 1
    return WITHHELD


def _unless(kind: str, known: re.Pattern[str]) -> Rule:
    """A text of that form stays; another one is counted."""
    return lambda cleaner, text: text if known.fullmatch(text) else cleaner.numbered(kind, text)


_host = _unless("host", _ROLE)


def _machine(cleaner: Cleaner, text: str) -> str:
    return text if text == LINK_LOCAL else cleaner.numbered("machine", text, "ssh://machine{number}")


def _address(cleaner: Cleaner, text: str) -> str:
    """One of those for documentation: RFC 5737, RFC 3849."""
    form = "2001:db8::{number:x}" if ":" in text else "192.0.2.{number}"
    return cleaner.numbered("address", text, form)


def _number_of(pattern: re.Pattern[str], otherwise: str) -> Rule:
    """What a text begins with of that form."""

    def begun(_cleaner: Cleaner, text: str) -> str:
        found = pattern.match(text)
        return found[0] if found else otherwise

    return begun


def _of_kind(kind: str, known: Collection[str]) -> Rule:
    return lambda cleaner, text: text if text in known else cleaner.numbered(kind, text)


def _as(kind: str, form: str = "{kind}{number}") -> Rule:
    return lambda cleaner, text: cleaner.numbered(kind, text, form)


RULES: Mapping[str, Rule] = {
    title_of(kind): rule
    for rule, kinds in (
        (_name, (texts.Name, texts.NameOrNone, texts.FilePath)),
        (Cleaner.title, (texts.Title,)),
        (_unless("run", _RUN), (texts.RunId,)),
        (_host, (texts.HostName,)),
        (_unless("if", _INTERFACE), (texts.InterfaceName, texts.InterfaceLabel)),
        (_machine, (texts.MachineAddress, texts.HopAddress)),
        (_address, (texts.IpAddress, texts.Portal, texts.PortalOrNone)),
        (_as("target", "iqn.2001-04.com.example:target{number}"), (texts.TargetName,)),
        (_as("path", "/dev/shared{number}"), (texts.AbsolutePath,)),
        (
            lambda _cleaner, text: text if _of(_CIPHER_WORDS, text) else "unknown",
            (texts.Algorithm, texts.IkeWord, texts.Drivers),
        ),
        (lambda _cleaner, _text: "", (texts.Detail, texts.Commit, texts.Identity, texts.UserName)),
        (_withheld, (texts.Prose,)),
        (_number_of(_RELEASE, "0"), (texts.KernelRelease,)),
        (_number_of(re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,3}){1,2}(?![0-9.])"), ""), (texts.VersionNumber,)),
        (_as("kernel", "{number:012x}"), (texts.KernelKey,)),
        (_as("costs"), (texts.CpuCostsId,)),
        (lambda _cleaner, text: text if text in LATENCIES else "mean", (texts.Percentile,)),
        # What is none of these is another version's.
        (_of_kind("transport", TRANSPORTS), (TransportName,)),
        (_of_kind("hops", HOPS), (HopKindName,)),
    )
    for kind in kinds
}
"""What becomes of a text of each kind. In FIELDS are those whose texts have more than one."""


def _options(
    _cleaner: Cleaner, options: tuple[tuple[str, str | None], ...]
) -> tuple[tuple[str, str | None], ...]:
    """Those of fio that shape I/O, with a number or a word of fio's."""

    size = r"(?:[1-9][0-9]{0,4}(?:[kKmMgG](?:iB)?|[bB])|512)"
    kept = re.compile(
        rf"{size}(?:[-,]{size}){{0,2}}|{size}/[0-9]{{1,3}}(?::{size}/[0-9]{{1,3}})*"  # bs, bsrange, bssplit
        r"|[0-9]{1,12}(?:\.[0-9]{1,6})?(?:us|ms|[kKmMgGtTpP]i?[bB]?|s|m|h|%)?"
        rf"|(?:{'|'.join(map(re.escape, sorted(_ENGINE_WORDS)))})(?::[0-9.]{{1,6}})?"
    )

    def is_known(value: str | None) -> bool:
        return value is None or not value or kept.fullmatch(value) is not None

    return tuple((name, value) for name, value in options if name in _words(_OPTIONS) and is_known(value))


def _parameters(_cleaner: Cleaner, found: Mapping[str, str]) -> dict[str, str]:
    """Of a session, with the values that they may have."""
    known = _words(SESSION) | {name for each in kinds.TRANSPORTS.values() for name in each.parameters}
    return {name: value for name, value in found.items() if name in known and _SESSION_VALUE.fullmatch(value)}


def _agreed(cleaner: Cleaner, found: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {
        _name(cleaner, protection): {
            key: _name(cleaner, value) if key == "proposal" else value
            for key, value in each.items()
            if key in _words(_AGREED)
            and (key == "proposal" or _AGREED_VALUES.fullmatch(value) or _of(_CIPHER_WORDS, value))
        }
        for protection, each in found.items()
    }


def _sections(cleaner: Cleaner, found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those that are known, by the kinds of their fields."""
    known = {name: section.read(found[name]) for name, section in sections.known().items() if name in found}
    return {name: msgspec.to_builtins(cleaner.clean(said)) for name, said in known.items()}


FIELDS: Mapping[str, Callable[[Cleaner, Any], Any]] = {
    **dict.fromkeys(("Plan.notes", "Record.raw", "ProbeRecord.raw"), lambda _cleaner, _value: ()),
    **dict.fromkeys(
        ("Record.warnings", "ProbeRecord.warnings"),
        lambda cleaner, found: tuple(
            text if _WARNING.fullmatch(text) else _withheld(cleaner, text) for text in found
        ),
    ),
    "Plan.simulated_cpu_costs": lambda _cleaner, _value: {},
    **dict.fromkeys(
        ("Plan.overrides", "Record.overrides", "ProbeRecord.overrides"),
        lambda cleaner, found: tuple(cleaner.title(text.partition(":")[0]) for text in found),
    ),
    "Job.options": _options,
    "Plan.sections": _sections,
    "Plan.parameters": lambda cleaner, found: {
        name: _parameters(cleaner, asked) for name, asked in found.items() if name in kinds.TRANSPORTS
    },
    "Fault.parameters": _parameters,
    **dict.fromkeys(("Record.session", "Stall.parameters"), _parameters),
    **dict.fromkeys(("Record.agreed", "ProbeRecord.agreed"), _agreed),
}
"""What becomes of a field as a whole, by its own rule."""


def _number(_cleaner: Cleaner, value: object) -> object:
    is_one = isinstance(value, int | float) or re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?( kB)?", str(value))
    return value if is_one else ""


def _processor(_cleaner: Cleaner, value: object) -> str:
    text = " ".join(str(value).split())
    return text if _PROCESSOR.fullmatch(text) else "processor"


def _chosen(_cleaner: Cleaner, value: object) -> str:
    return str(value) if str(value).lower() in _words(_CHOSEN) else ""


def _kernel(_cleaner: Cleaner, value: object) -> str:
    found = _KERNEL.match(str(value))
    return found[0] if found else ""


def _tool(_cleaner: Cleaner, value: object) -> str:
    return _said(str(value), _VERSION)


def _said(text: str, version: re.Pattern[str]) -> str:
    """Words of systems and tools, and one version behind each; all up to the first other word."""
    kept: list[str] = []
    was_number = False
    for word in text.split():
        name, dash, number = word.strip("(),").rpartition("-")
        is_name = word.strip("(),").lower() in _words(_SYSTEMS)
        is_both = name.lower() in _words(_SYSTEMS) and version.fullmatch(number) is not None and dash == "-"
        is_number = version.fullmatch(word.rstrip(",")) is not None
        if not (is_name or is_both or is_number) or (was_number and is_number):
            break
        kept.append(word)
        was_number = is_number or is_both
    return " ".join(kept)


FACTS: Mapping[str, Callable[[Cleaner, object], object] | None] = {
    **dict.fromkeys(("cpus", "memory", "frequency_mhz", "frequency_max_khz", "load"), _number),
    **dict.fromkeys(("hypervisor", "clocksource", "governor", "congestion_control"), _chosen),
    "kernel": _kernel,
    "distribution": lambda _, value: _said(str(value), re.compile(r"[1-9][0-9]?(?:\.[0-9]{1,2}){0,2}")),
    "cpu": _processor,
    TOOLS: lambda cleaner, value: {
        name: _tool(cleaner, version)
        for name, version in (value.items() if isinstance(value, Mapping) else ())
        if name in _words(_SYSTEMS)
    },
    "address": lambda cleaner, value: _machine(cleaner, str(value)),
    "kernel_command_line": None,
    "uptime": None,
    "lost": None,
    "persistent_lab": None,
}
"""What becomes of each fact about a machine (``observe.environment``); None: it is left out."""

ENVIRONMENT = ("hosts", MACHINE)
"""The keys of an environment of which facts are kept. All others are left out: disks with their serials,
links with their addresses, sessions and controls of columns."""


def _environment(cleaner: Cleaner, found: Mapping[str, Any]) -> dict[str, Any]:
    def facts(of: object) -> dict[str, Any]:
        known = of if isinstance(of, Mapping) else {}
        rules = {name: rule for name, rule in FACTS.items() if rule is not None and name in known}
        return {name: value for name, rule in rules.items() if (value := rule(cleaner, known[name])) != ""}

    for key in found.keys() - {*ENVIRONMENT}:
        cleaner.left_out[f"environment: {key.split()[0]}"] += 1
    kept: dict[str, Any] = {}
    if isinstance(hosts := found.get("hosts"), Mapping):
        kept["hosts"] = {_host(cleaner, name) or "": facts(of) for name, of in hosts.items()}
    if MACHINE in found:
        kept[MACHINE] = facts(found[MACHINE])
    return kept


class SharedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What others may have of a run. ``replaced`` and ``left_out`` are for its owner: what became of names,
    by kind, and how much was left out, by field."""

    records: tuple[Record, ...]
    probes: tuple[ProbeRecord, ...]
    environment: dict[str, Any]
    plan: Plan | None
    replaced: Mapping[str, Mapping[str, str]]
    left_out: Mapping[str, int]

    @property
    def files(self) -> dict[str, object]:
        """What each file of its folder holds."""
        return {
            **({"plan.json": self.plan} if self.plan is not None else {}),
            "environment.json": self.environment,
            **{f"cells/{record_key(record)}.json": record for record in self.records},
            **{f"probes/{probe.key}.json": probe for probe in self.probes},
        }

    @property
    def run_id(self) -> str:
        """As the file has it."""
        made = (self.plan, *self.records, *self.probes)
        return next(each.run_id for each in made if each is not None)

    @property
    def listing(self) -> Iterator[str]:
        """What is in it, what stands for which name, and what is left out, as lines."""
        plan = ", its plan" if self.plan is not None else ""
        measured = f"{counted(len(self.records), 'cell')}, {counted(len(self.probes), 'probe')}"
        yield f"run {self.run_id}: {measured}{plan}, facts about its machines"
        yield f"all texts in it: {' | '.join(self.texts)}"
        pairs = [f"{name} is {other}" for table in self.replaced.values() for name, other in table.items()]
        yield f"names replaced: {', '.join(pairs) or 'none'}"
        left = [f"{field} ({count})" for field, count in self.left_out.items()]
        yield f"left out: {', '.join(left) or 'nothing'}"

    @property
    def texts(self) -> list[str]:
        """Every text in it, once; the names of its fields are not among them."""
        return sorted({text for text in _texts(msgspec.to_builtins([*self.files.values()])) if text})


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def shared(run: RunFolder) -> SharedRun:
    """A run without what tells whose it is. UsageError without a plan and any record that can be read."""
    cleaner = Cleaner()
    plan = cleaner.clean(run.load_plan()) if run.has_plan else None
    records = tuple(cleaner.clean(record) for record in run.load_records())
    probes = tuple(cleaner.clean(probe) for probe in run.load_probes())
    if not (plan or records or probes):
        raise UsageError(
            f"{shown_path(run.path)}: expected a run with a plan or records that can be read, found none",
            hint="name a run's folder: results/RUN-ID",
        )
    environment = _environment(cleaner, run.load_environment())
    return SharedRun(
        plan=plan,
        records=records,
        probes=probes,
        environment=environment,
        replaced=cleaner.replaced,
        left_out={field: count for field, count in cleaner.left_out.items() if count},
    )
