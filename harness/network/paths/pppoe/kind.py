"""PPPoE between two routers (RFC 2516): pppd as client, pppoe-server with a pppd of its own as concentrator.

The programs do discovery; the kernel (pppoe.ko) handles the session's packets on both ends. The client
authenticates by CHAP or PAP, with a secret made for the session.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.hosts import Host, programs
from harness.model import PppAuth
from harness.model.errors import CommandFailed
from harness.model.escape import printable
from harness.network.links import Folders, LinkPath, LinkPlace
from harness.network.paths import routing
from harness.network.paths.chain import FAR, NEAR, address
from harness.network.paths.kind import PathKind

_AGREED = re.compile(r"^sent \[LCP ConfAck [^\n]*<auth ([^>\n]+)>", re.MULTILINE)
"""In pppd's log with ``debug``: the authentication protocol that LCP agreed on (RFC 1661, section 5.2)."""
_OUTCOME = re.compile(r"^(PAP|CHAP) authentication (succeeded|failed)", re.MULTILINE)

MODULES = ("pppoe", "iptable_mangle", "xt_TCPMSS")
PPPD = "/usr/sbin/pppd"
CONFIGURATION = Path("/etc/ppp")
"""pppd looks for its secrets only here, so the run mounts a folder of its own over it."""

SECRETS = {PppAuth.CHAP: "chap-secrets", PppAuth.PAP: "pap-secrets"}
"""Their file names there. A line of either: client, server, secret, addresses."""

OVERHEAD_BYTES = 8
"""PPPoE's header has 6 bytes, PPP's protocol field 2."""

LARGEST_MTU_BYTES = 1492
"""RFC 2516, section 7; pppoe-server does not know RFC 4638, which allows more."""

DEADLINE_S = 20.0
"""Discovery, LCP, authentication and IPCP take 2 s in the lab. An unanswered PADI is repeated after 5 s,
twice."""

CLAMP = ("-p", "tcp", "--tcp-flags", "SYN,RST", "SYN", "-j", "TCPMSS", "--clamp-mss-to-pmtu")


def mtu_bytes(ethernet_mtu_bytes: int) -> int:
    """The largest IP packet of a session."""
    return min(LARGEST_MTU_BYTES, ethernet_mtu_bytes - OVERHEAD_BYTES)


@contextlib.contextmanager
def session(_place: LinkPlace, path: LinkPath, folders: Folders) -> Iterator[Mapping[str, str]]:
    """Make the two hops of a path forward through a PPPoE session while the context lasts.

    Yields what they agreed on. CommandFailed with the last log lines of client and concentrator if there is
    no session in time, or if the client authenticated by something other than what the profile says.
    """
    auth = (path.profile.hops.auth if path.profile.hops is not None else None) or PppAuth.CHAP
    private, logs = folders.private, folders.logs
    client, concentrator = path.hops
    user, mtu = f"client-{path.index}", mtu_bytes(path.profile.mtu_bytes)
    # pppd keeps its process id in /run under this name, and ppp0 may be somebody else's.
    ours, theirs = f"harness-c{path.index}", f"harness-s{path.index}"
    client.run(["mkdir", "-p", "-m", "700", str(private)])
    routing.add_address(client, NEAR, address(path.index, 0, 2))
    routing.add_address(concentrator, FAR, address(path.index, 2, 1))
    for hop in path.hops:
        routing.forward(hop)
        # Otherwise its lock would stay in /run.
        lock = {"XTABLES_LOCKFILE": str(private / "xtables.lock")}
        hop.run(["iptables-legacy", "-t", "mangle", "-A", "FORWARD", *CLAMP], env=lock)
    program, starter = _install(client, private)
    client.write_secret(CONFIGURATION / "options", "")
    # Both ends read one file: client, server, secret, and the addresses that the client may have.
    client.write_secret(CONFIGURATION / SECRETS[auth], f'{user} concentrator "{secrets.token_hex(16)}" *\n')
    server_log, client_log = logs / "pppd-concentrator.log", logs / "pppd-client.log"
    client.write_secret(
        private / "options",
        f"auth\nrequire-{auth}\nname concentrator\nremotename {user}\nnodefaultroute\nnoipv6\ndebug\n"
        f"ifname {theirs}\nlogfile {server_log}\n",
    )
    near, far = address(path.index, 1, 1), address(path.index, 1, 2)
    discovery = ["pppoe-server", "-F", "-I", NEAR, "-C", "harness", "-N", "1", "-L", far, "-R", near]
    discovery += ["-O", str(private / "options"), "-q", str(starter)]
    call = [str(program), *_options(user, ours, mtu)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            concentrator.daemon(
                discovery,
                log=logs / "pppoe-server.log",
                ready=lambda: _hears_discovery(concentrator),
                deadline_s=DEADLINE_S,
                env={"PPPD": str(program), "MTU": str(mtu)},
            )
        )
        try:
            stack.enter_context(
                client.daemon(
                    call,
                    log=client_log,
                    ready=lambda: _is_up(client, ours) and _is_up(concentrator, theirs),
                    deadline_s=DEADLINE_S,
                )
            )
        except CommandFailed as error:
            raise CommandFailed(
                f"expected a PPPoE session within {DEADLINE_S:g} s, but the client said: "
                f"{_last_words(client_log)}; and the concentrator: {_last_words(server_log)}",
                hint=f"see {client_log.name} and {server_log.name}",
            ) from error
        routing.connect(path)
        yield {"pppoe_authentication": _proved(auth, client_log)}


