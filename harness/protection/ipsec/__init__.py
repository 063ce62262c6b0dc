"""IPsec: strongSwan's charon on both ends, ESP in the kernel (RFC 4301, 4303), failing closed.

A column with IPsec first gets a *fail-closed policy*: xfrm policies on both ends that drop all traffic
between the two addresses. charon's own policies come before the fail-closed policy, and its IKE sockets
bypass both. So a packet leaves as ESP or not at all, also while there is no SA.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.hosts import Host
from harness.hosts.undo import UndoStep
from harness.model import DEFAULT_TRANSPORT, ENDS, End, IkeAuth, IpsecMode, Proposal, addresses, kinds
from harness.model.errors import CommandFailed, HarnessError
from harness.model.protections import IKE_SETTINGS
from harness.network.links import LinkPath
from harness.parse import proc_crypto
from harness.protection import xfrm
from harness.protection.ipsec.charon import Charon
from harness.protection.xfrm_listener import REQID, ListenerReport

MODULES = ("xfrm_user", "esp4")
IPV6_MODULES = ("esp6",)
"""The further modules where a link speaks IPv6."""

IKE_PORT = kinds.TRANSPORTS[DEFAULT_TRANSPORT].port + xfrm.PORTS_COVERED
"""UDP, on the target. Not 500, which the machine's own IKE daemon may use. If neither end has 500, charon
puts a marker before IKE's messages (RFC 3948, section 2.2); ESP stays as it is, and is not put into UDP."""

IKE_DEADLINE_S = 15


DELETE_LARVAL = """
states=$(ip xfrm state list nokeys)
case $states in *' reqid 0 '*) ;; *) exit 0 ;; esac
printf '%s\\n' "$states" | awk -v near="$1" -v far="$2" '
    function tell() { if (spi != "") print ends, spi; spi = "" }
    $1 == "src" {
        tell()
        between = $2 == near && $4 == far || $2 == far && $4 == near
        ends = $2 " " $4
    }
    between && $1 == "proto" && $2 == "esp" && $6 == 0 { spi = $4 }
    $1 ~ /^(aead|enc|auth|auth-trunc|comp)$/ { spi = "" }
    END { tell() }
' | while read -r source destination spi; do
    ip xfrm state delete src "$source" dst "$destination" proto esp spi "$spi" || exit
done
"""
"""A charon that was killed while it negotiated leaves the SPIs that it had reserved (XFRM_MSG_ALLOCSPI):
states without a reqid and without an algorithm. Arguments: the two addresses."""


class SecurityAssociations(msgspec.Struct, frozen=True):
    """The states and policies that charon makes for the path ``index`` between two addresses, on one end.

    charon removes its own when it ends; this removes what a killed charon left. It is acquired before charon
    acts, so that the journal knows. ``is_shared``: somebody else's IKE may work between the same two
    addresses.
    """

    local: str
    remote: str
    index: int
    is_shared: bool

    def acquire(self, host: Host) -> None:
        """Nothing to do: charon makes them."""

    def undo(self) -> tuple[UndoStep, ...]:
        steps: list[UndoStep] = []
        for source, destination in ((self.local, self.remote), (self.remote, self.local)):
            policies = ("src", addresses.alone(source), "dst", addresses.alone(destination))
            states = ("src", source, "dst", destination, "proto", "esp")
            # By this run's priority and reqid: charon chooses selectors and SPIs, and other policies are
            # others'. Not in one batch, in which ip(8) keeps the filters of the first such line.
            steps += [
                UndoStep(
                    ("ip", "xfrm", "policy", "deleteall", *policies)
                    + ("priority", str(xfrm.POLICY_PRIORITY + self.index))
                ),
                UndoStep(
                    ("ip", "xfrm", "state", "deleteall", *states, "reqid", str(REQID + self.index)),
                    absent=NOT_YET_STATES,
                ),
            ]
        # The kernel removes larval states that may be another's (net.core.xfrm_acq_expires, 30 s).
        if not self.is_shared:
            larval = ("sh", "-c", DELETE_LARVAL, "sh", self.local, self.remote)
            steps.append(UndoStep(larval, absent=("No such process",)))
        return tuple(steps)


NOT_YET_STATES = ("No such process",)
"""Of ip(8) for a state of the kernel's own, which waits for keys. It ends by itself
(net.core.xfrm_acq_expires, 30 s), and nobody else can delete it."""

