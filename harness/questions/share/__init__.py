"""A run for others, as a file or as text, without what tells whose it is."""

from __future__ import annotations

from harness.questions import Offer, OfferedCommand

OFFERED = (
    Offer(
        name="share",
        commands=(
            OfferedCommand(
                name="share",
                place="command:share_command",
                heading="Read results",
                examples="""harness share results/RUN -o mine.zip
harness compare mine.zip results/RUN       (it reads like a run's folder)""",
            ),
        ),
    ),
)
