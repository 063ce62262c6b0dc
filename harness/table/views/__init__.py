"""Tables of probes, each like that of the document whose experiment it repeats, and of cells against how many
initiators there are: ``harness table --view``."""

from harness.table.views.grid import render
from harness.table.views.scale import build as build_scale
from harness.table.views.tables import View, build, setting_of

__all__ = ["View", "build", "build_scale", "render", "setting_of"]
