"""Probes of paths as articles had them, and what is answered of them."""

from __future__ import annotations

from harness.model import Clock, LabKernel
from harness.parse import references
from harness.parse.profiles import load_link
from harness.questions.documents import answers as answering
from harness.questions.documents.answers import Answer
from harness.results.probe_records import ProbeRecord
from tests import flat
from tests.unit.observe.test_disturbance import others
from tests.unit.table.test_views import tcp

OWN = {"clock": Clock.VIRTUAL, "lab_kernel": LabKernel.CUSTOM}
DISTURBED = {"background_load": (others(0.5, used=0.5),)}


def on(record: ProbeRecord, link: str, **changes: object) -> ProbeRecord:
    return flat.changed(record, link=load_link(link).name, **changes)


def answers(article: str, *records: ProbeRecord) -> list[Answer]:
    return answering.of_paths(references.load_path_reference(article), records)


def rates(links: tuple[str, str], *mbit_s: float, **changes: object) -> list[ProbeRecord]:
    return [on(tcp(rate * 1e6), link, **changes) for link, rate in zip(links, mbit_s, strict=True)]