_STATE = re.compile(r"^src (\S+) dst (\S+)\n\s+proto esp spi (0x[0-9a-f]+)\S* reqid (\d+)\b", re.MULTILINE)
"""Of `ip xfrm state list nokeys`: one state, which is an SA of one direction."""


def left_over(host: Host, paths: Sequence[LinkPath]) -> list[str]:
    """The ESP states and policies of these paths that a host still has; nothing of anybody else's."""
    states = _STATE.findall(host.run(["ip", "xfrm", "state", "list", "nokeys"], check=False).stdout)
    return [
        f"the ESP state src {source} dst {destination} spi {spi}"
        for source, destination, spi, reqid in states
        # One without an SPI waits for keys (``NOT_YET_STATES``).
        if int(spi, 16) and any(_is_of(path, {source, destination}, int(reqid)) for path in paths)
    ] + [
        f"the IPsec policy {policy.text} dir {policy.direction}"
        for policy in xfrm.policies_of(host)
        if any(policy.is_of(path) for path in paths)
    ]


def _is_of(path: LinkPath, ends: set[str], reqid: int) -> bool:
    """Whether the run made a state for this path; larval ones count only if nobody else has the addresses."""
    return ends == {*xfrm.addresses_of(path)} and (reqid == REQID + path.index or not path.is_shared)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What one end authenticates with, and whom it trusts: PEM."""

    certificate: str
    key: str = field(repr=False)
    authority: str


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The credentials of both ends: made for the run, kept only in memory and tmpfs.

    Either one secret for both, or a certificate for each.
    """

    psk: bytes = field(repr=False, default=b"")
    certificates: dict[End, Certificate] = field(repr=False, default_factory=dict)


def identity(end: str, index: int) -> str:
    """The name of an end of the path ``index`` in IKE; by it the responder finds the connection."""
    return f"{end}-{index}.harness"


def make_credentials(host: Host, auth: IkeAuth, folder: Path, *, paths: int) -> Credentials:
    """A new 256-bit secret, or a certificate authority and a certificate for each end, by pki(1).

    ``paths`` is the number of paths; a certificate has the identities for all of them.
    """
    if auth is IkeAuth.PSK:
        return Credentials(psk=secrets.token_bytes(32))
    host.run(["sh", "-c", MAKE_CERTIFICATES, "sh", str(folder), str(paths)], timeout_s=60)
    certificates = {}
    for end in ENDS:
        files = [str(folder / name) for name in (f"{end}.crt", f"{end}.key", "ca.crt")]
        certificate, key, authority = host.read_files(files)
        certificates[end] = Certificate(certificate=certificate, key=key, authority=authority)
    return Credentials(certificates=certificates)


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


ViciMessage = dict[str, Any]
"""A message of VICI: a section, as in swanctl.conf(5), with strings, numbers, lists and further sections."""


def _connection(tunnel: Tunnel, end: End) -> ViciMessage:
    """One end's connection, in the words of swanctl.conf(5)."""
    path, proposal = tunnel.path, tunnel.proposal
    peer = ENDS[1 - ENDS.index(end)]
    own = {"initiator": path.initiator_address, "target": path.target_address}
    # Where others share the addresses (an SSH connection!), only the portal's traffic is covered.
    ports = {"initiator": "", "target": ""}
    if path.is_shared:
        ports = {
            "initiator": f"[{xfrm.TCP}]",
            "target": f"[{xfrm.TCP}/{path.port}-{path.port + xfrm.PORTS_COVERED - 1}]",
        }
    local: ViciMessage = {"id": identity(end, path.index), "auth": "psk"}
    remote: ViciMessage = {"id": identity(peer, path.index), "auth": "psk"}
    if shown := tunnel.credentials.certificates.get(end):
        local |= {"auth": "pubkey", "certs": [shown.certificate]}
        remote |= {"auth": "pubkey", "cacerts": [shown.authority]}
    child = {
        "mode": tunnel.mode.value,
        "esp_proposals": _words(proposal.esp),
        "local_ts": [f"{addresses.alone(own[end])}{ports[end]}"],
        "remote_ts": [f"{addresses.alone(own[peer])}{ports[peer]}"],
        "reqid": REQID + path.index,
        "priority": xfrm.POLICY_PRIORITY + path.index,
        "start_action": "none",
        **_settings(proposal, "child"),
    }
    return {
        "version": 2,
        "local_addrs": [own[end]],
        "remote_addrs": [own[peer]],
        # Only the target can be called: the initiator's own port is any free one.
        **({"remote_port": IKE_PORT} if end == "initiator" else {}),
        "proposals": _words(proposal.ike),
        "encap": "no",
        "mobike": "no",
        **_settings(proposal, "connection"),
        "local": local,
        "remote": remote,
        "children": {tunnel.name: child},
    }


