"""Figures as measuring tools report them: each is checked, and compared with the others."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import msgspec

from harness.parse.embedded import quote

TOLERANCE = 0.02
"""Largest relative difference between a figure that a tool reports and the same figure derived."""

COUNT = r"[0-9]{1,18}"
"""Regular expression of a count that a signed 64-bit integer holds."""

NUMBER = r"[-+]?(?:[0-9][0-9.,]*(?:e[-+]?[0-9]+)?|nan|inf)"
"""Regular expression of how C's printf writes a floating point number, in any locale."""


class Printed(msgspec.Struct, frozen=True):
    """A number that was printed for people, and the value of one step of its last digit."""

    value: float
    step: float = 0.0


def printed(text: str, unit: int = 1) -> Printed | None:
    """``text`` times ``unit``, such as ``1.07`` and 2^30; None if it is not a number from 0 to below 2^63.

    A comma is a decimal point: ping and time follow the locale.
    """
    try:
        number = Decimal(text.replace(",", "."))
        if not 0 <= number < 2**63:
            return None
        step = Decimal(1).scaleb(int(number.as_tuple().exponent))
        found = Printed(float(number * unit), float(step * unit))
    except (ArithmeticError, ValueError):
        return None
    return found if found.value < 2**63 else None


def matched(match: re.Match[str] | None, name: str, unit: int, problems: list[str]) -> Printed | None:
    """The figure of the group ``name``; None if it is absent, or, with a problem, if it is not a figure."""
    if match is None or match[name] is None:
        return None
    figure = printed(match[name], unit)
    if figure is None:
        problems.append(f"{name} is {quote(match[name])}: not a number from 0 to below 2^63")
    return figure


def value_of(figure: Printed | None) -> float | None:
    return None if figure is None else figure.value


def take(value: object, where: str, problems: list[str], unit: int = 1) -> float | None:
    """A figure from JSON times ``unit``; None if there is none, or, with a problem, if it is not valid.

    A valid figure is a number from 0, below 2^63 in the unit as well.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        problem = "not a number"
    elif value < 0:
        problem = "negative"
    elif value * unit >= 2**63 or float(value * unit) >= 2**63:  # 2^63 - 1 is 2^63 as a float
        problem = "not below 2^63"
    else:
        return value * unit
    problems.append(f"{where} is {quote(str(value))}: {problem}")
    return None


def rate_problem(moved: Printed, seconds: Printed, rate_bit_s: Printed) -> str | None:
    """How a rate contradicts the bytes moved in a time, beyond the rounding of all three."""
    least_moved, most_moved = _rounded_from(moved)
    shortest, longest = _rounded_from(seconds)
    least_rate, most_rate = _rounded_from(rate_bit_s)
    least = 8 * least_moved / longest if longest else 0.0
    most = 8 * most_moved / shortest if shortest > 0 else math.inf
    if least * (1 - TOLERANCE) <= most_rate and least_rate <= most * (1 + TOLERANCE):
        return None
    return (
        f"the rate is {rate_bit_s.value:.6g} bit/s, "
        f"but {moved.value:.6g} bytes in {seconds.value:.6g} s were reported"
    )


def _rounded_from(figure: Printed) -> tuple[float, float]:
    return figure.value - figure.step / 2, figure.value + figure.step / 2


def loss_problem(
    lost: int, total: int, loss_percent: Printed | None, *, sent: int | None = None
) -> str | None:
    """How a loss contradicts its counts, beyond the rounding of its last digit; tools cut it or round it.

    ``sent`` is the other end's count of the same datagrams, if a tool may have taken the part of that.
    """
    if not 0 <= lost <= total:
        return f"{lost} of {total} were lost"
    if loss_percent is None or not total:
        return None
    if not 0 <= loss_percent.value <= 100:
        return f"the loss is {loss_percent.value:g} %"
    if _is_part(loss_percent, lost, total) or (sent and _is_part(loss_percent, lost, sent)):
        return None
    return f"the loss is {loss_percent.value:g} %, but {lost} of {total} make it {100 * lost / total:.4g} %"


def _is_part(loss_percent: Printed, lost: int, total: int) -> bool:
    return abs(loss_percent.value - 100 * lost / total) <= loss_percent.step + 1e-9
