"""The highest load that meets a latency goal."""

from __future__ import annotations

from harness.questions import Offer, OfferedCommand

OFFERED = (
    Offer(
        name="knee",
        commands=(
            OfferedCommand(
                name="knee",
                place="command:knee",
                heading="Measure",
                examples="""harness knee --p99 2ms --link wired --workload rand-read-4k
harness knee --p99 2ms --p99.9 10ms --link wired --protect both --virtual-time""",
            ),
        ),
    ),
)
