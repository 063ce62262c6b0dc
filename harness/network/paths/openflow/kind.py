"""An OpenFlow switch: Open vSwitch with the kernel's datapath, and ovs-testcontroller as its controller.

What matches a flow, the kernel forwards; what matches none passes the switch's program, which asks the
controller. All of it is the run's own: database, sockets and logs are in private folders, and nothing is the
system service's. The switch is a network namespace; its controller is another one, at the end of a shaped
link of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.hosts import Host, runner
from harness.hosts.journal import Journal
from harness.model import LinkProfile, OpenFlow
from harness.model.errors import CommandFailed, HarnessError
from harness.network import links
from harness.network.links import Folders, LinkPath, LinkPlace, NetworkNamespace, VethPair
from harness.network.paths.chain import FAR, NEAR, address
from harness.network.paths.kind import PathKind

MODULES = ("openvswitch",)
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
BRIDGE = "switch"
CONTROL = "control"
PORT = 6653
"""IANA's port for OpenFlow."""

CONTROL_SEGMENT = 63
"""The segment of the path's network that no packet of the path can use."""

DEADLINE_S = 20.0

UPTIME_S = 10.5
"""Open vSwitch 3.1 counts processors only once its kernel has run for 10 s (count_cpu_cores(),
lib/ovs-thread.c). A program of it that starts earlier takes no packet from the kernel."""

PROCESSOR = "processor"
"""The queue of a switch's processor that has a CPU cost."""

CELL_BYTES = 2**17
"""More than any frame: netem's rate then takes as long for each (tc-netem(8), CELLSIZE)."""

FLOODING = ("--hub", "--noflow")
"""Each packet is sent back to the switch to be flooded, and the flow table stays empty."""

INSTALLING = ("--hub", "--wildcards", "--max-idle=permanent")
"""The first packet has a flow installed that floods it and all like it, permanently."""


@contextlib.contextmanager
def switch(place: LinkPlace, path: LinkPath, folders: Folders) -> Iterator[Mapping[str, str]]:
    """Make the one hop of a path forward as its controller says, while the context lasts.

    CommandFailed with the end of the switch's log if it does not reach its controller in time.
    """
    settings = path.profile.hops.openflow if path.profile.hops is not None else None
    if settings is None:
        raise AssertionError(f"{path.profile.name} has no controller")
    private, logs = folders.private, folders.logs
    (hop,) = path.hops
    own = address(path.index, CONTROL_SEGMENT, 2)
    env = dict.fromkeys(("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"), str(private))
    database, socket = str(private / "conf.db"), f"unix:{private}/db.sock"
    with contextlib.ExitStack() as stack:

        def start(host: Host, *argv: str, name: str, ready: Callable[[], bool]) -> None:
            """``name`` is the name of its log and of its control socket."""
            words = [*argv, f"--unixctl={private}/{name}.ctl"]
            log = logs / f"{name}.log"
            stack.enter_context(host.daemon(words, log=log, ready=ready, deadline_s=DEADLINE_S, env=env))

        def listens(name: str) -> Callable[[], bool]:
            return lambda: hop.run(["test", "-S", f"{private}/{name}"], check=False).status == 0

        controller = stack.enter_context(_controller(place, path, settings))
        # A column that comes up again finds the database of the first time, which ovsdb-tool refuses.
        hop.run(["rm", "-rf", str(private)])
        hop.run(["mkdir", "-p", "-m", "700", str(private)])
        start(
            controller,
            *("ovs-testcontroller", f"ptcp:{PORT}:{own}", *(INSTALLING if settings.flows else FLOODING)),
            name="controller",
            ready=lambda: f":{PORT}" in controller.run(["ss", "-ltnH"]).stdout,
        )
        hop.run(["ovsdb-tool", "create", database, SCHEMA], env=env)
        remote = f"--remote=p{socket}"
        start(hop, "ovsdb-server", database, remote, name="ovsdb-server", ready=listens("db.sock"))
        if settings.cpu_percent is not None and settings.packet_us:
            _set_cost(stack, place.journal, path, settings.packet_us * 100 / settings.cpu_percent)
        time.sleep(max(0.0, UPTIME_S - time.clock_gettime(time.CLOCK_BOOTTIME)))
        start(hop, "ovs-vswitchd", socket, name="ovs-vswitchd", ready=listens("ovs-vswitchd.ctl"))
        ask = ["ovs-vsctl", f"--db={socket}", f"--timeout={DEADLINE_S:.0f}"]
        hop.run([*ask, *_configuration(own)], env=env)
        _await_controller(hop, ask, env, logs / "ovs-vswitchd.log")
        if settings.flows:
            # The first packets find no flow and wait for the controller: a ping of them took 7 to 29 ms.
            with contextlib.suppress(HarnessError):
                path.initiator.run(["ping", "-q", "-c", "1", "-W", "5", path.target_address], check=False)
        stack.callback(_keep_flows, hop, private, logs / "flows.txt")
        yield {}


