"""Results for people who prefer to look: one page, and its pictures one by one."""

from harness.report.charts import ChartKind
from harness.report.content import LoadedResults, Theme, Words, load
from harness.report.page import render
from harness.report.picture import picture

__all__ = ["ChartKind", "LoadedResults", "Theme", "Words", "load", "picture", "render"]
