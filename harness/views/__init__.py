"""Tables of probes, each like that of the document whose experiment it shows: ``harness table --view``."""

from harness.views.grid import render
from harness.views.tables import View, build

__all__ = ["View", "build", "render"]