def _set_cost(stack: contextlib.ExitStack, journal: Journal, path: LinkPath, packet_us: float) -> None:
    """Let a switch take so long for each packet of either host, one after the other."""
    (hop,) = path.hops
    queue = stack.enter_context(journal.hold(hop, links.Airtime(PROCESSOR, (NEAR, FAR), is_inward=True)))
    rate_bit_s = round(8 * CELL_BYTES * 1e6 / packet_us)
    limit = path.profile.queue_packets or links.QUEUE_PACKETS
    links.shape(hop, queue.iface, f"limit {limit} rate {rate_bit_s}bit 0 {CELL_BYTES}")


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
        # Otherwise the switch owns the ports' queues, and removes netem (ovs-vswitchd.conf.db(5)).
        *("--", "--id=@own", "create", "qos", "type=linux-noop"),
        *("--", "set", "port", NEAR, "qos=@own", "--", "set", "port", FAR, "qos=@own"),
        *("--", "set-controller", BRIDGE, f"tcp:{controller}:{PORT}"),
        *("--", "set", "controller", BRIDGE, "connection_mode=out-of-band"),
    ]


@contextlib.contextmanager
def _controller(place: LinkPlace, path: LinkPath, settings: OpenFlow) -> Iterator[Host]:
    """The host of the controller, and the link between it and the switch, up and shaped.

    What the controller answers takes none of the link: ovs-testcontroller sends each packet back whole, where
    one that uses the switch's buffers (OpenFlow 1.0, 5.3.6: ``buffer_id``) sends 24 bytes.
    """
    (hop,) = path.hops
    controller = hop.in_netns("controller", f"{place.netns}-c")
    link = LinkProfile(
        name=settings.controller,
        title=settings.controller,
        emulated=True,
        rate_bit_s=settings.rate_bit_s,
        delay_us=settings.delay_us,
        frame_overhead_bytes=settings.frame_overhead_bytes,
        queue_packets=path.profile.queue_packets,
    )
    answers = msgspec.structs.replace(link, rate_bit_s=None)
    with contextlib.ExitStack() as stack:
        journal, namespace = place.journal, NetworkNamespace(controller.netns or "")
        stack.enter_context(journal.hold(path.initiator, namespace))
        pair = VethPair(CONTROL, CONTROL, namespace.name, link.mtu_bytes)
        stack.enter_context(journal.hold(hop, pair))
        for end, host in enumerate((hop, controller), 1):
            own = address(path.index, CONTROL_SEGMENT, end)
            host.run(
                ["ip", "-batch", "-"],
                input=f"link set dev {CONTROL} up\naddress add {own}/30 dev {CONTROL}\n",
            )
            parameters = links.netem(link if host is hop else answers)
            if parameters is not None:
                links.shape(host, CONTROL, parameters)
        yield controller


OFFERED = (PathKind(name="openflow", passing_on=switch, modules=MODULES),)
