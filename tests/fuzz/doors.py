"""Every way in, by its name."""

from __future__ import annotations

from harness.model.kinds import offered
from tests.fuzz.driver import Door
from tests.fuzz.folders import Folders
from tests.fuzz.jobs import Jobs
from tests.fuzz.parsers import Cuts, Parsers
from tests.fuzz.planted import Planted
from tests.fuzz.sections import Sections
from tests.fuzz.words import Words
from tests.fuzz.written import EACH as WRITTEN
from tests.fuzz.zips import Zips

EACH: list[Door] = [Parsers(), Cuts(), Jobs(), Folders(), Sections(), Planted(), Zips(), *WRITTEN, Words()]
EACH += offered(f"{__package__}.questions")
DOORS = {door.name: door for door in EACH}
