"""Stubs for libraries that fio loads but no job of a run needs: one small library with all their symbols.

Debian's fio loads some sixty libraries at each start, most of them for the I/O engines of Ceph, GlusterFS,
RDMA, NBD and persistent memory, which no job may name (``harness.parse.jobfile``). That makes 2,165 page
faults (fio 3.33, `fio --version`), each of which takes its time in the lab; with the stubs it is 494.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from harness.hosts import runner

DISPENSABLE = re.compile(
    r"lib(gfapi|nbd|ibverbs|rdmacm|rados|rbd|pmem|pmem2|pmemblk|daxctl|ndctl|iscsi|nfs|curl|curl-gnutls|hdfs)\.so\b"
)
"""Libraries of I/O engines that a job may not name."""

WITHOUT_VERSION = re.compile(r"(rados|rbd|iscsi|nfs|curl|hdfs)")
"""How their functions begin that have no version; others without are of libraries that are kept."""

NEEDED = re.compile(r"NEEDED +(\S+)")
VERSIONS = re.compile(r"required from (\S+):\n((?: +0x.*\n)+)")
"""In what objdump(1) lists: a library, and the versions of symbols that are asked of it, a line each."""

UNDEFINED = re.compile(r" U (\w+)(?:@(\S+))?$", re.MULTILINE)
"""In what nm(1) lists: a function of a library's, and its version."""


def make(program: str, folder: Path) -> None:
    """Make in ``folder`` what ld.so(8) finds in place of a program's libraries; CommandFailed if that fails.

    It asks for all functions as it starts (BIND_NOW), so they are there, with their versions, and do nothing.
    """
    listed = runner.run(["objdump", "--private-headers", program]).stdout
    versions = {
        version: library
        for library, lines in VERSIONS.findall(listed)
        for version in re.findall(r"\S+$", lines, re.MULTILINE)
    }
    functions = defaultdict(list)
    for name, version in UNDEFINED.findall(
        runner.run(["nm", "--dynamic", "--undefined-only", program]).stdout
    ):
        if DISPENSABLE.match(versions.get(version, "")) or (not version and WITHOUT_VERSION.match(name)):
            functions[version].append(name)
    if not functions:
        return
    script = folder / "versions"
    nodes = (f"{version or 'NONE'} {{ {'; '.join(names)}; }};\n" for version, names in functions.items())
    script.write_text("".join(nodes), encoding="ascii")
    text = "".join(f"void {name}(void) {{}}\n" for names in functions.values() for name in names)
    words = ["-shared", "-nostdlib", "-fno-builtin", f"-Wl,--version-script={script}", "-x", "c", "-"]
    runner.run(["cc", *words, "-o", str(folder / "stubs.so")], input=text)
    for library in NEEDED.findall(listed):
        if DISPENSABLE.match(library):
            # The same file: it is loaded once for all of them.
            (folder / library).symlink_to("stubs.so")
