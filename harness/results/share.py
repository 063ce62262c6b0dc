"""A run as one file for others: its figures, without what tells whose they are.

What may be in it is a list, and everything else is left out. Numbers, enumerations and words that a type
declares are kept. Of each field with free text ``TEXTS`` or ``WHOLE`` says what becomes of it: words that the
harness ships are kept, names get a number instead (the same one wherever they stand), all other text goes.
A field in neither is an error, and so a test says which new field has no rule yet. Outputs of tools, captures
and logs are not in it.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import inspect

from harness.model import (
    ENDS,
    FILE_SYSTEMS,
    LINK_LOCAL,
    PROTECTION_OFF,
    TRANSPORTS,
    Plan,
    Record,
    TransportName,
)
from harness.model.errors import UsageError
from harness.model.lines import counted
from harness.model.protections import PROTECTIONS
from harness.parse import parameters
from harness.parse.files import shown_path
from harness.parse.jobfile import load_jobs
from harness.parse.profiles import data_folder
from harness.results.axes import AXES
from harness.results.bandwidth_series import NOT_STEADY, WARMING_UP
from harness.results.knee import FIGURES
from harness.results.machine import MACHINE, TOOLS
from harness.results.probe_records import ProbeRecord
from harness.results.store import RunFolder, record_key

T = TypeVar("T")
WITHHELD = "a shared file does not say it"
"""Instead of a sentence that may name something."""

ROOTS = (Plan, Record, ProbeRecord)
"""The types of all that is in a shared file, but for the environment (``FACTS``)."""

_TOKEN = re.compile(r"[^\s,;()\[\]+=-]+")
_IN_A_ROW = re.compile(r"(?:(?<![0-9.])[0-9]+[-\s]){2}[0-9]")
_NUMBER = r"[0-9]{1,5}(?:\.[0-9]{1,3})?"
_UNIT = r"(?:us|ms|s|k|m|g|kib|mib|gib|bit/s|[kmg]bit/s|iops|%)?"

_WORDS = """
    sequential seq random rand read write reads writes randread randwrite rw randrw mixed mix trim depth qd
    j bs iops jobs job block 1m rate rtt round trip jitter loss window queue packets mtu jumbo unshaped
    flows controller cpu pap chap ip6 ipv6 initiators of in a the one no and with hwsim wpa2 wpa3 open
    switch switches router routers percent portal volume nas disk as found none off on local us ms s k m g
    bit/s
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
_PROCESSORS = """
    intel r xeon core tm cpu processor @ amd epyc ryzen threadripper pro athlon celeron pentium atom silver
    gold platinum bronze ultra embedded with radeon graphics arm cortex neoverse ampere altra apple broadcom
    raspberry pi model rev uml genuine gen 11th 12th 13th 14th virtual common kvm qemu version eight six
    quad dual i3 i5 i7 i9 e3 e5 e7 w v2 v3 v4 v5 v6 hz
"""
_SYSTEMS = """
    linux version debian gnu ubuntu fedora arch rocky almalinux alpine opensuse leap tumbleweed red hat
    enterprise centos stream bookworm trixie forky sid lts server edition bullseye noble jammy plucky
    harness amd64 arm64 generic cloud rt pve rpi lowlatency azure aws gcp kvm vmware microsoft xen oracle
    qemu parallels none innotek tsc hpet acpi_pm kvm arch_sys_counter timer time travel clock jiffies
    hyperv_clocksource_tsc_page performance powersave schedutil ondemand conservative userspace cubic bbr
    reno dctcp bbr2 kb fio strongswan swanctl ip utility iproute2 libbpf tcpdump open iscsi iscsiadm nbdkit
    nvme cli libnvme python3 rtslib fb targetcli tls
"""
SESSION = """
    initial_r2t immediate_data first_burst_len max_burst_len max_outstanding_r2t data_pdu_in_order
    data_seq_in_order erl recovery_tmo max_recv_dlength max_xmit_dlength header_digest data_digest
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
    r"|CPU saturated: a core(?: (?:of|the|that|and|share|(?:initiator|target|hop)[0-9]{0,3}))+ was busy for "
    r"[0-9]{1,3} ?% of the time(?: or more)?"
    rf"|{_NUMBER} % of the requests were lost, so twice the replies is not the rate"
    r"|[0-9]+ of [0-9]+ echo requests were lost|the sum still grew with [0-9]+ at once"
)
_ROLE = re.compile(rf"(?:{'|'.join(ENDS)}|hop)[0-9]{{0,3}}")
_RUN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,2}(?![0-9.])")
_INTERFACE = re.compile(
    r"(?:eth|eno|ens|wlan|bond|br|vmbr|wg|tun|tap|macsec|ipsec|tailscale|veth)[0-9]{0,3}"
    r"|(?:en|wl)p[0-9]{1,3}s[0-9]{1,3}(?:f[0-9])?(?:np[0-9])?|lo|h[0-9a-f]{4}[a-z]{1,2}[0-9]{1,3}[a-z]?"
)

Rule = Callable[["Cleaner", str], "str | None"]


def _words(*lists: str) -> frozenset[str]:
    return frozenset(word for words in lists for word in words.split())


_CIPHER_WORDS, _ENGINE_WORDS = _words(_CIPHERS), _words(_ENGINES, _WORDS)
_PROCESSOR_WORDS, _SYSTEM_WORDS = _words(_PROCESSORS), _words(_SYSTEMS)


@functools.cache
def _shipped() -> frozenset[str]:
    """The words in names and titles of what the harness ships."""
    texts = [*PROTECTIONS, *TRANSPORTS, *FILE_SYSTEMS, LINK_LOCAL, PROTECTION_OFF]
    texts += [kind.title for kind in PROTECTIONS.values()]
    for file in (*data_folder().glob("profiles/**/*.toml"), *data_folder().glob("ipsec/*.toml")):
        found = tomllib.loads(file.read_text())
        texts += [file.stem, str(found.get("title", ""))]
    for file in data_folder().glob("profiles/*.fio"):
        texts += [file.stem, *(job.name for job in load_jobs(file.stem)[1])]
    return _words(_WORDS) | {token.lower() for text in texts for token in _TOKEN.findall(text)}


def _knows(words: frozenset[str], token: str) -> bool:
    """Whether a token is one of ``words``, a number with a unit, or both: ``rtt5ms``, ``qd16``."""
    low = token.lower()
    if low in words:
        return True
    found = re.fullmatch(rf"(?P<word>[a-z]*)(?:{_NUMBER}{_UNIT})?", low)
    return found is not None and (not found["word"] or found["word"] in words)


def _known(words: frozenset[str], text: str) -> bool:
    """Whether a text has known words alone. Three numbers in a row may be an address."""
    return not _IN_A_ROW.search(text) and all(_knows(words, token) for token in _TOKEN.findall(text))


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

    def name(self, text: str) -> str:
        """A name or title with each unknown word replaced."""
        if _known(_shipped(), text):
            return text
        is_address = _IN_A_ROW.search(text) is not None

        def replace(found: re.Match[str]) -> str:
            token = found[0]
            if _knows(_shipped(), token) and not (is_address and token.isdecimal()):
                return token
            return self.numbered("name", token.lower())

        return _TOKEN.sub(replace, text)

    def clean(self, value: T, field: str = "") -> T:
        """The same without free text, or with another one. ``field`` is that of a type, by its rule."""
        found: Any = value
        if isinstance(value, msgspec.Struct):
            cls = type(value)
            parts = {
                name: self.clean(getattr(value, name), f"{cls.__name__}.{name}")
                for name in cls.__struct_fields__
            }
            return cls(**parts)
        if field in WHOLE:
            found = WHOLE[field](self, value)
            self.left_out[field] += len(value) - len(found)  # type: ignore[arg-type]
        elif isinstance(value, str) and field in TEXTS:
            found = TEXTS[field](self, value) if value else value
            self.left_out[field] += bool(value) and not found
        elif isinstance(value, Mapping):
            found = {self.clean(key, field): self.clean(each, field) for key, each in value.items()}
        elif isinstance(value, tuple):
            found = tuple(self.clean(each, field) for each in value)
        elif isinstance(value, str) and field in free_texts():
            raise AssertionError(f"{field} has text, and no rule says whether others may read it")
        return found  # type: ignore[no-any-return]


@functools.cache
def free_texts() -> frozenset[str]:
    """The fields of ``ROOTS`` that may have any text: ``Column.link``."""
    found: dict[str, bool] = {}

    def has_text(kind: inspect.Type) -> bool:
        if isinstance(kind, inspect.StructType):
            for field in kind.fields:
                name = f"{kind.cls.__name__}.{field.name}"
                if name not in found:
                    found[name] = False
                    found[name] = has_text(field.type)
            return False
        if isinstance(kind, inspect.Metadata):
            return has_text(kind.type)
        if isinstance(kind, inspect.StrType):
            return bool(kind.pattern != get_args(TransportName)[1].pattern)
        parts = [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
        parts += [getattr(kind, part, None) for part in ("item_type", "key_type", "value_type")]
        # All of them, for each may have fields of its own.
        return any([has_text(part) for part in parts if part is not None])  # noqa: C419

    for root in ROOTS:
        has_text(inspect.type_info(root))
    return frozenset(name for name, is_free in found.items() if is_free)


def _withheld(cleaner: Cleaner, _text: str) -> str:
    cleaner.left_out["sentences of messages"] += 1
    return WITHHELD


def _warning(cleaner: Cleaner, text: str) -> str:
    return text if _WARNING.fullmatch(text) else _withheld(cleaner, text)


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


def _version(_cleaner: Cleaner, text: str) -> str:
    found = _VERSION.match(text)
    return found[0] if found else ""


def _all(rule: Rule, fields: str) -> dict[str, Rule]:
    return dict.fromkeys(fields.split(), rule)


TEXTS: Mapping[str, Rule] = {
    **_all(
        Cleaner.name,
        """Plan.links Plan.proposals Plan.profile Setting.disk Column.link Column.protection Workload.name
        DiskProfile.name DiskProfile.title LinkProfile.name LinkProfile.title LinkProfile.base
        OpenFlow.controller Proposal.name Proposal.title Forecast.workload Forecast.changed_workload Job.name
        Record.link_title ProbeRecord.link_title""",
    ),
    **_all(_unless("run", _RUN), "Plan.run_id Forecast.run_id Record.run_id ProbeRecord.run_id"),
    **_all(
        _host,
        """ProcessorUse.hosts InterfaceUse.host Others.hosts HopRate.host KernelCipher.ends TcpUse.host
        ClientPart.initiator""",
    ),
    **_all(_unless("if", _INTERFACE), "InterfaceUse.interface HopRate.interface LinkProfile.interface"),
    **_all(_machine, "Machines.target Machines.initiators Plan.hops"),
    **_all(_address, "LinkProfile.portal ReachedTarget.typed ReachedTarget.address ReachedTarget.login"),
    **_all(
        lambda cleaner, text: cleaner.numbered("target", text, "iqn.2001-04.com.example:target{number}"),
        "ReachedTarget.name",
    ),
    **_all(
        lambda cleaner, text: cleaner.numbered("path", text, "/dev/shared{number}"),
        "Backing.path Backing.destroy AttachedVolume.path",
    ),
    **_all(
        lambda _cleaner, text: text if _known(_CIPHER_WORDS, text) else "unknown",
        """Proposal.esp Proposal.ike Proposal.kernel_algorithms Proposal.charon_plugins Cipher.algorithms
        KernelCipher.driver AirProof.key_management AirProof.cipher""",
    ),
    **_all(
        lambda _cleaner, _text: "",
        """DiskProfile.description DiskProfile.source LinkProfile.description LinkProfile.source
        Proposal.description OtherKernel.commit ReachedTarget.wwid ReachedTarget.chap_user
        ReachedTarget.swanctl AttachedVolume.title AttachedVolume.identity""",
    ),
    **_all(
        lambda _cleaner, _text: None,
        "WifiState.bssid WifiState.ssid WifiState.tx_mode WifiState.rx_mode",
    ),
    **_all(_withheld, "Record.reason ClientPart.reason ProbeRecord.reason Telemetry.no_round_trips"),
    **_all(_warning, "Record.warnings ProbeRecord.warnings"),
    **_all(_version, "Plan.harness_version OtherKernel.release"),
    **_all(lambda cleaner, text: cleaner.numbered("kernel", text, "{number:012x}"), "OtherKernel.key"),
    **_all(lambda cleaner, text: text and cleaner.numbered("prices", text), "Setting.predicted_from"),
    **_all(
        lambda _cleaner, text: text if text in {*AXES, *FIGURES, "harness", "fio"} else "harness",
        "Setting.source Sweep.over Goal.of",
    ),
}
"""What becomes of each text in a field, and of the keys of one that is a table."""


def _options(
    _cleaner: Cleaner, options: tuple[tuple[str, str | None], ...]
) -> tuple[tuple[str, str | None], ...]:
    """Those of fio that shape I/O, with a number or a word of fio's."""

    def is_known(value: str | None) -> bool:
        parts = [] if value is None else re.split(r"[,:/]", value)
        return all(
            re.fullmatch(r"[0-9]{0,12}(?:\.[0-9]+)?[a-zA-Z%]{0,3}", part) is not None
            if part[:1].isdigit()
            else part in _ENGINE_WORDS or not part
            for part in parts
        )

    return tuple((name, value) for name, value in options if name in _words(_OPTIONS) and is_known(value))


