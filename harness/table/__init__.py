"""The article's matrix from records: ``build`` decides what is in it, ``render`` how it looks.

Both need only the records, so a table can be made again anywhere, years later.
"""

from harness.results.metrics import Metric
from harness.table.matrix import build
from harness.table.options import Options, RatioTo, TableFormat
from harness.table.text import render

__all__ = ["Metric", "Options", "RatioTo", "TableFormat", "build", "render"]
