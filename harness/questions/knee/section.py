"""A search's section of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from harness.analysis.schedule import Schedule
from harness.model import LATENCIES, Plan, Record
from harness.model.errors import UsageError
from harness.model.units import unknown_name
from harness.questions.knee.search import TRIALS, Goals, Knee, KneeSchedule, knees, searches
from harness.results.sections import AdaptiveSection, Rows


class KneeSection(AdaptiveSection[Goals]):
    name = "knee"
    holds = Goals
    has_open_loop = True

    def check(self, plan: Plan) -> None:
        asked = self.of(plan)
        for goal in asked.goals:
            if goal.metric not in LATENCIES:
                raise unknown_name("goal", goal.metric, LATENCIES)
        if not (asked.goals and plan.repeats == TRIALS and plan.stop is None):
            raise UsageError(f"expected goals, and {TRIALS} trials of each load")

    def schedule(self, plan: Plan, records: Iterable[Record]) -> Schedule:
        return KneeSchedule(plan, self.of(plan), records)

    def is_apart(self, record: Record) -> bool:
        return record.workload.rate_iops is not None

    def tables(self, records: Sequence[Record]) -> list[str]:
        from harness.questions.knee.printed import table

        return [table(records)]

    def sentences(self, plan: Plan, records: Sequence[Record]) -> list[str]:
        from harness.questions.knee.printed import sentences

        return [*sentences(self.found(plan, records))]

    def found(self, plan: Plan, records: Sequence[Record]) -> list[Knee]:
        return knees(plan, self.of(plan).goals, records)

    def amount(self, plan: Plan) -> str:
        return f"trials:    at some of {len(plan.places)} loads"

    def left(self, plan: Plan, records: Sequence[Record]) -> Rows:
        goals = self.of(plan).goals
        found = Counter(each.curve for each in self.found(plan, records) if each.is_known)
        lines: list[tuple[str, ...]] = [
            (search.curve.name, str(len(search.records)), f"{found[search.curve]} of {len(goals)}")
            for search in searches(plan, Schedule(plan, records).measured)
        ]
        return ("curve", "trials measured", "knees found"), lines


SECTION = KneeSection()
OFFERED = (SECTION,)
