"""The parameters of sessions that a run asks for, as users type them. Those that there are stand in the
``kind.toml`` of each transport."""

from __future__ import annotations

from collections.abc import Sequence

from harness.model import kinds
from harness.model.errors import UsageError
from harness.model.units import shown, unknown_name


def parse(transport: str, words: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` for each parameter, in upper or lower case; UsageError if it is unknown or out of
    range."""
    kind = kinds.TRANSPORTS[transport]
    keys = kind.parameters
    names = {name.casefold(): name for name in keys}
    found: dict[str, str] = {}
    for word in words:
        typed, _, text = word.partition("=")
        name = names.get(typed.strip().casefold())
        if name is None:
            raise unknown_name(f"{kind.title} parameter", typed.strip(), keys)
        value = keys[name].value(text.strip())
        if value is None:
            raise UsageError(
                f"{name}: expected {keys[name].expected}, found {shown(text)}",
                hint=kind.hint,
            )
        if found.setdefault(name, value) != value:
            raise UsageError(f"{name} was given twice, as {found[name]} and {value}", hint="leave one out")
    first, most = found.get("FirstBurstLength"), found.get("MaxBurstLength")
    if first and most and int(first) > int(most):
        raise UsageError(
            f"expected FirstBurstLength up to MaxBurstLength, found {first} and {most}",
            hint="RFC 7143, section 13.14",
        )
    return found
