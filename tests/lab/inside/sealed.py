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

from harness.hosts import NamespaceHost
from harness.hosts.journal import Journal
from harness.hosts.runner import await_condition
from harness.model import NVME_TCP, BackingKind, LinkProfile
from harness.model.errors import CommandFailed
from harness.network import links
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import tls, witness
from harness.protection.kind import ProtectionContext, Underlay
from harness.runs import executor
from harness.storage import transports
from harness.storage.transport import Export, Lun, Shared, Sides
from tests.lab.inside.kernel import sh

FOLDER = Path("/run/sealed")
MARK = b"the marked block"
BLOCK_BYTES = 4096
BLOCKS = 64
NVME = transports.named(NVME_TCP)
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


def captured(path: links.LinkPath, device: str, file: Path) -> bytes:
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
    FOLDER.mkdir()
    executor.mount_private()
    for module in {*NVME.modules("target", ()), *NVME.modules("initiator", ()), "brd"}:
        sh("modprobe", module)
    near, journal = NamespaceHost("initiator"), Journal(FOLDER / "journal.jsonl")
    plan = make_plan(
        RunRequest(links=("wired",), protect=("tls",), transports=("nvme-tcp",), lab_kernel="debian")
    )
    lun = Lun(serial="sealed", kind=BackingKind.BLOCK, path="/dev/ram0", size_bytes=BLOCKS * BLOCK_BYTES)
    with contextlib.ExitStack() as stack:
        sides = Sides(journal=journal, tag="abcd", target=near, initiators=(near,), luns=(lun,), logs=FOLDER)
        shared = stack.enter_context(NVME.shared(sides))
        run = ProtectionContext(
            plan=plan, initiator=near, journal=journal, private=FOLDER, folder=FOLDER, shared=stack, paths=2
        )
        for index, secure in enumerate((False, True)):
            link = stack.enter_context(
                links.bring_up(links.LinkPlace(journal, near, LINK, tag="abcd", index=index))
            )
            path = dataclasses.replace(link, port=NVME.port)
            wanted = Export(
                name=str(index),
                number=0,
                lun=lun,
                target=path.target,
                address=path.target_address,
                port=path.port,
                tls=secure,
                parameters={},
            )
            if secure:
                kind = tls.TlsDriver(daemons=tls.TlsDaemons(run=run))
                witnesses = stack.enter_context(witness.witnesses(path, FOLDER))
                underlay = Underlay(below=path, level=0, mtu_bytes=1500, witnesses=witnesses, raw=FOLDER)
                layer = stack.enter_context(kind.protect(underlay))
            with shared.attach(wanted) as session:
                found = captured(path, session.disk.device, FOLDER / f"{index}.pcap")
                reported = {}
                if secure:
                    for look in layer.look():
                        assert look.tally.faults == () and look.tally.out.bytes > 0, look
                    reported = layer.agreed
                print(
                    "tls" if secure else "clear",
                    found.count(MARK),
                    len(found),
                    session.agreed.get("tls"),
                    reported,
                )
        refuse_clear(shared, dataclasses.replace(wanted, tls=True))
    left = [line for line in Path("/proc/keys").read_text(encoding="utf-8").splitlines() if " psk " in line]
    assert left == [], left


def refuse_clear(shared: Shared, wanted: Export) -> None:
    """A portal with TLS has no connection for who does not ask for TLS."""
    with shared.export(wanted):
        try:
            with shared.connect(dataclasses.replace(wanted, tls=False)):
                raise AssertionError("a connection in clear was expected to be refused")
        except CommandFailed as error:
            print("refused:", error.message)


if __name__ == "__main__":
    main()
