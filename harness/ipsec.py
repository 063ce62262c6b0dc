"""IPsec: strongSwan's charon on both ends, ESP in the kernel (RFC 4301, 4303), failing closed.

A column that asks for IPsec first gets a *barrier*: xfrm policies on both ends that drop all traffic
between the two addresses. charon's own policies stand before it, and its IKE sockets bypass both, so a
packet leaves as ESP or not at all, also while no SA exists.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.errors import CommandFailed, HarnessError
from harness.hosts import Host
from harness.links import LinkPath
from harness.model import ENDS, End, IkeAuth, IpsecMode, Proposal
from harness.target import PORT
from harness.undo import Step
from harness.witness import REQID, Report

CHARON = "/usr/sbin/charon-systemd"
BASE_PLUGINS = (
    "random nonce openssl pem pkcs1 pkcs8 x509 pubkey kdf hmac sha2 aes gcm "
    "kernel-netlink socket-default vici"
)
"""With Debian's full list charon is woken by ESP traffic and takes 5 s longer to start."""

BARRIER_PRIORITY = 4_000_000
"""Behind every policy of charon's (a lower number comes first)."""

POLICY_PRIORITY = 300_000
PORTS_COVERED = 4
"""On a path that others share, policies cover the portal's port and the three that follow, which nobody uses:
the kernel keeps one policy for a selector, and the barrier has that of the very port."""

IKE_DEADLINE_S = 15


