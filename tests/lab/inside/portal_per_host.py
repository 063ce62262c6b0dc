"""Several initiators, each a kernel of its own, at one portal to which nobody logs in."""

from __future__ import annotations

import pwd
import shlex
from pathlib import Path

from harness.hosts import programs
from harness.testbeds.lab.per_host import management
from tests.lab.inside import strangers
from tests.lab.inside.kernel import RESULTS, harness, measured, newest_run, sh

PORTAL = f"{management.NETWORK}.1.1"
FILE = "/run/lun.img"
MAKE = f"""
modprobe --all target_core_mod target_core_file iscsi_target_mod
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
mkdir -p /etc/rtslib-fb-target
dd if=/dev/urandom of={FILE} bs=1M count=64 2>/dev/null
exec {programs.PYTHON} -c "$0" nas {strangers.IQN} {FILE} 0 '' '' {PORTAL} 512
"""
SESSIONS = "ls /sys/class/iscsi_session 2>/dev/null | wc -l"


def on(name: str, script: str, *words: str) -> str:
    return sh("ssh", name, shlex.join(["sh", "-euc", script, *words]))


def main() -> None:
    # The command undoes what it takes for a killed run's, and the keys lie in such a folder of this lab.
    keys = Path(pwd.getpwuid(0).pw_dir, ".ssh")
    sh("cp", "-rL", str(keys), "/run/keys")
    keys.unlink()
    Path("/run/keys").rename(keys)
    on("target", MAKE, strangers.DISK)
    names = {"initiator1": "local", "initiator2": "ssh://initiator2"}
    place = "mkdir -p /etc/iscsi; cat > /etc/iscsi/initiatorname.iscsi"
    for name, address in names.items():
        reach = ("sh", "-c", place) if address == "local" else ("ssh", name, place)
        sh(*reach, input=f"InitiatorName=iqn.1993-08.org.debian:01:{name}\n")
    was = on("target", f"sha256sum {FILE}")
    words = ("--workload=rand-read-4k", "--repeats=1", "--runtime=1s", "--no-probes", f"--portal={PORTAL}")
    initiators = [f"--initiator={each}" for each in names.values()]
    found = measured("run", f"--results={RESULTS}", *words, *initiators)
    assert {each["column"]["initiators"] for each in found.values()} == {1, 2}, found
    for record in found.values():
        if record["column"]["initiators"] == 1:
            strangers.one_end({"": record})
        for part in record["clients"]:
            assert part["status"] == "ok" and part["proof"]["at_one_end"], part
            assert part["proof"]["link_bytes_initiator"] > part["read"]["bytes"] > 0, part
    assert on("target", f"sha256sum {FILE}") == was
    assert (sh("sh", "-c", SESSIONS).strip(), on("initiator2", SESSIONS).strip()) == ("0", "0")
    print(harness("table", str(newest_run())))
    print("1 and 2 initiators: proved at one end, nothing written, nothing left")


if __name__ == "__main__":
    main()