def _options(user: str, iface: str, mtu: int) -> list[str]:
    """The options of the client's pppd."""
    words = ["plugin", "rp-pppoe.so", f"nic-{FAR}", "ifname", iface, "nodetach", "logfd", "2", "debug"]
    words += ["user", user, "remotename", "concentrator", "noauth", "nodefaultroute", "noipv6"]
    return words + ["noaccomp", "nopcomp", "default-asyncmap", "mtu", str(mtu), "mru", str(mtu)]


def _install(host: Host, private: Path) -> tuple[Path, Path]:
    """Install the run's own copy of pppd, and the script that starts it for a session. Returns both."""
    # The distribution installs it setuid and closed to others; the copy needs neither.
    program = private / "pppd"
    host.run(["install", "-D", "-m", "755", PPPD, str(program)])
    source = programs.path(__package__, "pppoe_session.sh")
    starter = private / source.name
    host.run(["install", "-m", "755", str(source), str(starter)])
    return program, starter


def _proved(auth: PppAuth, client_log: Path) -> str:
    """How the client authenticated, in pppd's words; CommandFailed if that is not what was asked for."""
    agreed, succeeded = authentication(client_log.read_text(encoding="utf-8", errors="replace"))
    if agreed is None or agreed.split()[0] != auth or not succeeded:
        raise CommandFailed(
            f"expected the PPPoE client to authenticate by {auth.upper()}, found in its log: "
            f"{printable(agreed or 'nothing')}, {'with' if succeeded else 'without'} success",
            hint=f"see {client_log.name}",
        )
    return agreed


def authentication(log: str) -> tuple[str | None, bool | None]:
    """How a client authenticated in its last session, by its log, as pppd names it (``pap``, ``chap MD5``),
    and whether that succeeded. What the log does not say is None.
    """
    agreed = list(_AGREED.finditer(log))
    if not agreed:
        return None, None
    words = agreed[-1][1].strip()
    outcomes = (match for match in _OUTCOME.finditer(log, agreed[-1].start()))
    of_it = [match[2] == "succeeded" for match in outcomes if match[1].lower() == words.split()[0]]
    return words, of_it[-1] if of_it else None


def _last_words(log: Path) -> str:
    """The last lines that a pppd logged about itself, without the packets that it logs."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    words = [line for line in text.splitlines() if line and not line.startswith(("sent [", "rcvd [", " "))]
    return " / ".join(words[-4:]) or "nothing"


def _hears_discovery(concentrator: Host) -> bool:
    """Whether a process listens for PPPoE discovery (its EtherType, in packet(7)'s list of sockets)."""
    (sockets,) = concentrator.read_files(["/proc/net/packet"])
    return " 8863 " in sockets


def _is_up(host: Host, iface: str) -> bool:
    """Whether the session's interface has its two addresses."""
    done = host.run(["ip", "-o", "-4", "address", "show", "dev", iface], check=False)
    return " peer " in done.stdout


OFFERED = (
    PathKind(
        name="pppoe",
        passing_on=session,
        modules=MODULES,
        private_folders=(str(CONFIGURATION),),
        carries="PPP session",
    ),
)