class Barrier(msgspec.Struct, frozen=True):
    """Policies on one end that drop the portal's cleartext (ip-xfrm(8), action block).

    They name the portal's port: the kernel keeps one policy for a selector, whatever its priority, so
    with charon's selector they would replace each other. An SSH connection is never covered.
    """

    end: End
    initiator: str
    target: str
    port: int = PORT

    def _policies(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        inbound, outbound = ("in", "out") if self.end == "initiator" else ("out", "in")
        there = ("src", f"{self.initiator}/32", "dst", f"{self.target}/32", "proto", "tcp")
        back = ("src", f"{self.target}/32", "dst", f"{self.initiator}/32", "proto", "tcp")
        return (
            (*there, "dport", str(self.port), "dir", outbound),
            (*back, "sport", str(self.port), "dir", inbound),
        )

    def acquire(self, host: Host) -> None:
        for policy in self._policies():
            host.run(
                ["ip", "xfrm", "policy", "add", *policy]
                + ["action", "block", "priority", str(BARRIER_PRIORITY)]
            )

    def undo(self) -> tuple[Step, ...]:
        return tuple(_delete_policy(policy) for policy in reversed(self._policies()))


DELETE_LARVAL = """
ip xfrm state list nokeys | awk -v source="$1" -v destination="$2" '
    function tell() { if (spi != "") print spi; spi = "" }
    $1 == "src" { tell(); between = $2 == source && $4 == destination }
    between && $1 == "proto" && $2 == "esp" && $6 == 0 { spi = $4 }
    $1 ~ /^(aead|enc|auth|auth-trunc|comp)$/ { spi = "" }
    END { tell() }
' | while read -r spi; do
    ip xfrm state delete src "$1" dst "$2" proto esp spi "$spi" || exit
done
"""
"""A charon killed while it negotiates leaves the SPIs it had reserved (XFRM_MSG_ALLOCSPI): states without a
reqid and without an algorithm. Arguments: source and destination."""


class SecurityAssociations(msgspec.Struct, frozen=True):
    """Whatever states and policies charon made for the path ``index`` between two addresses, on one end.

    charon takes its own away when it ends; this catches what a killed charon left. Acquired before
    charon acts, so that the journal knows. ``is_shared`` says that somebody else's IKE may be at work
    between the same two addresses.
    """

    local: str
    remote: str
    index: int
    is_shared: bool

    def acquire(self, host: Host) -> None:
        """Nothing to do: charon makes them."""

    def undo(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        for source, destination in ((self.local, self.remote), (self.remote, self.local)):
            policies = ("src", f"{source}/32", "dst", f"{destination}/32")
            states = ("src", source, "dst", destination, "proto", "esp")
            # By our priority and reqid: selectors and SPIs are charon's to choose, other policies somebody's.
            steps += [
                Step(
                    ("ip", "xfrm", "policy", "deleteall", *policies)
                    + ("priority", str(POLICY_PRIORITY + self.index))
                ),
                Step(("ip", "xfrm", "state", "deleteall", *states, "reqid", str(REQID + self.index))),
            ]
            # Larval states that may be another's are left to the kernel (net.core.xfrm_acq_expires, 30 s).
            if not self.is_shared:
                larval = ("sh", "-c", DELETE_LARVAL, "sh", source, destination)
                steps.append(Step(larval, absent=("No such process",)))
        return tuple(steps)


def _delete_policy(selector: tuple[str, ...]) -> Step:
    return Step(("ip", "xfrm", "policy", "delete", *selector), absent=("No such file or directory",))


@dataclass(kw_only=True)
class Charon:
    """A running charon and the connections loaded into it; one for each host, shared by its columns."""

    host: Host
    folder: Path
    connections: dict[str, str] = field(repr=False, default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return {"STRONGSWAN_CONF": str(self.folder / "strongswan.conf"), "SWANCTL_DIR": str(self.folder)}

    @property
    def uri(self) -> str:
        return f"unix://{self.folder}/vici"

    def swanctl(self, *words: str, check: bool = True, timeout_s: float = 30) -> str:
        done = self.host.run(
            ["swanctl", *words, "--uri", self.uri], env=self.env, check=check, timeout_s=timeout_s
        )
        return done.stdout

    def answers(self) -> bool:
        """Whether it is still there, and listens."""
        done = self.host.run(["swanctl", "--stats", "--uri", self.uri], env=self.env, check=False)
        return done.status == 0

    def reload(self) -> None:
        """Load what ``connections`` says: new ones are added, gone ones are unloaded, others stay."""
        self.host.write_secret(self.folder / "swanctl.conf", "\n".join(self.connections.values()))
        self.swanctl("--load-all", "--noprompt", "--file", str(self.folder / "swanctl.conf"))


@contextlib.contextmanager
def charon(host: Host, folder: Path, *, log: Path, plugins: str) -> Iterator[Charon]:
    """Keep a charon of our own running on a host, with its own configuration, socket and plugin list."""
    daemon = Charon(host=host, folder=folder)
    host.write_secret(
        folder / "strongswan.conf",
        f"""
swanctl {{
    load = {plugins}
}}
charon-systemd {{
    load = {plugins}
    install_routes = no
    plugins {{
        vici {{
            socket = {daemon.uri}
        }}
    }}
    journal {{
        default = -1
    }}
    filelog {{
        stderr {{
            default = 1
            flush_line = yes
        }}
    }}
}}
""",
    )
    socket = folder / "vici"

    def ready() -> bool:
        return host.run(["test", "-S", str(socket)], check=False).status == 0

    with host.daemon([CHARON], log=log, ready=ready, deadline_s=20, env=daemon.env):
        yield daemon


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What the two ends prove themselves with: made for the run, held in memory and tmpfs alone.

    ``files`` are, for certificates, each end's files by their place in its swanctl folder.
    """

    auth: IkeAuth
    psk: str = field(repr=False, default="")
    files: dict[End, dict[str, str]] = field(repr=False, default_factory=dict)


def identity(end: str, index: int) -> str:
    """How an end of the path ``index`` is called in IKE: by that the responder knows what is wanted."""
    return f"{end}-{index}.harness"


def make_credentials(host: Host, auth: IkeAuth, folder: Path, *, paths: int) -> Credentials:
    """A fresh 256-bit secret, or a certificate authority and a certificate for each end, by pki(1).

    ``paths`` is how many there are; a certificate holds the identities for all of them.
    """
    if auth is IkeAuth.PSK:
        return Credentials(auth=auth, psk=base64.b64encode(secrets.token_bytes(32)).decode())
    host.run(["sh", "-c", MAKE_CERTIFICATES, "sh", str(folder), str(paths)], timeout_s=60)
    files = {}
    for end in ENDS:
        certificate, key, authority = host.read_files(
            [str(folder / name) for name in (f"{end}.crt", f"{end}.key", "ca.crt")]
        )
        files[end] = {
            f"x509/{end}.crt": certificate,
            f"private/{end}.key": key,
            "x509ca/ca.crt": authority,
        }
    return Credentials(auth=auth, files=files)


MAKE_CERTIFICATES = """
set -eu
umask 077
mkdir -p "$1"
cd "$1"
pki --gen --type ecdsa --size 256 --outform pem > ca.key
pki --self --ca --in ca.key --type ecdsa --dn "CN=harness run authority" --lifetime 2 --outform pem > ca.crt
for end in initiator target; do
    pki --gen --type ecdsa --size 256 --outform pem > $end.key
    pki --pub --in $end.key --type ecdsa > $end.pub
    names=''
    for index in $(seq 0 $(($2 - 1))); do names="$names --san $end-$index.harness"; done
    pki --issue --in $end.pub --cacert ca.crt --cakey ca.key --dn "CN=$end.harness" $names \\
        --lifetime 1 --outform pem > $end.crt
done
rm ca.key
"""


def _connection(
    name: str, path: LinkPath, *, end: str, proposal: Proposal, mode: IpsecMode, credentials: Credentials
) -> str:
    """One end's swanctl.conf(5) for a path."""
    peer = ENDS[1 - ENDS.index(end)]
    addresses = {"initiator": path.initiator_address, "target": path.target_address}
    # Where others share the addresses (an SSH connection!), nothing but the portal's traffic is touched.
    ports = {"initiator": "", "target": ""}
    if path.is_shared:
        ports = {"initiator": "[tcp]", "target": f"[tcp/{path.port}-{path.port + PORTS_COVERED - 1}]"}
    if credentials.auth is IkeAuth.PSK:
        mine = theirs = "auth = psk"
        kept = (
            f"secrets {{\n    ike-{name} {{\n        id-1 = {identity(end, path.index)}\n"
            f"        id-2 = {identity(peer, path.index)}\n        secret = 0s{credentials.psk}\n    }}\n}}\n"
        )
    else:
        mine = f"auth = pubkey\n            certs = {end}.crt"
        theirs = "auth = pubkey\n            cacerts = ca.crt"
        kept = ""
    return f"""connections {{
    {name} {{
        version = 2
        local_addrs = {addresses[end]}
        remote_addrs = {addresses[peer]}
        proposals = {proposal.ike}
        encap = no
        mobike = no
        local {{
            id = {identity(end, path.index)}
            {mine}
        }}
        remote {{
            id = {identity(peer, path.index)}
            {theirs}
        }}
        children {{
            {name} {{
                mode = {mode.value}
                esp_proposals = {proposal.esp}
                local_ts = {addresses[end]}/32{ports[end]}
                remote_ts = {addresses[peer]}/32{ports[peer]}
                reqid = {REQID + path.index}
                priority = {POLICY_PRIORITY + path.index}
                start_action = none
            }}
        }}
    }}
}}
{kept}"""


@contextlib.contextmanager
def tunnel(
    path: LinkPath,
    ends: tuple[Charon, Charon],
    *,
    name: str,
    proposal: Proposal,
    mode: IpsecMode,
    credentials: Credentials,
) -> Iterator[None]:
    """Negotiate one CHILD_SA between the ends of a link, and keep it for the length of the context.

    The barrier is not made here: it has to stand before this begins and after it ends.
    """
    try:
        for end, daemon in zip(ENDS, ends, strict=True):
            for place, text in credentials.files.get(end, {}).items():
                daemon.host.write_secret(daemon.folder / place, text)
            daemon.connections[name] = _connection(
                name, path, end=end, proposal=proposal, mode=mode, credentials=credentials
            )
        # The responder first: it has to know the connection when the initiator calls.
        ends[1].reload()
        ends[0].reload()
        ends[0].swanctl(
            "--initiate", "--child", name, "--timeout", str(IKE_DEADLINE_S), timeout_s=IKE_DEADLINE_S + 10
        )
        yield
    finally:
        for daemon in ends:
            daemon.connections.pop(name, None)
        # What a charon that does not answer leaves, SecurityAssociations removes.
        with contextlib.suppress(HarnessError):
            ends[0].swanctl("--terminate", "--ike", name, "--timeout", "5", check=False)


def negotiated(host: Host, reports: Sequence[Report], proposal: Proposal, mode: IpsecMode) -> dict[str, str]:
    """What the kernels of both ends now encrypt with: algorithm, mode, and ``host``'s drivers (/proc/crypto).

    Raises CommandFailed if the states in the kernels are not what was asked for.
    """
    for report in reports:
        if len({state.source for state in report.states}) != 2:
            raise CommandFailed("charon reported a CHILD_SA, but a kernel has no ESP state for it")
        for state in report.states:
            # By name: "aes" is in many of them.
            if (sorted(state.algorithms), state.mode) != (sorted(proposal.kernel_algorithms), mode.value):
                raise CommandFailed(
                    f"{proposal.name} in {mode.value} mode was asked for, but the kernel has "
                    f"{' + '.join(state.algorithms)} in {state.mode} mode"
                )
    (crypto,) = host.read_files(["/proc/crypto"])
    return {
        "proposal": proposal.name,
        "algorithm": " + ".join(proposal.kernel_algorithms),
        "mode": mode.value,
        "drivers": ", ".join(drivers(crypto, proposal.kernel_algorithms)),
    }


def drivers(proc_crypto: str, algorithms: tuple[str, ...]) -> list[str]:
    """The kernel's driver of highest priority for each algorithm, as /proc/crypto lists them."""
    best: dict[str, tuple[int, str]] = {}
    for block in proc_crypto.split("\n\n"):
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in block.splitlines())
        }
        name, priority = fields.get("name", ""), int(fields.get("priority", "0") or 0)
        # The first of equals, as __crypto_alg_lookup() takes it (crypto/api.c).
        if name in algorithms and priority > best.get(name, (-1, ""))[0]:
            best[name] = (priority, fields.get("driver", ""))
    return [best[name][1] for name in algorithms if name in best]
