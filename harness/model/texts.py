"""The kinds of text: types for what is read, so that a file's text cannot be misused as a path, an argument
or markup.

A field whose text becomes a path, a program, an argument or a name has that kind, and msgspec refuses a file
with any other text there, before anything is done with it. A text that is only shown is ``Prose``. Each kind
has a ``title``, which says what was expected. ``tests/unit/model/test_texts.py`` finds fields without a kind.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, get_args

from msgspec import Meta

from harness.model.escape import printable

NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
_VISIBLE = r"[^\x00-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]"
"""No control character, no line's end, nothing that reverses the direction of writing."""
_NO_OPTION = rf"(?!-){_VISIBLE}"
_HOST = r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_][A-Za-z0-9_.-]{0,254})(?::[0-9]{1,5})?"
_SSH = rf"ssh://(?:[A-Za-z0-9_][A-Za-z0-9_.+-]{{0,254}}@)?{_HOST}/?"

Name = Annotated[
    str,
    Meta(
        title="a name: 1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
        pattern=rf"^{NAME}\Z",
    ),
]
"""Of runs, links, protections, workloads, disks: part of file names, job files and command lines."""

NameOrNone = Annotated[
    str, Meta(title="nothing, or a name of a-z, 0-9, '.', '_' and '-'", pattern=rf"^(?:{NAME})?\Z")
]
"""The same, "" where there is none."""

RunId = Annotated[
    str,
    Meta(title="the id of a run: 1 to 64 of a-z, 0-9, '.', '_' and '-'", pattern=rf"^(?:{NAME})\Z"),
]

HostName = Annotated[
    str, Meta(title="the name of a host of a run: initiator2", pattern=r"^[a-z][a-z-]{0,31}[0-9]{0,4}\Z")
]

CpuCostsId = Annotated[
    str,
    Meta(
        title="nothing, or a CPU cost file's name and digest", pattern=rf"^(?:{NAME}(?: [0-9a-f]{{6}})?)?\Z"
    ),
]

Label = Annotated[
    str,
    Meta(
        title="a column's label: names joined by '+' and '.'",
        pattern=r"^[a-z0-9][a-z0-9._+-]{0,511}\Z",
    ),
]

KernelKey = Annotated[
    str, Meta(title="the key of a kernel, 12 of 0-9 and a-f", pattern=r"^(?:[0-9a-f]{12})?\Z")
]
"""The name of a kernel's folder in the cache; "" in records of the first versions."""

KernelRelease = Annotated[
    str,
    Meta(title="a release of Linux, as uname(1) has it", pattern=r"^[0-9][0-9A-Za-z_.+~-]{0,63}\Z"),
]

Commit = Annotated[
    str,
    Meta(title="nothing, or a commit of git's", pattern=r"^(?:[0-9a-f]{4,64}(?:-dirty)?)?\Z"),
]

VersionNumber = Annotated[str, Meta(title="a version", pattern=r"^[0-9A-Za-z.+~_-]{0,64}\Z")]

InterfaceName = Annotated[
    str, Meta(title="the name of a network interface", pattern=r"^[^\s\x00/:@-][^\s\x00/:@]{0,14}\Z")
]
"""dev_valid_name() of net/core/dev.c, and no option of ip(8)."""

IpAddress = Annotated[
    str,
    Meta(
        title="an IPv4 or IPv6 address",
        pattern=r"^(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]{2,45}(?:%[0-9A-Za-z_.-]{1,15})?)\Z",
    ),
]
"""With the scope of a link-local one."""

Portal = Annotated[
    str,
    Meta(
        title="a portal: [TRANSPORT://]HOST[:PORT][/NAME]",
        pattern=rf"^(?:[a-z-]{{1,16}}://)?(?:{_HOST}|[0-9A-Fa-f:.]{{2,45}})(?:/[!-~]{{0,4096}})?\Z",
    ),
]

