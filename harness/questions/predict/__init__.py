"""What a matrix would reach, from the CPU costs of its machines."""

from __future__ import annotations

from collections.abc import Mapping

from harness.questions import Offer, PrintedType


def _schemas() -> Mapping[str, PrintedType]:
    from harness.questions.predict.printed import PrintedPrediction
    from harness.questions.predict.score import Score

    return {
        "predict": PrintedType(
            PrintedPrediction,
            "What `harness predict --format json` prints",
            "predict --machine lab-debian",
        ),
        "predict-score": PrintedType(
            Score, "What `harness predict --score --format json` prints", "predict --score"
        ),
    }


OFFERED = (Offer(name="predict", schemas=_schemas),)
