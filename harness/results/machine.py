"""What is known of a run's machines, from its environment: for tables, reports and exports.

In the lab that is the machine that the lab runs on; otherwise it is each host's own
(``harness.observe.environment``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from harness.model import Record, Setting
from harness.model.escape import printable

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


class SettingOnMachine(Setting, frozen=True, kw_only=True):
    """A setting, with what tells its machine from others whose results are read together with it. No file has
    it."""

    machine: str

    @property
    def _place(self) -> tuple[str, ...]:
        return (*super()._place, self.machine)

    @property
    def name(self) -> str:
        return f"{super().name}, on {self.machine}"


class SettingOfRun(Setting, frozen=True, kw_only=True):
    """A setting in one of two runs that stand side by side, with the name of that ``side``. No file has
    it."""

    side: str

    @property
    def _place(self) -> tuple[str, ...]:
        return (*super()._place, self.side)

    @property
    def name(self) -> str:
        return self.side if self.is_plain else f"{self.side}, {super().name}"


def without_side(setting: Setting) -> Setting:
    """The setting that both runs have."""
    return as_one(setting) if isinstance(setting, SettingOfRun) else setting


def side_of(setting: Setting) -> str:
    """``A``, ``B``; empty if its run stands next to no other."""
    return setting.side if isinstance(setting, SettingOfRun) else ""


def set_apart(records: Sequence[Record], environments: Mapping[str, Mapping[str, Any]]) -> Sequence[Record]:
    """Records of runs on several machines, or on several kernels of one, each with its ``SettingOnMachine``:
    there is no median of two machines. In virtual time all machines are one."""
    found: dict[Setting, dict[str, _Identity]] = {}
    for setting, run in dict.fromkeys((record.setting, record.run_id) for record in records):
        if setting.is_harness and not setting.is_virtual:
            found.setdefault(setting.distinct, {})[run] = _identity(environments.get(run, {}))
    names = {
        (setting, run): name
        for setting, of_runs in found.items()
        for run, name in _distinguished(of_runs).items()
    }
    if not names:
        return records
    apart = []
    for record in records:
        if name := names.get((record.setting.distinct, record.run_id)):
            of_setting = msgspec.structs.asdict(record.setting)
            record = msgspec.structs.replace(record, setting=SettingOnMachine(**of_setting, machine=name))
        apart.append(record)
    return apart


def side_by_side(records: Sequence[Record], sides: Mapping[str, str]) -> list[Record]:
    """The records of two runs, each in a column of its own; ``sides`` are the names of both by run id."""
    return [
        msgspec.structs.replace(
            record,
            setting=SettingOfRun(**msgspec.structs.asdict(as_one(record.setting)), side=sides[record.run_id]),
        )
        for record in records
    ]


def together(records: Sequence[Record]) -> list[Record]:
    """The records as they were before they were set apart."""
    return [msgspec.structs.replace(record, setting=as_one(record.setting)) for record in records]


def as_one(setting: Setting) -> Setting:
    """The same without machine and side."""
    return Setting(**{name: getattr(setting, name) for name in Setting.__struct_fields__})


_Identity = tuple[str, str, str]
"""Processors, how many, and kernels of a run's machines; "" is unknown."""


def _identity(environment: Mapping[str, Any]) -> _Identity:
    machines = machines_of(environment).values()
    facts = (
        [each.processor for each in machines],
        [f"{each.cores} processors" if each.cores else None for each in machines],
        [f"Linux {each.kernel}" if each.kernel else None for each in machines],
    )
    processors, cores, kernels = (" and ".join(dict.fromkeys(filter(None, of))) for of in facts)
    return processors, cores, kernels


def _distinguished(of_runs: Mapping[str, _Identity]) -> dict[str, str]:
    """For each run what is not the same of all; nothing if all that is known is."""
    differing = [part for part in range(3) if len({each[part] for each in of_runs.values()} - {""}) > 1]
    if not differing:
        return {}
    return {
        run: printable(", ".join(filter(None, (identity[part] for part in differing))))
        or "an unknown machine"
        for run, identity in of_runs.items()
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    """A quantity that a machine may have; None for anything else."""
    try:
        found = float(value) if isinstance(value, int | float | str) else -1.0
    except (ValueError, OverflowError):
        return None
    return found if 0 <= found < 1 << 63 else None
