"""What a machine is like, to be compared before and after a run: JSON, a list of lines by what it is.

It is sent to the machine's own Python, as root, and imports nothing of ours. What changes by itself on an
idle machine (logs, counters, the session that asks) is left out here, by name, and nothing else is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ITSELF = re.compile(
    r"^/(?:"
    # Logs, who logged in, and what systemd notes down about sessions, units and time.
    r"var/log/|var/lib/systemd/|var/cache/|var/lib/private|var/lib/dhcp/|run/log/|run/utmp|run/motd|run/sudo"
    r"|run/systemd/(?:sessions|users|transient|units|inaccessible|journal|io\.|propagate|incoming|netif|generator)"
    # What Debian's own timers write at midnight (logrotate, dpkg-db-backup).
    r"|var/lib/logrotate/|var/backups/"
    r"|run/user/|run/udev/|run/credentials|run/lock/lvm|tmp/systemd-private|var/tmp/systemd-private"
    r")"
)
TRANSIENT_UNITS = re.compile(
    r"^(?:session-|user@|user-|run-|systemd-tmpfiles-clean|apt-|dpkg-|logrotate|e2scrub|man-db|fstrim"
    r"|systemd-hostnamed|systemd-timedated|NetworkManager-dispatcher"
    r"|sys-|dev-|sshd@|ssh@|proc-sys-fs-binfmt|systemd-journald@)"
)
LIFETIME = re.compile(r"\s+(?:valid|preferred)_lft \S+| qlen \d+")
BETWEEN_STATES = {"activating", "deactivating", "reloading", "refreshing"}
"""Of systemd: udev's daemon is reloading where a package that was just installed brought rules."""

COUNTERS = re.compile(
    r"^(?:kernel\.random\.|fs\.(?:dentry-state|inode-|file-nr|aio-nr|quota|binfmt_misc)|kernel\.ns_last_pid"
    r"|kernel\.pty\.nr|net\.netfilter\.nf_conntrack_count|kernel\.tainted|net\.ipv4\.tcp_fastopen_key)"
)


def said(*argv: str) -> list[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return []


def files(top: str, *, contents: bool) -> list[str]:
    """Names, with a digest of what is in them where that is asked for."""
    found = []
    for folder, folders, names in os.walk(top):
        for name in folders + names:
            path, digest = Path(folder, name), ""
            if ITSELF.match(str(path)):
                continue
            if contents and path.is_file() and not path.is_symlink():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            found.append(f"{path} {digest}".rstrip())
    return sorted(found)


def units() -> list[str]:
    """Each with its state, once none is between two states; after a minute as they are."""
    end = time.monotonic() + 60
    while True:
        rows = [line.split() for line in said("systemctl", "list-units", "--all", "--plain", "--no-legend")]
        rows = [row for row in rows if len(row) > 3 and not TRANSIENT_UNITS.match(row[0])]
        if time.monotonic() > end or not any(row[2] in BETWEEN_STATES for row in rows):
            return sorted(f"{row[0]} {row[2]} {row[3]}" for row in rows)
        time.sleep(0.5)


def listening() -> list[str]:
    rows = [line.split() for line in said("ss", "-H", "-l", "-n", "-t", "-u")]
    return sorted({f"{row[0]} {row[4]}" for row in rows if len(row) > 4})


def snapshot() -> dict[str, list[str]]:
    return {
        "xfrm states": said("ip", "xfrm", "state"),
        "xfrm policies": said("ip", "xfrm", "policy"),
        "addresses": [LIFETIME.sub("", line) for line in said("ip", "address")],
        "routes": said("ip", "route", "show", "table", "all"),
        "rules": said("ip", "rule"),
        "network namespaces": said("ip", "netns"),
        "configfs": files("/sys/kernel/config", contents=False),
        "nvmet": said("sh", "-c", "cd /sys/kernel/config/nvmet && grep -rs '' subsystems ports hosts"),
        "iSCSI sessions": said("sh", "-c", "ls /sys/class/iscsi_session"),
        "block devices": said("sh", "-c", "ls /sys/class/block"),
        "device mapper": said("dmsetup", "ls"),
        "mounts": sorted(line for line in said("cat", "/proc/mounts") if "/run/user/" not in line),
        "files in /etc": files("/etc", contents=True),
        **{f"files in {top}": files(top, contents=False) for top in ("/var", "/run", "/tmp", "/root")},
        "firewall": said("nft", "list", "ruleset"),
        "sysctls": sorted(line for line in said("sysctl", "-a") if not COUNTERS.match(line)),
        "units": units(),
        "listening": listening(),
        # The last, for the programs above have some loaded: ss(8) those of its own.
        "modules": sorted(line.split()[0] for line in said("cat", "/proc/modules")),
    }


if __name__ == "__main__":
    json.dump(snapshot(), sys.stdout)
