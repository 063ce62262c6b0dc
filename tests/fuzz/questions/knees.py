"""Searches for knees that somebody damaged, of queues that are calculated: whole ones, and a part of one."""

from __future__ import annotations

from tests.fuzz.sections import PLANNED, saved
from tests.unit.questions.knee.test_knee import carried_out, planned

_PLAN = planned()

PLANNED |= {
    "knee": lambda: saved(_PLAN, carried_out(_PLAN)),
    "search": lambda: saved(_PLAN, carried_out(_PLAN)[:5]),
}
