"""As `against_theory`, for protections by an interface, and for NVMe/TCP: one I/O in virtual time.

`python -m tests.lab.inside.kinds_against_theory TAG`, with --virtual-time; prints a `Measured` as JSON.
"""

from __future__ import annotations

import contextlib
import re
import sys

import msgspec

from harness import disks, initiator, inside, ipsec, links, macsec, nvme, theory, wireguard
from harness.initiator import IscsiSession
from harness.links import LinkPath
from harness.model import IpsecMode, LinkProfile
from harness.profiles import load_proposal
from harness.target import PORT, IscsiTarget, iqn
from tests.lab.inside.against_theory import CHAP_SECRET, FOLDER, WORKLOADS, Cell, Lab, cell, run_fio
from tests.lab.inside.kernel import sh

ESP = "aes128gcm16"


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be brought up: protections by name, the outermost first, and the transport."""

    protections: tuple[str, ...] = ()
    transport: str = "iscsi"
    mtu_bytes: int = 1500

    @property
    def name(self) -> str:
        return "-".join((self.transport, *self.protections, str(self.mtu_bytes)))

    @property
    def link(self) -> LinkProfile:
        """Gigabit Ethernet, as ``wired`` has it."""
        return LinkProfile(
            name="exact", title="", emulated=True, rate_bit_s=10**9, delay_us=50, mtu_bytes=self.mtu_bytes
        )

    @property
    def framing(self) -> theory.Framing | None:
        layers: list[theory.Framing] = []
        mtu_bytes = self.mtu_bytes
        for protection in self.protections:
            known: dict[str, theory.Framing] = {
                "wireguard": wireguard.framing(mtu_bytes),
                "macsec": macsec.Framing(),
                ESP: theory.esp(load_proposal(ESP).kernel_algorithms, IpsecMode.TRANSPORT),
            }
            layers.append(known[protection])
            mtu_bytes = layers[-1].inner_mtu_bytes(mtu_bytes)
        return theory.Stacked(layers=tuple(layers)) if layers else None


STACKS = ((), ("wireguard",), ("macsec",), ("macsec", ESP), ("macsec", "wireguard"))
FRAMINGS = (
    *(Framing(protections=stack) for stack in STACKS if stack),
    *(Framing(protections=(stack,), mtu_bytes=9000) for stack in ("wireguard", "macsec")),
    *(Framing(protections=stack, transport="nvme-tcp") for stack in STACKS),
    Framing(transport="nvme-tcp", mtu_bytes=9000),
)


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A framing: what was negotiated, and its cells by their workloads."""

    agreed: dict[str, str]
    mss_bytes: int
    window_bytes: int
    cells: dict[str, Cell]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All columns by name, and how long the disk takes for one command, by workload."""

    device_ns: dict[str, float]
    columns: dict[str, Column]


class Up(msgspec.Struct, frozen=True, kw_only=True):
    """A column that is up; ``path`` is its link, ``within`` where its portal is."""

    framing: Framing
    path: LinkPath
    within: LinkPath
    device: str
    agreed: dict[str, str]


def protect(lab: Lab, framing: Framing, path: LinkPath) -> LinkPath:
    mtu_bytes = framing.mtu_bytes
    for level, protection in enumerate(framing.protections):
        stack, journal = lab.stack, lab.journal
        if protection == "wireguard":
            made = wireguard.tunnel(journal, path, tag=lab.tag, mtu_bytes=mtu_bytes, level=level)
            path, mtu_bytes = stack.enter_context(made), wireguard.framing(mtu_bytes).mtu_bytes
        elif protection == "macsec":
            keys = macsec.make_keys("gcm-aes-128")
            channel = macsec.channel(journal, path, keys, tag=lab.tag, mtu_bytes=mtu_bytes, level=level)
            path = stack.enter_context(channel)
            mtu_bytes = macsec.Framing().inner_mtu_bytes(mtu_bytes)
        else:
            far = lab.start_charon(path.target, f"far-{path.index}", ipsec.IKE_PORT)
            stack.enter_context(
                ipsec.tunnel(
                    path,
                    (lab.charon, far),
                    name=f"harness-{lab.tag}-{path.index}",
                    proposal=load_proposal(protection),
                    mode=IpsecMode.TRANSPORT,
                    credentials=lab.credentials,
                )
            )
    return path


def steady(path: LinkPath) -> None:
    """As in `against_theory`: no slow start after a pause, and no ARP in the middle."""
    for host, iface in ((path.initiator, path.initiator_iface), (path.target, path.target_iface)):
        host.run(
            ["sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0"]
            + [f"net.ipv4.neigh.{iface}.base_reachable_time_ms={10**8}"]
        )


def bring_up(lab: Lab, framing: Framing, index: int) -> Up:
    stack, journal = lab.stack, lab.journal
    path = stack.enter_context(
        links.bring_up(journal, lab.near, framing.link, tag=lab.tag, index=index, frame_by_frame=True)
    )
    steady(path)
    within = protect(lab, framing, path)
    if within is not path:
        steady(within)
    if framing.transport == "iscsi":
        target = IscsiTarget(
            iqn=iqn(lab.tag, framing.name),
            backstore=lab.store,
            address=within.target_address,
            port=within.port,
            initiator_iqn=lab.name,
            chap_user="harness",
            secret=CHAP_SECRET,
        )
        stack.enter_context(journal.hold(path.target, target))
        session = IscsiSession(target.iqn, within.target_address, within.port, lab.name)
        stack.enter_context(journal.hold(lab.near, session))
        disk = initiator.await_disk(lab.near, session, serial=lab.store)
        agreed, device = initiator.negotiated(disk), disk.device
    else:
        host = nvme.nqn(lab.tag, "initiator")
        export = nvme.Export(
            nvme.nqn(lab.tag, framing.name),
            lab.store,
            disks.FLASH_DEVICE,
            within.target_address,
            PORT,
            host,
        )
        stack.enter_context(journal.hold(path.target, export))
        made = nvme.Connection(export.nqn, export.address, PORT, host)
        stack.enter_context(journal.hold(lab.near, made))
        device = nvme.await_disk(lab.near, made, serial=lab.store).device
        agreed = nvme.negotiated(lab.near, made)
    return Up(framing=framing, path=path, within=within, device=device, agreed=agreed)


def connection(path: LinkPath) -> tuple[int, int]:
    """The target's MSS and window of the connection that carries I/O, as ss(8) tells them."""
    told = path.target.run(["ss", "-tinH", "sport", f"= :{PORT}"]).stdout
    found = []
    for line in told.splitlines():
        values = {
            name: int(value) for name, value in re.findall(r"\b(mss|cwnd|snd_wnd|bytes_sent):(\d+)", line)
        }
        if "cwnd" in values:
            window = min(values["snd_wnd"], values["cwnd"] * values["mss"])
            found.append((values.get("bytes_sent", 0), values["mss"], window))
    _, mss, window = max(found)
    return mss, window


