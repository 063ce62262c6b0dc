"""Results for people who prefer to look: one page, and its pictures one by one."""

from harness.report.charts import Kind
from harness.report.content import Results, Theme, Words, load
from harness.report.page import render
from harness.report.picture import picture

__all__ = ["Kind", "Results", "Theme", "Words", "load", "picture", "render"]
