"""Old names of commands, options and their values: each works for one release, with a note."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

PROFILES: Mapping[str, str] = {
    "document": "basic",
    "document-000": "pppoe",
    "document-001": "openflow",
    "document-001-tenth": "openflow-tenth",
    "document-002": "packet-rate",
    "document-003": "iscsi-ipsec",
    "document-004": "switches",
}
"""Old to new names of profiles of workloads and probes, and of published articles."""

RENAMED: Mapping[str, str] = {
    "documents": "reproduce",
    "--document": "--article",
    **{
        f"{option} {old}": f"{option} {new}"
        for option in ("--profile", "--reference", "--article")
        for old, new in PROFILES.items()
    },
    "price": "cpu-cost",
    "predict --machine": "predict --cpu-costs",
    "predict --initiator-machine": "predict --initiator-cpu-costs",
    "--lab-kernel own": "--lab-kernel custom",
    "--kernel own": "--kernel custom",
    "--cipher-driver machine": "--cipher-driver accelerated",
    "--cipher-driver portable": "--cipher-driver generic",
    "--ratio ipsec": "--ratio unprotected",
    "--cpu-costs lab-own": "--cpu-costs lab-custom",
    "--initiator-cpu-costs lab-own": "--initiator-cpu-costs lab-custom",
    "share --to": "share --output",
    "kernel --priced": "kernel --simulated-cpu-costs",
    "--priced": "--cpu-costs",
    "--apart": "--per-host",
    "--kernels apart": "--kernels per-host",
    "--protect as-found": "--protect pre-existing",
    "export --to": "export --format",
    "--format plain": "--format text",
    "--format github": "--format markdown",
}
"""Old to new: ``price`` is a command, ``--priced`` an option, ``--kernels apart`` an option's value, and
``export --to`` an option of one command.

The option of a value is written with its new name. Settings files follow: ``priced = ...``,
``kernels = "apart"``.
"""

_JOINTS = re.compile("([,+])")


def current(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line with today's names, and a note for each old one."""
    found: list[str] = []
    notes: dict[str, None] = {}
    command = ""
    awaited = ""
    for number, word in enumerate(words):
        if word == "--":
            return [*found, *words[number:]], [*notes]
        if not word.startswith("--"):
            is_command = not command and not word.startswith("-")
            found.append(_name(word, notes) if is_command else _value(awaited, word, notes))
            command, awaited = found[-1] if is_command else command, ""
            continue
        option, equals, value = word.partition("=")
        option = _name(option, notes, f"{command} ")
        found.append(f"{option}={_value(option, value, notes)}" if equals else option)
        awaited = "" if equals else option
    return found, [*notes]


def current_settings(settings: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """The keys and values of a settings file with today's names, and a note for each old one."""
    found: dict[str, object] = {}
    notes: dict[str, None] = {}
    for key, value in settings.items():
        option = f"--{key.replace('_', '-')}"
        name = RENAMED.get(option, option)
        if name != option:
            key = name[2:].replace("-", "_")
            notes[_note(option[2:].replace("-", "_"), key)] = None
        if isinstance(value, list):
            value = [_value(name, each, notes) if isinstance(each, str) else each for each in value]
        found[key] = _value(name, value, notes) if isinstance(value, str) else value
    return found, [*notes]


def _name(word: str, notes: dict[str, None], command: str = "") -> str:
    """A command's or option's; ``command``, with a space, is the one that an option is of."""
    old = command + word if command + word in RENAMED else word
    new = RENAMED.get(old, word)
    if new != word:
        notes[_note(old, new)] = None
    return new.removeprefix(command)


def _value(option: str, text: str, notes: dict[str, None]) -> str:
    """A value, each part of a list or of nested protections by itself."""
    parts = _JOINTS.split(text)
    for place, part in enumerate(parts):
        old = f"{option} {part}"
        if new := RENAMED.get(old):
            parts[place] = new.removeprefix(f"{option} ")
            notes[_note(old, new)] = None
    return "".join(parts)


def _note(old: str, new: str) -> str:
    return f"{old} is now {new}; the old name goes with the next release"
