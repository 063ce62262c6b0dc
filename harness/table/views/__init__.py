"""Tables of probes, each like that of the article whose experiment it repeats; of cells against how many
initiators there are, and of what was measured during them: ``harness table --view``."""

from harness.model.probing import View
from harness.table.views.counters import build as build_counters
from harness.table.views.grid import Grid, render
from harness.table.views.scale import build as build_scale
from harness.table.views.tables import TOLERANCE, TOLERANCE_POINTS, build, differ, unit_of

__all__ = [
    "TOLERANCE",
    "TOLERANCE_POINTS",
    "Grid",
    "View",
    "build",
    "build_counters",
    "build_scale",
    "differ",
    "render",
    "unit_of",
]
