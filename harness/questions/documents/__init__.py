"""Published measurements, repeated: what they asked, and what the harness measures of it."""

from __future__ import annotations

from harness.questions import Offer, OfferedCommand

OFFERED = (
    Offer(
        name="documents",
        commands=(
            OfferedCommand(
                name="reproduce",
                place="command:reproduce_command",
                heading="Measure",
                examples="""harness reproduce --run
harness reproduce --run --quick --article switches
harness reproduce results/articles -o articles.html""",
            ),
        ),
    ),
)
