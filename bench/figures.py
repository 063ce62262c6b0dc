"""How often `harness explain --figures` says of published figures what their authors found.

    python bench/figures.py            # the table; exits 1 if a verdict has changed, or a goal is missed
    python bench/figures.py --write    # fix the verdicts anew

`profiles/references/public/` has a file of figures for each set, made from what was reported alone. The
verdicts were fixed in `verdicts.toml` before `explanations.toml`, with what the authors found, was written
(the history shows it). An explanation that names no cause counts for nothing; "needs more data" is an
abstention.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator

import msgspec

from harness.explain.verdict import Confidence
from harness.parse.profiles import data_folder
from harness.questions.figures import answer, reported
from harness.questions.figures.answer import AnswerKind, Judged
from tools.scores import Table

FOLDER = data_folder() / "profiles" / "references" / "public"
VERDICTS, EXPLANATIONS = "verdicts.toml", "explanations.toml"
RIGHT, ANSWERED = 0.8, 0.6
"""Goals: the part of answers whose first cause is right, and of figures that are answered."""


class Explained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the authors found: ``right`` are the verdicts that say the same ("limited cpu"), none if they
    named no cause; ``said`` is that in short."""

    said: str
    right: tuple[str, ...] = ()


def sets() -> Iterator[tuple[str, list[Judged]]]:
    """Each set by its name, with the verdict on each of its figures."""
    for file in sorted(FOLDER.glob("*.toml")):
        if file.name not in (VERDICTS, EXPLANATIONS):
            yield file.stem, answer.judge_all(reported.load(file))


def in_short(judged: Judged) -> str:
    """``limited cpu``; without the cause where the answer has none."""
    is_bare = judged.answer in (AnswerKind.IMPOSSIBLE, AnswerKind.NOT_ENOUGH)
    return str(judged.answer) if is_bare else f"{judged.answer} {judged.limited_by}"


def fixed() -> dict[str, dict[str, tuple[str, str]]]:
    """By set and figure: the verdict and its confidence."""
    return msgspec.toml.decode(_bytes(VERDICTS), type=dict[str, dict[str, tuple[str, str]]])


def explanations() -> dict[str, dict[str, Explained]]:
    """By set and figure."""
    return msgspec.toml.decode(_bytes(EXPLANATIONS), type=dict[str, dict[str, Explained]])


def _bytes(name: str) -> bytes:
    file = FOLDER / name
    return file.read_bytes() if file.exists() else b""


def score(judged: Judged, explained: Explained | None) -> str:
    """``hit``, ``miss`` or ``abstention``; empty if the authors named no cause."""
    if explained is None or not explained.right:
        return ""
    if in_short(judged) in explained.right:
        return "hit"
    return "abstention" if judged.answer is AnswerKind.NOT_ENOUGH else "miss"


def rows() -> Iterator[tuple[str, Judged, str, str]]:
    """Each figure: its set, the verdict, the score, and what the authors found."""
    known = explanations()
    for name, found in sets():
        for judged in found:
            explained = known.get(name, {}).get(judged.title)
            yield name, judged, score(judged, explained), explained.said if explained else ""


def write() -> None:
    """Fix the verdicts."""
    lines = ["# The verdict on each figure, and its confidence: fixed by `python bench/figures.py --write`."]
    for name, found in sets():
        lines += ["", f"[{name}]"]
        lines += [f"{json.dumps(e.title)} = {json.dumps([in_short(e), str(e.confidence)])}" for e in found]
    (FOLDER / VERDICTS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def for_docs() -> Table:
    """The verdicts on figures whose authors named a cause, for docs."""
    found = list(rows())
    scored = [
        [name, judged.title, in_short(judged), str(judged.confidence), result]
        for name, judged, result, _ in found
        if result
    ]
    columns = ["set", "figure", "verdict", "confidence", "score"]
    command, said = "python bench/figures.py", [summary(found)[0]]
    return Table(command=command, measured="", columns=columns, rows=scored, summary=said)


def summary(found: list[tuple[str, Judged, str, str]]) -> tuple[str, bool]:
    """The score in a sentence, and whether the goals are met."""
    counts = Counter(scored for _, _, scored, _ in found)
    answered, every = counts["hit"] + counts["miss"], sum(counts.values()) - counts[""]
    sure = [e for _, e, scored, _ in found if scored == "miss" and e.confidence is Confidence.HIGH]
    if not every:
        return "no explanation is known yet", True
    words = (
        f"{every} of {len(found)} figures are explained: {counts['hit']} hits, {counts['miss']} misses, "
        f"{counts['abstention']} abstentions; {answered / every:.0%} answered, of these "
        f"{counts['hit'] / max(1, answered):.0%} right; wrong with confidence high: {len(sure)}"
    )
    is_right = counts["hit"] >= RIGHT * answered and answered >= ANSWERED * every
    return words, is_right and not sure


def table(found: list[tuple[str, Judged, str, str]]) -> list[str]:
    """In Markdown."""
    out = ["| set | figure | verdict | confidence | the authors | score |", "|---|---|---|---|---|---|"]
    for name, judged, scored, said in found:
        verdict = f"{in_short(judged)} | {judged.confidence}"
        out.append(f"| {name} | {judged.title} | {verdict} | {said} | {scored} |")
    return out


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="fix the verdicts anew")
    if parser.parse_args().write:
        write()
    found, known = list(rows()), fixed()
    changed = [
        f"{name}, {judged.title}: another verdict than was fixed"
        for name, judged, _, _ in found
        if known.get(name, {}).get(judged.title) != (in_short(judged), str(judged.confidence))
    ]
    words, is_met = summary(found)
    sys.stdout.write("\n".join([*table(found), "", words, *changed]) + "\n")
    return 0 if is_met and not changed else 1


if __name__ == "__main__":
    sys.exit(main())
