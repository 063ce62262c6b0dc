"""Links through PPPoE: how its client authenticates (``pppoe:pap``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from harness.model import Hops, PppAuth
from harness.parse.of_hops import HopWords, Load
from harness.parse.ranges import Refuse


class PppoeWords(HopWords):
    name = "pppoe"
    patterns: ClassVar = {"auth": r"(pap|chap)"}
    example = "pap"

    def expected(self, hops: Hops) -> dict[str, str]:  # noqa: ARG002
        return {"auth": "'pap' or 'chap'"}

    def applied(self, hops: Hops, asked: Mapping[str, str], load: Load) -> tuple[Hops, str, str]:  # noqa: ARG002
        if "auth" in asked:
            hops = msgspec.structs.replace(hops, auth=PppAuth(asked["auth"]))
        return (hops, "-pap", ", PAP") if hops.auth is PppAuth.PAP else (hops, "", "")

    def check(self, hops: Hops, refuse: Refuse) -> None:
        if hops.auth is not None and hops.kind != self.name:
            raise refuse("hops", "only the kind pppoe has auth", "leave it out")


OFFERED = (PppoeWords(),)
