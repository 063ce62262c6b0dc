"""A marked block over NVMe/TCP, without TLS and with it: what of it is on the link?

`python -m tests.lab.inside.sealed`, on a kernel with TLS for NVMe/TCP. Prints a line for each: how often the
mark was found, how many bytes were captured, and what was agreed. Then a connection in clear is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
from pathlib import Path

from harness.hosts.runner import await_condition
from harness.model import LinkProfile
from harness.model.errors import CommandFailed
from harness.network.links import LinkPath
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import xfrm_listener
from harness.protection.kind import ProtectionContext, Underlay
from harness.protection.tls import kind as tls
from harness.storage.nvme import transport as nvme
from tests.lab.inside import exports
from tests.lab.inside.kernel import modprobe

FOLDER = Path("/run/sealed")
MARK = b"the marked block"
BLOCK_BYTES = 4096
BLOCKS = 64
LUN = exports.lun("abcd", "/dev/ram0", BLOCKS * BLOCK_BYTES)
LINK = LinkProfile(name="wired", title="", emulated=True, rate_bit_s=10**9, delay_us=50)


def write_marked(device: str) -> None:
    """Blocks that are full of the mark, around the page cache."""
    with mmap.mmap(-1, BLOCK_BYTES) as block:
        block.write(MARK * (BLOCK_BYTES // len(MARK)))
        file = os.open(device, os.O_WRONLY | os.O_DIRECT)
        try:
            for number in range(BLOCKS):
                os.pwrite(file, block, number * BLOCK_BYTES)
        finally:
            os.close(file)


def captured(path: LinkPath, device: str, file: Path) -> bytes:
    """Whole frames of what the initiator sent while marked blocks were written."""
    with path.initiator.daemon(
        ["tcpdump", "-i", path.initiator_iface, "-p", "-n", "-U", "--immediate-mode", "-Z", "root"]
        + ["-s", "0", "-w", str(file), f"tcp dst port {path.port}"],
        log=file.with_suffix(".log"),
        ready=lambda: b": listening on " in file.with_suffix(".log").read_bytes(),
        deadline_s=10,
    ):
        write_marked(device)
        await_condition(
            lambda: file.stat().st_size > BLOCKS * BLOCK_BYTES,
            deadline_s=20,
            what="the capture",
            interval_s=0.1,
        )
    return file.read_bytes()


def main() -> None:
    transport = exports.load(nvme.NAME)
    modprobe("brd")
    plan = make_plan(
        RunRequest(links=("wired",), protect=("tls",), transports=(nvme.NAME,), lab_kernel="debian")
    )
    with contextlib.ExitStack() as stack:
        journal = stack.enter_context(exports.journal_in(FOLDER))
        shared = stack.enter_context(transport.shared(exports.sides(journal, "abcd", LUN, FOLDER)))
        run = ProtectionContext(
            plan=plan,
            initiator=exports.NEAR,
            journal=journal,
            private=FOLDER,
            folder=FOLDER,
            shared=stack,
            paths=2,
        )
        for index, name in enumerate(("clear", "tls")):
            link = exports.link(journal, LINK, tag="abcd", index=index, port=transport.port)
            path, reported = stack.enter_context(link), {}
            wanted = dataclasses.replace(exports.export(path, LUN, str(index)), tls=name == "tls")
            if wanted.tls:
                kind = tls.TlsDriver(daemons=tls.TlsDaemons(run=run))
                listeners = stack.enter_context(xfrm_listener.listeners(path, FOLDER))
                underlay = Underlay(below=path, level=0, mtu_bytes=1500, listeners=listeners, raw=FOLDER)
                layer = stack.enter_context(kind.protect(underlay))
            with shared.attach(wanted) as session:
                found = captured(path, session.disk.device, FOLDER / f"{index}.pcap")
                if wanted.tls:
                    for look in layer.look():
                        assert look.tally.faults == () and look.tally.out.bytes > 0, look
                    reported = dict(layer.agreed)
                print(name, found.count(MARK), len(found), session.agreed.get("tls"), reported)
        # A portal with TLS has no connection for who does not ask for TLS.
        with shared.export(wanted):
            try:
                with shared.connect(dataclasses.replace(wanted, tls=False)):
                    raise AssertionError("expected a cleartext connection to be refused")
            except CommandFailed as error:
                print("refused:", error.message)
    left = [line for line in Path("/proc/keys").read_text(encoding="utf-8").splitlines() if " psk " in line]
    assert left == [], left


if __name__ == "__main__":
    main()