def _parameters(_cleaner: Cleaner, found: Mapping[str, str]) -> dict[str, str]:
    """Of a session, with the values that they may have."""
    known = _words(SESSION) | {name for keys in parameters.KEYS.values() for name in keys}
    return {name: value for name, value in found.items() if name in known and _SESSION_VALUE.fullmatch(value)}


def _agreed(cleaner: Cleaner, found: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {
        cleaner.name(protection): {
            key: cleaner.name(value) if key == "proposal" else value
            for key, value in each.items()
            if key in _words(_AGREED)
            and (key == "proposal" or _AGREED_VALUES.fullmatch(value) or _known(_CIPHER_WORDS, value))
        }
        for protection, each in found.items()
    }


def _lost(cleaner: Cleaner, found: Mapping[str, str]) -> dict[str, str]:
    return {_host(cleaner, name) or "": WITHHELD for name in found}


WHOLE: Mapping[str, Callable[[Cleaner, Any], Any]] = {
    **dict.fromkeys(("Plan.notes", "Record.raw", "ProbeRecord.raw"), lambda _cleaner, _value: ()),
    "Plan.charges": lambda _cleaner, _value: {},
    **dict.fromkeys(
        ("Plan.stand_ins", "Record.stand_ins", "ProbeRecord.stand_ins"),
        lambda cleaner, found: [cleaner.name(text.partition(":")[0]) for text in found],
    ),
    "Job.options": _options,
    **dict.fromkeys(("Plan.iscsi", "Plan.nvme", "Record.session"), _parameters),
    **dict.fromkeys(("Record.agreed", "ProbeRecord.agreed"), _agreed),
    **dict.fromkeys(("Telemetry.lost_hops", "ProbeRecord.lost_hops"), _lost),
}
"""What becomes of a field as a whole."""


def _number(_cleaner: Cleaner, value: object) -> object:
    is_one = isinstance(value, int | float) or re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?( kB)?", str(value))
    return value if is_one else ""


def _processor(_cleaner: Cleaner, value: object) -> str:
    """Each word by itself, because processors have names of their own: ``E5-2680``."""
    model = r"[a-z]{0,2}[0-9]{1,5}[a-z]{0,2}[0-9]?|[0-9]\.[0-9]{1,2}ghz"

    def keep(found: re.Match[str]) -> str:
        token = found[0].lower()
        return found[0] if token in _PROCESSOR_WORDS or re.fullmatch(model, token) else ""

    return "" if _IN_A_ROW.search(str(value)) else " ".join(_TOKEN.sub(keep, str(value)).split())


def _system(_cleaner: Cleaner, value: object) -> str:
    """Words of systems and tools, and versions of up to three parts; all up to the first other word."""
    kept: list[str] = []
    for word in str(value).split() if not _IN_A_ROW.search(str(value)) else ():
        tokens = _TOKEN.findall(word.replace("/", "-"))
        version = re.compile(r"v?[0-9]{1,5}(\.[0-9]{1,5}){0,2}\+?")
        if all(token.lower() in _SYSTEM_WORDS or version.fullmatch(token) for token in tokens):
            kept.append(word)
            continue
        if begins := re.match(r"[0-9]+(\.[0-9]+){1,2}(?=-)", word):
            kept.append(begins[0])
        break
    return " ".join(kept)


FACTS: Mapping[str, Callable[[Cleaner, object], object] | None] = {
    **dict.fromkeys(("cpus", "memory", "frequency_mhz", "frequency_max_khz", "load"), _number),
    **dict.fromkeys(
        ("kernel", "distribution", "hypervisor", "clocksource", "governor", "congestion_control"), _system
    ),
    "cpu": _processor,
    TOOLS: lambda cleaner, value: {
        name: _system(cleaner, version)
        for name, version in (value.items() if isinstance(value, Mapping) else ())
        if _known(_SYSTEM_WORDS, name)
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
        yield f"every text in it: {' | '.join(self.texts)}"
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
