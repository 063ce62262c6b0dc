"""What is known of a run's machines, from its environment: for tables, reports and exports.

In the lab that is the machine that the lab runs on; otherwise it is each host's own
(``harness.observe.environment``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

MACHINE = "machine"
"""The environment's key for the machine that the lab runs on."""

TOOLS = "tools"
"""The versions of tools, by their names: of a host's, and of the machine's if a lab on it has the same."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a machine that a run was made on, as in its environment. None means unknown.

    ``frequency_mhz`` is the mean of its processors at the start. ``load`` is how many programs ran or wanted
    to run in the minute before, on average.
    """

    processor: str | None = None
    cores: int | None = None
    frequency_mhz: float | None = None
    governor: str | None = None
    hypervisor: str | None = None
    load: float | None = None
    memory_bytes: int | None = None
    kernel: str | None = None
    distribution: str | None = None

    def in_words(self) -> str:
        """The known facts in one line."""
        known = (
            (self.processor, "{}"),
            (self.cores, "{} processors"),
            (self.frequency_mhz, "{:.0f} MHz"),
            (self.governor, "governor {}"),
            (self.hypervisor if self.hypervisor != "none" else None, "virtual ({})"),
            (None if self.memory_bytes is None else self.memory_bytes / 2**30, "{:.1f} GiB"),
            (self.kernel, "Linux {}"),
            (self.distribution, "{}"),
            (self.load, "load {:g} before the run"),
        )
        return ", ".join(words.format(value) for value, words in known if value is not None)


def machine_of(environment: Mapping[str, Any], host: str) -> Machine:
    """The machine of a host of a run, or the one that the lab runs on. What is not a fact is unknown."""
    hosts = environment.get("hosts")
    facts = environment.get(MACHINE, hosts.get(host) if isinstance(hosts, Mapping) else None)
    if not isinstance(facts, Mapping):
        return Machine()
    memory = _number(str(facts.get("memory", "")).removesuffix(" kB"))
    cores = _number(facts.get("cpus"))
    return Machine(
        processor=_text(facts.get("cpu")),
        cores=None if not cores else int(cores),
        frequency_mhz=_number(facts.get("frequency_mhz")),
        governor=_text(facts.get("governor")),
        hypervisor=_text(facts.get("hypervisor")),
        load=_number(facts.get("load")),
        memory_bytes=None if memory is None else int(memory) * 1024,
        kernel=_text(" ".join(str(facts.get("kernel", "")).removeprefix("Linux version ").split()[:1])),
        distribution=_text(facts.get("distribution")),
    )


def machines_of(environment: Mapping[str, Any]) -> dict[str, Machine]:
    """All machines of a run, by the names of their hosts; hops are not included."""
    hosts = environment.get("hosts")
    known = hosts if isinstance(hosts, Mapping) else {}
    names = [name for name, facts in known.items() if isinstance(facts, Mapping) and "address" not in facts]
    found: dict[Machine, list[str]] = {}
    for name in names or [MACHINE]:
        found.setdefault(machine_of(environment, name), []).append(name)
    return {" and ".join(same): machine for machine, same in found.items() if machine != Machine()}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    """A quantity that a machine may have; None for anything else."""
    try:
        found = float(value) if isinstance(value, int | float | str) else -1.0
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found < 1 << 63 else None