PortalOrNone = Annotated[
    str,
    Meta(
        title="nothing, or a portal: [TRANSPORT://]HOST[:PORT]",
        pattern=rf"^(?:(?:[a-z-]{{1,16}}://)?(?:{_HOST}|[0-9A-Fa-f:.]{{2,45}}))?\Z",
    ),
]

MachineAddress = Annotated[
    str, Meta(title="local, or ssh://[USER@]HOST[:PORT]", pattern=rf"^(?:local|{_SSH})\Z")
]
"""Its parts become arguments of ssh(1): none begins with "-"."""

HopAddress = Annotated[
    str,
    Meta(
        title="local, ssh://[USER@]HOST[:PORT] or SCHEME://HOST[:PORT][/INTERFACE,...]",
        pattern=rf"^(?:local|{_SSH}|(?!ssh:)[a-z]{{2,16}}://{_HOST}(?:/[ -~]{{0,4096}})?)\Z",
    ),
]

TargetName = Annotated[
    str,
    Meta(
        title="the name of a target or an export, without blanks",
        pattern=r"^(?:(?!-)[^\s\x00-\x20\x7f-\xa0]{1,4096})?\Z",
    ),
]
"""An IQN, an NQN, or the name of an export; "" for a server's default one."""

UserName = Annotated[str, Meta(title="a user's name", pattern=rf"^(?:{_NO_OPTION}{_VISIBLE}{{0,254}})?\Z")]
"""Of CHAP: a line of iscsid.conf(5)."""

AbsolutePath = Annotated[str, Meta(title="an absolute path", pattern=rf"^/{_VISIBLE}{{0,4095}}\Z")]
"""On a machine: of a device or a file."""

FilePath = Annotated[
    str, Meta(title="nothing, or a path", pattern=rf"^(?:{_NO_OPTION}{_VISIBLE}{{0,4351}})?\Z")
]
"""As a user types it; of swanctl.conf(5) with ``#CHILD``."""

FileName = Annotated[
    str, Meta(title="the name of a file or folder, no path", pattern=r"^(?!\.\.?\Z)[^/\x00]{1,255}\Z")
]

RunFile = Annotated[
    str,
    Meta(
        title="a file below raw/, in the run's folder",
        pattern=r"^raw(?:/(?!\.\.?(?:/|\Z))[^/\x00-\x1f\x7f]{1,255}){1,8}\Z",
    ),
]

Argument = Annotated[str, Meta(title="an argument, without NUL", pattern=r"^[^\x00]*\Z")]
"""Of a command that the harness itself wrote down, in a folder that only its user may write to."""

