"""An OpenFlow switch: Open vSwitch with the kernel's datapath, and ovs-testcontroller as its controller.

What matches a flow, the kernel forwards; what matches none passes the switch's program, which asks the
controller. All of it is the run's own: database, sockets and logs are in private folders, and nothing is the
system service's. The switch is a network namespace; its controller is another one, at the end of a shaped
link of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.hosts import Host, runner
from harness.hosts.footprint import Leftover
from harness.hosts.journal import Journal
from harness.hosts.undo import Step
from harness.model import LinkProfile, OpenFlow
from harness.model.errors import CommandFailed, HarnessError, RequirementError
from harness.network import links
from harness.network.links import LinkPath, NetworkNamespace, VethPair
from harness.network.paths.chain import FAR, NEAR, address

MODULES = ("openvswitch",)
LEAVES = (
    Leftover(
        what="the control group",
        names='ls -d /sys/fs/cgroup/harness-"$1"-* 2>/dev/null',
        where='/sys/fs/cgroup/harness-"$1"-*',
    ),
)

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
BRIDGE = "switch"
CONTROL = "control"
PORT = 6653
"""IANA's port for OpenFlow."""

CONTROL_SEGMENT = 63
"""The segment of the path's network that no packet of the path can use."""

DEADLINE_S = 20.0
CGROUPS = "/sys/fs/cgroup"
PERIOD_US = 100_000

UPTIME_S = 10.5
"""Open vSwitch 3.1 counts processors only once its kernel has run for 10 s (count_cpu_cores(),
lib/ovs-thread.c). A program of it that starts earlier takes no packet from the kernel."""

PROCESSOR = "processor"
"""The queue of a switch's processor that has a price."""

CELL_BYTES = 2**17
"""More than any frame: netem's rate then takes as long for each (tc-netem(8), CELLSIZE)."""

FLOODING = ("--hub", "--noflow")
"""Each packet is sent back to the switch to be flooded, and the flow table stays empty."""

INSTALLING = ("--hub", "--wildcards", "--max-idle=permanent")
"""The first packet has a flow installed that floods it and all like it, permanently."""


class CpuShare(msgspec.Struct, frozen=True):
    """A control group whose processes get this part of one processor (cgroup v2, cpu.max)."""

    name: str
    percent: int

    @property
    def folder(self) -> str:
        return f"{CGROUPS}/{self.name}"

    def acquire(self, host: Host) -> None:
        # In the lab nobody has mounted it.
        script = (
            'test -e "$1/cgroup.controllers" || mount -t cgroup2 none "$1" || exit 1\n'
            'grep -qw cpu "$1/cgroup.subtree_control" || echo +cpu > "$1/cgroup.subtree_control" || exit 1\n'
            'mkdir "$2" && echo "$3" > "$2/cpu.max"'
        )
        quota = f"{self.percent * PERIOD_US // 100} {PERIOD_US}"
        done = host.run(["sh", "-c", script, "sh", CGROUPS, self.folder, quota], check=False)
        if done.status != 0:
            raise RequirementError(
                f"expected the kernel to limit the switch's processor time by a control group: "
                f"{done.stderr.strip()}",
                hint="leave :cpu=N out, or use the lab",
            )

    def undo(self) -> tuple[Step, ...]:
        return (Step(("rmdir", self.folder), absent=("No such file or directory",)),)


@contextlib.contextmanager
def switch(
    journal: Journal,
    path: LinkPath,
    settings: OpenFlow,
    *,
    tag: str,
    private: Path,
    logs: Path,
    is_virtual: bool = False,
) -> Iterator[None]:
    """Make the one hop of a path forward as its controller says, while the context lasts.

    A share of a processor is a control group's; ``is_virtual``: in virtual time it is a price of each packet.

    CommandFailed with the end of the switch's log if it does not reach its controller in time.
    """
    (hop,) = path.hops
    with contextlib.ExitStack() as stack:
        controller = stack.enter_context(_controller(journal, path, settings, tag=tag))
        hop.run(["mkdir", "-p", "-m", "700", str(private)])
        env = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"), str(private))
        own = address(path.index, CONTROL_SEGMENT, 2)
        stack.enter_context(
            controller.daemon(
                ["ovs-testcontroller", f"ptcp:{PORT}:{own}", *(INSTALLING if settings.flows else FLOODING)]
                + [f"--unixctl={private}/controller.ctl"],
                log=logs / "controller.log",
                ready=lambda: f":{PORT}" in controller.run(["ss", "-ltnH"]).stdout,
                deadline_s=DEADLINE_S,
                env=env,
            )
        )
        socket = stack.enter_context(_database(hop, private, logs, env))
        starting = ["ovs-vswitchd", socket, f"--unixctl={private}/vswitchd.ctl"]
        if settings.cpu_percent is not None and is_virtual and settings.packet_us:
            _set_price(stack, journal, path, settings.packet_us * 100 / settings.cpu_percent)
        elif settings.cpu_percent is not None:
            share = CpuShare(f"harness-{tag}-{path.index}", settings.cpu_percent)
            stack.enter_context(journal.hold(path.initiator, share))
            enter = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
            starting = ["sh", "-c", enter, "sh", share.folder, *starting]
        time.sleep(max(0.0, UPTIME_S - time.clock_gettime(time.CLOCK_BOOTTIME)))
        log = logs / "ovs-vswitchd.log"
        stack.enter_context(
            hop.daemon(
                starting,
                log=log,
                ready=lambda: hop.run(["test", "-S", f"{private}/vswitchd.ctl"], check=False).status == 0,
                deadline_s=DEADLINE_S,
                env=env,
            )
        )
        ask = ["ovs-vsctl", f"--db={socket}", f"--timeout={DEADLINE_S:.0f}"]
        hop.run([*ask, *_configuration(own)], env=env)
        _await_controller(hop, ask, env, log)
        if settings.flows:
            # The first packets find no flow and wait for the controller: a ping of them took 7 to 29 ms.
            with contextlib.suppress(HarnessError):
                path.initiator.run(["ping", "-q", "-c", "1", "-W", "5", path.target_address], check=False)
        stack.callback(_keep_flows, hop, private, logs / "flows.txt")
        yield


