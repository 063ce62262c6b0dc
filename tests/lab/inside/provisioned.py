"""The `Samples` of a disk that says what it has stored: scsi_debug, whose first quarter is written."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.hosts import NamespaceHost
from harness.storage import reread
from tests.lab.inside.kernel import modprobe, sh, wait_for

SIZE_MIB = 64
THIN = "lbpu=1 lbprz=1 unmap_granularity=8"


def disks() -> list[Path]:
    return list(Path("/sys/block").glob("sd*"))


def main() -> None:
    modprobe("sd_mod", f"scsi_debug dev_size_mb={SIZE_MIB} delay=0 {THIN}")
    wait_for(lambda: len(disks()) == 1, "its disk", deadline_s=10)
    (disk,) = disks()
    device = f"/dev/{disk.name}"
    sh("dd", "if=/dev/urandom", f"of={device}", "bs=1M", f"count={SIZE_MIB // 4}", "oflag=direct")
    found = reread.sample(NamespaceHost("initiator"), device, region_bytes=SIZE_MIB << 20, seed=1)
    print(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    main()