FioOption = Annotated[str, Meta(title="an option of fio", pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
FioValue = Annotated[str, Meta(title="the value of an option of fio", pattern=rf"^{_VISIBLE}{{0,1024}}\Z")]
"""A job file has a line for each."""

Algorithm = Annotated[
    str, Meta(title="an algorithm of /proc/crypto", pattern=r"^[A-Za-z0-9_(),.+-]{1,128}\Z")
]

IkeWord = Annotated[
    str,
    Meta(
        title="a word of an IKE daemon's configuration: a-z, 0-9, '.', '_' and '-'",
        pattern=r"^[a-z0-9._-]{1,64}\Z",
    ),
]
"""Of a proposal, or a plugin: part of charon's configuration."""

Parameter = Annotated[
    str, Meta(title="the name of a session's parameter", pattern=r"^[A-Za-z][A-Za-z0-9_.]{0,63}\Z")
]
ParameterValue = Annotated[
    str, Meta(title="the value of a session's parameter", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,-]{0,63}\Z")
]

Percentile = Annotated[
    str, Meta(title="mean, or a percentile: p99.9", pattern=r"^(?:mean|p[0-9]{1,2}(?:\.[0-9]{1,4})?)\Z")
]

Title = Annotated[str, Meta(title="a title of up to 1000 characters", max_length=1000)]
"""Of a link, a disk, a proposal: for people, and of words that may be shared (``results.share``)."""

Drivers = Annotated[str, Meta(title="drivers of /proc/crypto, or what iw(8) calls a cipher", max_length=999)]
"""For people, and of words that may be shared."""

InterfaceLabel = Annotated[str, Meta(title="what a machine calls its interface", max_length=998)]
"""Of any machine, such as a switch: for people."""

Detail = Annotated[str, Meta(title="a detail of up to 4000 characters", max_length=4000)]
"""For people, and of no use to others, who get nothing of it."""

Line = Annotated[str, Meta(title="one line of visible characters", pattern=rf"^{_VISIBLE}{{0,200}}\Z")]
"""Of a file that people edit; only ever shown."""

Part = Annotated[str, Meta(title="1 to 64 visible characters", pattern=rf"^{_VISIBLE}{{1,64}}\Z")]
"""The name of a part of a path in a CPU cost file; it is compared, and shown."""

Typed = Annotated[
    str,
    Meta(
        title="a word as typed behind an option, in one line",
        pattern=rf"^(?:{_NO_OPTION}{_VISIBLE}{{0,1023}})?\Z",
    ),
]
"""In a configuration file: parsed as the word on the command line is, by the option's own rule."""

Identity = Annotated[str, Meta(title="a line that identifies a disk", pattern=rf"^{_VISIBLE}{{0,4351}}\Z")]
"""What a kernel shows of a disk, or a user typed as consent; it is compared, and shown."""

Prose = Annotated[str, Meta(title="text of up to a MiB", max_length=1 << 20)]
"""For people: never a path, a program, an argument or a name. Whoever shows it escapes it
(``model.escape``)."""

KINDS = (
    *(RunId, HostName, Title, Drivers, InterfaceLabel, Detail),
    *(Name, NameOrNone, CpuCostsId, Label, KernelKey, KernelRelease, Commit, VersionNumber, Portal),
    *(InterfaceName, IpAddress, PortalOrNone, MachineAddress, HopAddress, TargetName, UserName),
    *(AbsolutePath, FilePath, FileName, RunFile, Argument, FioOption, FioValue, Algorithm, IkeWord),
    *(Parameter, ParameterValue, Percentile, Line, Part, Typed, Identity, Prose),
)
"""All of them."""

_REFUSED = re.compile(
    r"Expected `str` matching regex (?P<pattern>'.*'|\".*\") - at (?P<key>`key` in )?`(?P<at>.*)`", re.DOTALL
)


def in_words(error: Exception, read: object = None) -> str:
    """msgspec's words for what it refused, with what a kind of text is instead of its pattern, and with the
    text that was found in what was ``read``."""
    words = str(error)
    refused = _REFUSED.fullmatch(words)
    kind = next(
        (kind for kind in _patterns() if refused is not None and repr(kind) == refused["pattern"]), None
    )
    if refused is None or kind is None:
        return words
    texts = _at(read, re.findall(r"\.(\w+)|\[([0-9]+|\.\.\.)\]", refused["at"]))
    if refused["key"]:
        texts = [key for each in texts if isinstance(each, Mapping) for key in each]
    found = next((each for each in texts if isinstance(each, str) and not re.search(kind, each)), None)
    said = "" if found is None else f", found '{printable(found[:60])}{'…' if len(found) > 60 else ''}'"
    return f"expected {_patterns()[kind]}{said}{words[refused.end('pattern') :]}"


@functools.cache
def _patterns() -> dict[str, str]:
    """The titles of the kinds by their patterns."""
    metas = [get_args(kind)[1] for kind in KINDS]
    return {meta.pattern: meta.title for meta in metas if meta.pattern is not None}


def _at(read: object, way: Sequence[tuple[str, str]]) -> list[object]:
    """What is at msgspec's path, of which ``[...]`` is any key."""
    found = [read]
    for field, index in way:
        inner: list[object] = []
        for each in found:
            if isinstance(each, Mapping):
                inner += [each[field]] if field in each else each.values() if index == "..." else []
            elif isinstance(each, Sequence) and index.isdecimal() and int(index) < len(each):
                inner.append(each[int(index)])
        found = inner
    return found