def main(tag: str) -> None:
    FOLDER.mkdir()
    inside.mount_private()
    for module in ("xfrm_user", "esp4", "macsec", "wireguard", *sum(nvme.MODULES.values(), ())):
        sh("modprobe", module)
    with contextlib.ExitStack() as stack:
        lab = Lab(tag, stack, paths=len(FRAMINGS))
        ups = [bring_up(lab, framing, index) for index, framing in enumerate(FRAMINGS)]
        sections = run_fio(lab.near, [(up.framing.name, up.path.initiator_iface, up.device) for up in ups])
        columns = {}
        for up in ups:
            name = up.framing.name
            mss_bytes, window_bytes = connection(up.within)
            columns[name] = Column(
                agreed=up.agreed,
                mss_bytes=mss_bytes,
                window_bytes=window_bytes,
                cells={
                    what: cell(sections[f"{name}.{what}.short"], sections[f"{name}.{what}.long"])
                    for what in WORKLOADS
                },
            )
        of_disk = {what: sections[f"disk.{what}.long"] for what in WORKLOADS}
        device_ns = {what: of.total_ns / of.ios for what, of in of_disk.items()}
        measured = Measured(device_ns=device_ns, columns=columns)
        sys.stdout.write(msgspec.json.encode(measured).decode() + "\n")
        sys.stdout.flush()
    assert not lab.journal.leaks and not lab.journal.open_entries(), lab.journal.leaks


if __name__ == "__main__":
    main(*sys.argv[1:])