def _set_price(stack: contextlib.ExitStack, journal: Journal, path: LinkPath, packet_us: float) -> None:
    """Let a switch take so long for each packet of either host, one after the other."""
    (hop,) = path.hops
    queue = stack.enter_context(journal.hold(hop, links.Airtime(PROCESSOR, (NEAR, FAR), is_inward=True)))
    rate_bit_s = round(8 * CELL_BYTES * 1e6 / packet_us)
    limit = path.profile.queue_packets or links.QUEUE_PACKETS
    links.shape(hop, queue.iface, f"limit {limit} rate {rate_bit_s}bit 0 {CELL_BYTES}")


@contextlib.contextmanager
def _database(hop: Host, private: Path, logs: Path, env: Mapping[str, str]) -> Iterator[str]:
    """The switch's configuration, served on a socket, whose name is yielded."""
    database, socket = private / "conf.db", f"unix:{private}/db.sock"
    hop.run(["ovsdb-tool", "create", str(database), SCHEMA], env=env)
    with hop.daemon(
        ["ovsdb-server", str(database), f"--remote=p{socket}", f"--unixctl={private}/ovsdb.ctl"],
        log=logs / "ovsdb-server.log",
        ready=lambda: hop.run(["test", "-S", f"{private}/db.sock"], check=False).status == 0,
        deadline_s=DEADLINE_S,
        env=env,
    ):
        yield socket


def _await_controller(hop: Host, ask: Sequence[str], env: Mapping[str, str], log: Path) -> None:
    def is_connected() -> bool:
        return hop.run([*ask, "get", "controller", BRIDGE, "is_connected"], env=env).stdout == "true\n"

    try:
        runner.await_condition(
            is_connected, deadline_s=DEADLINE_S, what="the switch to reach its controller", interval_s=0.1
        )
    except CommandFailed as error:
        raise CommandFailed(f"{error}: {runner.tail(log)}", hint=f"its log is {log.name}") from error


def _keep_flows(hop: Host, private: Path, file: Path) -> None:
    """Keep the flow table as it is at the end: it shows whether packets went to the controller."""
    with contextlib.suppress(HarnessError):
        file.write_text(hop.run(["ovs-ofctl", "dump-flows", f"unix:{private}/{BRIDGE}.mgmt"]).stdout)


def _configuration(controller: str) -> list[str]:
    """ovs-vsctl(8)'s words for the bridge, which is useless without its controller."""
    return [
        *("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=system", "fail_mode=secure"),
        *("other_config:disable-in-band=true", "--", "add-port", BRIDGE, NEAR, "--", "add-port", BRIDGE, FAR),
        *("--", "set-controller", BRIDGE, f"tcp:{controller}:{PORT}"),
        *("--", "set", "controller", BRIDGE, "connection_mode=out-of-band"),
    ]


@contextlib.contextmanager
def _controller(journal: Journal, path: LinkPath, settings: OpenFlow, *, tag: str) -> Iterator[Host]:
    """The host of the controller, and the link between it and the switch, up and shaped."""
    (hop,) = path.hops
    controller = hop.beside("controller", f"harness-{tag}-{path.index}-c")
    link = LinkProfile(
        name=settings.controller,
        title=settings.controller,
        emulated=True,
        rate_bit_s=settings.rate_bit_s,
        delay_us=settings.delay_us,
        frame_overhead_bytes=settings.frame_overhead_bytes,
        queue_packets=path.profile.queue_packets,
    )
    with contextlib.ExitStack() as stack:
        netns = stack.enter_context(journal.hold(path.initiator, NetworkNamespace(controller.netns or "")))
        stack.enter_context(journal.hold(hop, VethPair(CONTROL, CONTROL, netns.name, link.mtu_bytes)))
        for end, host in enumerate((hop, controller), 1):
            own = address(path.index, CONTROL_SEGMENT, end)
            host.run(
                ["ip", "-batch", "-"],
                input=f"link set dev {CONTROL} up\naddress add {own}/30 dev {CONTROL}\n",
            )
            parameters = links.netem(link)
            if parameters is not None:
                links.shape(host, CONTROL, parameters)
        yield controller
