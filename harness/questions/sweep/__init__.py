"""Curves over queue depth, block size, round trip and other axes, of which a part is measured."""

from __future__ import annotations

from harness.questions import Offer, OfferedCommand

OFFERED = (
    Offer(
        name="sweep",
        commands=(
            OfferedCommand(
                name="sweep",
                place="command:sweep",
                heading="Measure",
                examples="""harness sweep --over depth=1..64 --link wired
harness sweep --over rtt=0.1ms..50ms --over depth=1,16 --workload rand-read-4k""",
            ),
        ),
    ),
)
