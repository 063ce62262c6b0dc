"""Tables of probes, each like that of the document whose experiment it repeats: ``harness table --view``."""

from harness.table.views.grid import render
from harness.table.views.tables import View, build, setting_of

__all__ = ["View", "build", "render", "setting_of"]
