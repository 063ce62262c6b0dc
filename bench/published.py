"""Published figures of iSCSI next to ours, in virtual time, as `profiles/published.toml` has them.

    python bench/published.py [--folder FOLDER]

It prints what each publication says and what had to be assumed, then each figure, ours, and the difference.
It exits with 1 if one is further than 10 % from what was published.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from bench.in_turns import measured
from harness.analysis.schedule import throughput_bytes_s
from harness.parse.profiles import data_folder
from harness.questions.documents.experiments import Experiment, Values

WITHIN = 0.10
ALWAYS: Values = {"protect": "off", "repeats": "1", "seed": "1"}


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rate in MB/s, or if ``compared_with`` is given, a ratio; both are named as ``Curve.measure`` does."""

    what: str
    of: str
    compared_with: str | None = None
    published: float | None = None


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One publication. ``runs`` have the options of each, on top of ``options``."""

    title: str
    source: str
    known: str
    assumed: str
    options: Values
    runs: dict[str, Values]
    figure: tuple[Figure, ...]

    def words(self, run: str) -> list[str]:
        """The command of a run, behind ``harness``."""
        options = ALWAYS | self.options | self.runs[run]
        made = Experiment(article=self.title, command="run", profile="basic", options=options, virtual={})
        return made.words(virtual=True)

    def measure(self, folder: Path) -> dict[str, float]:
        """MB/s of each cell, by "RUN LINK WORKLOAD"."""
        return {
            f"{run} {record.column.link} {record.workload.name}": throughput_bytes_s(record) / 1e6
            for run in self.runs
            for record in measured(
                folder / f"{self.title} {run}".replace(" ", "-"), *self.words(run)
            ).load_records()
        }


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    curve: tuple[Curve, ...]


def curves() -> tuple[Curve, ...]:
    """All of the file."""
    return msgspec.toml.decode((data_folder() / "profiles" / "published.toml").read_bytes(), type=File).curve


def lines(curve: Curve, rates: dict[str, float]) -> tuple[list[str], bool]:
    """What is printed of a curve, and whether all of it is as published."""
    found = [f"{curve.title}: {curve.source}", f"  known: {curve.known}", f"  assumed: {curve.assumed}", ""]
    found.append(f"  {'':48} {'published':>9} {'ours':>7} {'difference':>10}")
    is_close = True
    for figure in curve.figure:
        ours = rates[figure.of] / (rates[figure.compared_with] if figure.compared_with else 1.0)
        line = f"  {figure.what:48} {figure.published or '':>9} {ours:7.3f}"
        if figure.published is not None:
            difference = ours / figure.published - 1
            line += f" {difference:+10.1%}"
            is_close = is_close and abs(difference) <= WITHIN
        found.append(line)
    return [*found, ""], is_close


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="keep the runs there, and use those that are")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="published-"))
    close = []
    for curve in curves():
        found, is_close = lines(curve, curve.measure(folder))
        sys.stdout.write("\n".join(found) + "\n")
        close.append(is_close)
    return 0 if all(close) else 1


if __name__ == "__main__":
    sys.exit(main())
