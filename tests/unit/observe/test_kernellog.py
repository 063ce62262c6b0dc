"""The kernel's log: which lines make a cell invalid, and how /dev/kmsg is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from harness.hosts import NamespaceHost, _kernel_log
from harness.observe.kernellog import complaints
from harness.storage import transports

NAME = "2026-11.net.storage-harness:beef.wired.off"
TROUBLES = [line for each in transports.every() for line in each.troubles]
TROUBLE = [
    ("kernel warning", "", "WARNING: CPU: 0 PID: 77 at net/xfrm/xfrm_state.c:750 xfrm_state_delete+0x1c"),
    ("kernel warning", "", "BUG: unable to handle page fault for address: ffffc90000a4f000"),
    ("kernel warning", "", "Oops: 0002 [#1] PREEMPT SMP"),
    ("kernel warning", "traps: ", "general protection fault, probably for non-canonical address"),
    ("kernel warning", "", "Kernel panic - not syncing: Attempted to kill init!"),
    ("hung task", "", "INFO: task fio:812 blocked for more than 120 seconds."),
    ("the iSCSI session dropped", " connection1:0: ", "detected conn error (1022)"),
    ("the iSCSI session dropped", " session1: ", "session recovery timed out after 10 secs"),
    ("I/O error", "", "I/O error, dev sda, sector 2048 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2"),
    ("I/O error", "blk_update_request: ", "I/O error, dev sda, sector 0"),
    ("LIO error", "", f"Unable to locate Target Portal Group on iqn.{NAME}"),
]
ORDINARY = [
    "",
    "scsi host0: iSCSI Initiator over TCP/IP",
    "sd 0:0:0:0: [sda] 262144 512-byte logical blocks: (134 MB/128 MiB)",
    "sd 0:0:0:0: [sda] Attached SCSI disk",
    "brd: module loaded",
    "Initializing XFRM netlink socket",
    "bridge0: port 1(hbeefmi1) entered blocking state",
    "debugfs: Directory 'loop0' with parent 'block' already present!",
    "nvme nvme0: I/O 12 QID 3 timeout, aborting",  # of a disk on the machine's own bus
    "hbeefi1: Caught tx_queue_len zero misconfig",
]


def test_lines_of_trouble_are_reasons_in_their_order_and_ordinary_ones_are_none() -> None:
    for kind, before, line in TROUBLE:
        assert complaints([before + line], TROUBLES) == [f"{kind}: {line}"]
    for line in ORDINARY:
        assert complaints([line], TROUBLES) == [], line
    lines = ["BUG: scheduling while atomic", "brd: module loaded", " connection1:0: detected conn error (1)"]
    kinds = [reason.partition(":")[0] for reason in complaints(lines, TROUBLES)]
    assert kinds == ["kernel warning", "the iSCSI session dropped"]


class Kmsg:
    """What read(2) of /dev/kmsg gives, one record at a time (Documentation/ABI/testing/dev-kmsg)."""

    def __init__(self, *records: bytes | type[OSError]) -> None:
        self.records = list(records)

    def read(self, _file: int, _count: int) -> bytes:
        if not self.records:
            raise BlockingIOError
        if isinstance(record := self.records.pop(0), bytes):
            return record
        raise record


@pytest.fixture
def kmsg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kmsg]:
    _kernel_log.cache_clear()  # a process opens the log once
    (tmp_path / "kmsg").write_bytes(b"")
    real_open = os.open

    def opened(path: str, flags: int, **more: Any) -> int:  # pytest, too, opens when the test is over
        return real_open(tmp_path / "kmsg" if path == "/dev/kmsg" else path, flags, **more)

    monkeypatch.setattr(os, "open", opened)
    fake = Kmsg()
    monkeypatch.setattr(os, "read", fake.read)
    yield fake
    _kernel_log.cache_clear()


def test_each_read_gives_the_messages_since_the_last(kmsg: Kmsg, monkeypatch: pytest.MonkeyPatch) -> None:
    host = NamespaceHost("target")
    assert host.kernel_messages() == []
    kmsg.records += [
        b"6,339,5140900,-;NET: Registered PF_INET6\n SUBSYSTEM=net\n DEVICE=+net:x\n",
        b"4,340,5690716,-;a; b\n",
        BrokenPipeError,  # lines were lost
        b"4,399,5690999,c;caf\xc3\xa9 \xff\n",
    ]
    assert host.kernel_messages() == ["NET: Registered PF_INET6", "a; b", "café \N{REPLACEMENT CHARACTER}"]
    assert host.kernel_messages() == []
    # Hosts of one kernel share its log, so it is asked once for all of them; see ``Host.kernel``.
    one, other = NamespaceHost("initiator"), NamespaceHost("target", "harness-beef-0")
    assert one.kernel == other.kernel
    kmsg.records.append(b"4,340,5690716,-;once\n")
    assert one.kernel_messages() + other.kernel_messages() == ["once"]
    # Without a readable one there are no lines.
    _kernel_log.cache_clear()
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError))
    assert NamespaceHost("target").kernel_messages() == []
