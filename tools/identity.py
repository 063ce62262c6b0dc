"""How many places say where, how and over what something was measured; and what a change touches.

    python tools/identity.py                # the three counts, with what is counted
    python tools/identity.py --touched A..B # the product's files that these commits touch

docs/decisions.md has the figures.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("harness/", "packages", "profiles/", "ipsec/", "releases/")

PARTS = {
    "testbed": {"testbed"},
    "clock": {"clock", "virtual", "is_virtual", "virtual_time"},
    "kernel": {"kernel", "lab_kernel", "other_kernel", "kernels"},
    "disk": {"disk", "backing"},
    "link": {"link", "links", "link_title"},
    "protection": {"protection", "protections", "protect", "ipsec"},
    "transport": {"transport", "transports"},
    "workload": {"workload", "workloads", "jobs"},
    "IP version": {"ip", "ips", "family"},
    "initiators": {"initiators", "lab_initiators"},
}
"""The identity of a measurement, and what its parts are called as fields."""

SPELLED = 3
"""A struct with so many of them spells it."""

ASKS = re.compile(r"TestbedKind\.[A-Z]|\.testbed\b|kernels_apart\b|\.machines\b|\bis_lab\b")
"""How code asks on what kind of testbed it is."""

MEASURING = ("runs", "planning", "probes", "testbeds", "protection", "network", "storage", "observe", "hosts")


def sources(root: Path = ROOT) -> list[Path]:
    return sorted((root / "harness").rglob("*.py"))


def spelling(text: str) -> Iterator[tuple[str, list[str]]]:
    """The classes of a module whose own fields spell the identity, and which parts of it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            fields = {
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
            parts = [part for part, names in PARTS.items() if names & fields]
            if len(parts) >= SPELLED:
                yield node.name, parts


def asking(text: str) -> int:
    """The lines of a module that ask on what kind of testbed it is."""
    return sum(ASKS.search(line) is not None for line in text.splitlines())


def loaded(module: str = "harness.report") -> list[str]:
    """The modules of the measuring packages that an import loads."""
    program = f"import sys, {module}; print(*(name for name in sys.modules if name.startswith('harness.')))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return sorted(name for name in done.stdout.split() if name.split(".")[1] in MEASURING)


def touched(commits: str, root: Path = ROOT) -> list[str]:
    """The product's files that commits (``A..B``) touch."""
    done = subprocess.run(
        ["git", "diff", "--name-only", commits], cwd=root, capture_output=True, text=True, check=True
    )
    return [name for name in done.stdout.splitlines() if name.startswith(PRODUCT)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--touched", metavar="A..B")
    chosen = parser.parse_args(arguments)
    if chosen.touched:
        files = touched(chosen.touched)
        print(*files, f"{len(files)} files of the product", sep="\n")
        return 0
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in sources()}
    spelled = [(path, name, parts) for path, text in texts.items() for name, parts in spelling(text)]
    for path, name, parts in spelled:
        print(f"{path}: {name}: {', '.join(parts)}")
    asked = {path: asking(text) for path, text in texts.items()}
    names = loaded()
    print(*names, sep="\n") if names else None
    print(f"structs with {SPELLED} or more parts of the identity: {len(spelled)}")
    places = sum(map(bool, asked.values()))
    print(f"lines that ask for the testbed's kind: {sum(asked.values())} in {places} files")
    print(f"modules of what measures that `import harness.report` loads: {len(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
