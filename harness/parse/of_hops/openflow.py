"""Links through an OpenFlow switch: who decides there (``openflow:flows``, ``openflow:controller=LINK``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from harness.model import Hops, OpenFlow
from harness.model.errors import UsageError
from harness.model.units import check_name
from harness.parse.of_hops import HopWords, Load
from harness.parse.ranges import Refuse, check_ranges


class OpenFlowWords(HopWords):
    name = "openflow"
    patterns: ClassVar = {
        "controller": r"controller(?:=(.+))?",
        "flows": r"flows()",
        "cpu": r"cpu=([0-9]{1,3})",
    }
    ranges: ClassVar = {"cpu": (1, 100)}
    example = "controller=fast-ethernet"

    def expected(self, hops: Hops) -> dict[str, str]:
        found = dict.fromkeys(("controller", "flows"), "'controller', 'controller=LINK' or 'flows'")
        if hops.openflow is not None and hops.openflow.packet_us:
            found["cpu"] = "'cpu=N' (1 to 100 percent)"
        return found

    def applied(self, hops: Hops, asked: Mapping[str, str], load: Load) -> tuple[Hops, str, str]:
        if hops.openflow is None:
            return hops, "", ""
        openflow = _with_controller(hops.openflow, asked, load)
        name = "-flows" if openflow.flows else "-controller"
        title = ", flows" if openflow.flows else ", controller"
        if asked.get("controller"):
            name += f"-{openflow.controller}"
            title += f" over {openflow.controller}"
        if openflow.cpu_percent is not None:
            name, title = f"{name}-cpu{openflow.cpu_percent}", f"{title}, {openflow.cpu_percent}% CPU"
        return msgspec.structs.replace(hops, openflow=openflow), name, title

    def unshaped(self, hops: Hops) -> Hops:
        if hops.openflow is None:
            return hops
        openflow = msgspec.structs.replace(hops.openflow, rate_bit_s=None, delay_us=0.0)
        return msgspec.structs.replace(hops, openflow=openflow)

    def check(self, hops: Hops, refuse: Refuse) -> None:
        if (hops.openflow is not None) is not (hops.kind == self.name):
            raise refuse("hops", "only the kind openflow has a table openflow", "see openflow.toml")
        if hops.openflow is not None:
            check_name("link", hops.openflow.controller)
            check_ranges(hops.openflow, refuse, "hops")


def _with_controller(openflow: OpenFlow, asked: Mapping[str, str], load: Load) -> OpenFlow:
    """The switch's decisions as asked for, and the rate and delay of its controller's link."""
    link = load(asked.get("controller") or openflow.controller)
    flows = openflow.flows if "controller" not in asked else False
    if openflow.cpu_percent is not None and not openflow.packet_us:
        raise UsageError(
            f"expected packet_us with cpu_percent {openflow.cpu_percent}, found none: a "
            "packet would cost no time",
            hint="give the link's file a packet_us, or leave cpu_percent out",
        )
    return msgspec.structs.replace(
        openflow,
        controller=link.name,
        flows=flows or "flows" in asked,
        rate_bit_s=link.rate_bit_s,
        delay_us=link.delay_us,
        frame_overhead_bytes=link.frame_overhead_bytes,
        cpu_percent=int(asked["cpu"]) if "cpu" in asked else openflow.cpu_percent,
    )


OFFERED = (OpenFlowWords(),)
