"""What the packages import, from their modules: the picture of all, and a line in the README of each.

    python -m tools.packages            # exits 1 if one of these files says something else
    python -m tools.packages --write    # makes them anew: after each change of what a package imports

Rows are the layers of the first contract in pyproject.toml. Left is what only reads results, right what only
measures, and between them what both use. An arrow that others imply is left out.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "packages.svg"

WIDTH, BOX, HEIGHT, GAP, ROW, SHIFT = 760, 104, 28, 16, 60, 34
"""In px: width of the picture and of a box, height of a box, the gap between two boxes of a row, from one row
to the next, and how far a box that is alone in its row stands aside, right and left in turn, to let arrows
pass."""

CENTRES = {"reads": 135, "both": 345, "measures": 600}
TITLES = {"reads": "reads results", "both": "used by both", "measures": "measures"}

HEAD = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} TALL" role="img">',
    "<title>The packages of harness/, and which imports which</title>",
    "<style>svg{background:#fff;font:14px system-ui,'DejaVu Sans',sans-serif;text-anchor:middle}",
    "rect{stroke:#1a1d21}.reads{fill:#cfe5f7}.measures{fill:#fbdcc4}.both{fill:#e9ecef}",
    "path{fill:none;stroke:#565d66}.t{fill:#565d66;font-size:12px}</style>",
    '<marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 8 4 0 8z" style="fill:#565d66"/></marker>',
)


def imports() -> dict[str, set[str]]:
    """Of each package, the other packages that a module in it imports."""
    graph = grimp.build_graph("harness", cache_dir=None)
    packages = {name for layer in layers() for name in layer}
    found: dict[str, set[str]] = {package: set() for package in packages}
    for module in graph.modules:
        package = module.split(".")[1] if "." in module else ""
        if package in packages:
            imported = (name.split(".") for name in graph.find_modules_directly_imported_by(module))
            found[package] |= packages.intersection(names[1] for names in imported if len(names) > 1) - {
                package
            }
    return found


def layers() -> list[list[str]]:
    """The packages as the import rules have them, the highest layer first."""
    contract = _contract("Packages import one way")
    return [[package.strip() for package in layer.split("|")] for layer in contract["layers"]]


def sides(arrows: Mapping[str, set[str]]) -> dict[str, str]:
    """Whether a package ``reads``, ``measures``, or is for ``both``: readers' that measuring needs."""
    contract = _contract("Who reads results needs no machine")
    measures = {name.split(".")[1] for name in contract["forbidden_modules"]}
    reads = {name.split(".")[1] for name in contract["source_modules"]} - {"api"}
    used = set().union(*(arrows[package] for package in measures))
    found = {package: "both" if package in used or package not in reads else "reads" for package in arrows}
    return found | dict.fromkeys(measures, "measures")


def _contract(name: str) -> dict[str, list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return {str(each["name"]): each for each in contracts}[name]


def reduced(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that a longer way implies. There are no circles, which the import rules forbid."""

    def reach(package: str) -> set[str]:
        return arrows[package].union(*map(reach, arrows[package]))

    return {package: below.difference(*map(reach, below)) for package, below in arrows.items()}


def texts() -> dict[Path, str]:
    """The files as they have to be, by their paths."""
    found = {PICTURE: svg()}
    arrows = imports()
    for package in (package for layer in layers() for package in layer):
        file = ROOT / "harness" / package / "README.md"
        below = [f"`{other}`" for layer in layers() for other in layer if other in arrows[package]]
        line = f"**Imports:** {', '.join(below) or 'nothing'}"
        found[file] = _LINE.sub(line, file.read_text(encoding="utf-8"))
    return found


_LINE = re.compile(r"^\*\*Imports:\*\*.*$", re.MULTILINE)


def differing() -> dict[Path, str]:
    """Those of ``texts`` that say something else."""
    return {
        file: text
        for file, text in texts().items()
        if not file.exists() or file.read_text(encoding="utf-8") != text
    }


def svg() -> str:
    arrows = imports()
    side = sides(arrows)
    places = _places(side)
    lines = [line.replace("TALL", str(ROW * len(layers()) + 30)) for line in HEAD]
    lines += [f'<text class="t" x="{CENTRES[name]}" y="16">{title}</text>' for name, title in TITLES.items()]
    for package, below in sorted(reduced(arrows).items()):
        lines += [_arrow(package, other, places) for other in sorted(below)]
    for package, (x, y) in places.items():
        lines.append(
            f'<rect class="{side[package]}" x="{x - BOX // 2}" y="{y}" '
            f'width="{BOX}" height="{HEIGHT}" rx="4"/>'
            f'<text x="{x}" y="{y + 19}">{package}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def _places(side: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Of each package the middle of its box's upper edge."""
    places: dict[str, tuple[int, int]] = {}
    for row, packages in enumerate(layers()):
        for name, centre in CENTRES.items():
            here = [package for package in packages if side[package] == name]
            aside = (SHIFT if row % 2 == 0 else -SHIFT) if len(here) == 1 else 0
            first = centre + aside - (len(here) - 1) * (BOX + GAP) // 2
            places |= {package: (first + n * (BOX + GAP), 30 + row * ROW) for n, package in enumerate(here)}
    return places


def _arrow(upper: str, lower: str, places: Mapping[str, tuple[int, int]]) -> str:
    """Straight down and then to the side, or the other way where a box would be in the way."""
    (x, y), (to_x, to_y) = places[upper], places[lower]
    y += HEIGHT
    gap = ROW - HEIGHT
    passed = [at for at, top in places.values() if y <= top < to_y]
    if all(abs(x - at) > BOX // 2 for at in passed):
        way = f"V{to_y - gap}C{x} {to_y - gap // 2} {to_x} {to_y - gap // 2} {to_x} {to_y}"
    else:
        way = f"C{x} {y + gap // 2} {to_x} {y + gap // 2} {to_x} {y + gap}V{to_y}"
    return f'<path marker-end="url(#a)" d="M{x} {y}{way}"/>'


def main() -> int:
    found = differing()
    for file, text in found.items():
        print(file.relative_to(ROOT))
        if sys.argv[1:] == ["--write"]:
            file.write_text(text, encoding="utf-8")
    return 1 if found and sys.argv[1:] != ["--write"] else 0


if __name__ == "__main__":
    sys.exit(main())