def _settings(proposal: Proposal, of: str) -> ViciMessage:
    return {name: value for name, value in proposal.settings.items() if name in IKE_SETTINGS[of]}


def _words(proposals: str) -> list[str]:
    return [word.strip() for word in proposals.split(",")]


def _secrets(tunnel: Tunnel, end: End) -> Iterator[tuple[str, ViciMessage]]:
    """What charon needs so that one end can authenticate: commands of VICI and their messages."""
    if own := tunnel.credentials.certificates.get(end):
        yield "load-cert", {"type": "X509", "flag": "CA", "data": own.authority}
        yield "load-key", {"type": "any", "data": own.key}
    else:
        owners = [identity(each, tunnel.path.index) for each in ENDS]
        yield (
            "load-shared",
            {"id": tunnel.name, "type": "IKE", "data": tunnel.credentials.psk, "owners": owners},
        )


@dataclass(frozen=True, kw_only=True)
class Tunnel:
    """A CHILD_SA between the ends of a path, by its ``name`` for charon: how they negotiate it."""

    path: LinkPath
    name: str
    proposal: Proposal
    mode: IpsecMode
    credentials: Credentials

    def load(self, end: End, charon: Charon) -> None:
        """Have an end's charon know it."""
        for command, message in _secrets(self, end):
            charon.ask(command, message)
        charon.ask("load-conn", {self.name: _connection(self, end)})

    def settings(self, charon: Charon) -> dict[str, str]:
        """Those that the proposal sets, as an end's charon has them, with its timers."""
        if not self.proposal.settings:
            return {}
        has = charon.settings(self.name)
        return {name: has[name] for name in self.proposal.settings if name in has} | {**charon.configured}

    @contextlib.contextmanager
    def up(self, ends: tuple[Charon, Charon]) -> Iterator[None]:
        """Negotiate it, and keep it while the context lasts.

        The caller sets the fail-closed policy: it must be in force before this begins and after it ends.
        """
        initiator, _ = ends
        name = self.name
        try:
            # The responder first: it must know the connection when the initiator calls.
            for end, charon in reversed(list(zip(ENDS, ends, strict=True))):
                self.load(end, charon)
            initiator.ask(
                "initiate", {"child": name, "timeout": 1000 * IKE_DEADLINE_S}, within_s=IKE_DEADLINE_S + 10
            )
            yield
        finally:
            # SecurityAssociations removes what a charon that does not answer leaves.
            with contextlib.suppress(HarnessError):
                initiator.ask("terminate", {"ike": name, "timeout": 5000})
            for charon in ends:
                for command, message in (("unload-conn", {"name": name}), ("unload-shared", {"id": name})):
                    with contextlib.suppress(HarnessError):
                        charon.ask(command, message)


def negotiated(
    host: Host, reports: Sequence[ListenerReport], proposal: Proposal, mode: IpsecMode
) -> dict[str, str]:
    """What the kernels of both ends now encrypt with: algorithm, mode, and ``host``'s drivers (/proc/crypto).

    CommandFailed if the states in the kernels are not what was asked for.
    """
    for report in reports:
        if len({state.source for state in report.states}) != 2:
            raise CommandFailed("charon reported a CHILD_SA, but a kernel has no ESP state for it")
        for state in report.states:
            # By whole names: "aes" is in many of them.
            if (sorted(state.algorithms), state.mode) != (sorted(proposal.kernel_algorithms), mode.value):
                raise CommandFailed(
                    f"expected {proposal.name} in {mode.value} mode, found "
                    f"{' + '.join(state.algorithms)} in {state.mode} mode in the kernel"
                )
    (crypto,) = host.read_files(["/proc/crypto"])
    return {
        "proposal": proposal.name,
        "algorithm": " + ".join(proposal.kernel_algorithms),
        "mode": mode.value,
        "drivers": ", ".join(proc_crypto.drivers(crypto, proposal.kernel_algorithms)),
    }
