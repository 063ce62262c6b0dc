"""Volumes of another machine, mounted by NFS and by SMB: files that are there are read, new ones written."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.lab.inside import nas, strangers
from tests.lab.inside.kernel import RESULTS, harness, measured, modprobe, newest_run, serving, sh, within

NAS = "192.0.2.2"
MIB = 1 << 20
SHARED = Path("/srv/share")
IN_NAS = within("nas")
RUN = ("run", f"--results={RESULTS}", "--repeats=1", "--runtime=0.5s")
SMB_CONF = f"""\
[global]
    map to guest = Bad User
    smb ports = 445
    interfaces = {NAS}
    pid directory = /run/smb
    lock directory = /run/smb
    state directory = /run/smb
    cache directory = /run/smb
    private dir = /run/smb
    ncalrpc dir = /run/smb/ncalrpc
    log file = /run/smb/log
    disable spoolss = yes
[share]
    path = {SHARED}
    guest ok = yes
    read only = no
    force user = root
"""


@contextlib.contextmanager
def nfs() -> Iterator[str]:
    """The kernel's server, version 4 alone: it needs no rpcbind."""
    modprobe("nfsd")
    sh(*IN_NAS, "mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    for name in ("/var/lib/nfs/v4recovery", "/var/lib/nfs/rpc_pipefs"):
        Path(name).mkdir(parents=True, exist_ok=True)
    # Nobody has a lock to claim back from before.
    for name in ("nfsv4gracetime", "nfsv4leasetime"):
        sh(*IN_NAS, "sh", "-c", f"echo 10 > /proc/fs/nfsd/{name}")
    mountd = (*IN_NAS, "rpc.mountd", "--foreground", "--no-nfs-version", "3")
    with serving(*mountd, ready=lambda: True):
        sh(*IN_NAS, "exportfs", "-o", "rw,no_subtree_check,no_root_squash,fsid=0", f"*:{SHARED}")
        sh(*IN_NAS, "rpc.nfsd", "--no-nfs-version", "3", "4")
        sh(*IN_NAS, "sh", "-c", "echo Y > /proc/fs/nfsd/v4_end_grace", check=False)
        try:
            yield "mount -t nfs4 -o vers=4.2,rsize=65536 192.0.2.2:/ "
        finally:
            sh(*IN_NAS, "rpc.nfsd", "0")
            sh(*IN_NAS, "exportfs", "-ua")
            sh("umount", "/proc/fs/nfsd")


@contextlib.contextmanager
def smb() -> Iterator[str]:
    Path("/run/smb").mkdir()
    Path("/run/smb.conf").write_text(SMB_CONF, encoding="utf-8")
    words = ("--foreground", "--no-process-group", "--debug-stdout", "--configfile=/run/smb.conf")
    ready = functools.partial(strangers.is_listening, ":445")
    with serving(*IN_NAS, "smbd", *words, ready=ready, deadline_s=30):
        yield f"mount -t cifs -o guest,vers=3.1.1 //{NAS}/share "


def shared(kind: str, server: Callable[[], contextlib.AbstractContextManager[str]], reported: str) -> None:
    film, place = SHARED / "film", Path("/mnt", kind)
    film.write_bytes(random.Random(kind).randbytes(32 * MIB))  # noqa: S311 -- no secret
    was = strangers.checksum(film)
    place.mkdir(parents=True)
    with server() as mount:
        sh("sh", "-euc", f"{mount} {place}")
        for name, words in (
            ("film", ("--workload=rand-read-4k", "--workload=seq-read-256k")),
            ("new", ("--workload=rand-write-4k", "--size=16M")),
        ):
            found = measured(*RUN, f"--volume={place}/{name}", *words)
            (title,) = {record["link_title"] for record in found.values()}
            columns = [record["column"] for record in found.values()]
            assert {(each["link"], each["transport"]) for each in columns} == {(kind, None)}, columns
            assert f"{place}/{name} ({reported}" in title, title
            print(kind, name, title)
            if name == "film":
                (reread,) = {each["reread"]["verdict"] for each in found.values()}
                print(f"{kind}: the server's cache is {reread}")
                table, answer = harness("table", str(newest_run())), harness("explain", str(newest_run()))
                print(table, answer)
                assert f"{kind}: a file of another machine" in " ".join(table.split()), table
            job = next(newest_run().rglob("job.fio")).read_text(encoding="utf-8")
            assert "direct=1" in job, job
        assert [each.name for each in SHARED.iterdir() if each.name != "lost+found"] == ["film"]
        assert strangers.checksum(film) == was
        sh("umount", str(place))
    print(f"{kind}: read, and a new file written and removed")


def main(kinds: list[str]) -> None:
    nas.make_network()
    modprobe("brd rd_nr=1 rd_size=131072")
    sh("mkfs.ext4", "-q", "-F", "/dev/ram0")
    SHARED.mkdir(parents=True, exist_ok=True)
    sh("mount", "/dev/ram0", str(SHARED))
    if "nfs" in kinds:
        shared("nfs", nfs, f"nfs4 of {NAS}:/, vers=4.2, rsize=65536, wsize=")
    if "smb" in kinds:
        shared("smb", smb, f"cifs of //{NAS}/share, vers=3.1.1, sec=none, cache=strict, ")


if __name__ == "__main__":
    main(sys.argv[1:])
