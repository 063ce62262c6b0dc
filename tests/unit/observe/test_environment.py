"""What machines are: asked of them, kept with the results, and read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.hosts import NamespaceHost
from harness.observe import environment
from harness.results.machine import MACHINE, machine_of
from harness.results.store import RunFolder
from harness.testbeds import testbed
from harness.testbeds.lab import boot
from tests.unit.fakes import FakeHost, World
from tests.unit.fakes.answers import NO

CPUINFO = "".join(
    f"processor\t: 0\nmodel name\t: AMD EPYC\ncpu MHz\t\t: {mhz}\n\n" for mhz in (2000.0, 3000.5)
)
FILES = {
    "/proc/version": "Linux version 6.1.0 (a@b) #1\n",
    "/proc/cmdline": "secret=1\n",
    "/proc/cpuinfo": CPUINFO,
    "/proc/meminfo": "MemTotal:        2048 kB\nMemFree: 1 kB\n",
    "/proc/loadavg": "0.25 0.50 0.75 1/200 12345\n",
    "/etc/os-release": 'NAME=x\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
}
LSCPU = "Architecture: x86_64\nModel name:   Some ARM\nHypervisor vendor:   KVM\n"


@dataclass
class Files(World):
    files: dict[str, str] = field(default_factory=dict)

    def text_of(self, path: str) -> str:
        return self.files.get(path, "")


def asked(lscpu: str = LSCPU, **changes: str) -> FakeHost:
    """A host whose one program is lscpu(1)."""
    files = FILES | {f"/proc/{name}": text for name, text in changes.items()}
    return Files(answers=[(("lscpu",), (0, lscpu, "")), ((), NO)], files=files).host("target")


def test_what_a_machine_says_of_itself() -> None:
    facts = environment.describe_machine(asked())
    found = machine_of({MACHINE: facts}, "target")
    assert (found.processor, found.cores, found.frequency_mhz) == ("AMD EPYC", 2, 2500.2)
    assert (found.governor, found.hypervisor, found.load) == ("powersave", "KVM", 0.25)
    assert (found.memory_bytes, found.kernel) == (2048 * 1024, "6.1.0")
    assert found.distribution == "Debian GNU/Linux 12 (bookworm)"
    assert "kernel_command_line" not in facts, "which says more of its owner than of figures"
    # Bare metal is distinguished from what is not known.
    for lscpu, hypervisor in (("Architecture: x86_64\n", "none"), ("", None)):
        facts = environment.describe_kernel(asked(lscpu))
        assert facts.get("hypervisor") == hypervisor
        found = machine_of({"hosts": {"target": facts}}, "target")
        assert (found.hypervisor, "virtual" in found.in_words()) == (hypervisor, False)


def test_a_processor_without_a_name_in_proc_has_that_of_lscpu_unless_its_kernel_is_a_process() -> None:
    facts = environment.describe_kernel(asked(cpuinfo="processor\t: 0\nBogoMIPS\t: 50.00\n"))
    assert (facts["cpu"], facts["cpus"]) == ("Some ARM", 1) and "frequency_mhz" not in facts
    facts = environment.describe_kernel(asked(cpuinfo="processor\t: 0\nvendor_id\t: User Mode Linux\n"))
    assert "hypervisor" not in facts and facts["cpu"] == ""


def test_the_machine_stays_when_the_lab_tells_of_its_hosts(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    testbed._note_machine(run)
    below = run.load_environment()[MACHINE]
    assert below["cpus"] >= 1 and below["kernel"].startswith("Linux version")
    run.save_environment({"hosts": {"target": {"cpu": "UML"}}})
    assert run.load_environment() == {MACHINE: below, "hosts": {"target": {"cpu": "UML"}}}
    testbed._note_machine(run)
    assert run.load_environment()["hosts"] == {"target": {"cpu": "UML"}}, "a run that goes on"
    (tmp_path / "environment.json").write_text("damaged")
    run.save_environment({"hosts": {}})
    assert run.load_environment() == {"hosts": {}}


def test_versions_are_first_lines_and_what_fails_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = {
        "good": ["sh", "-c", "echo 'one two' >&2; echo three"],
        "fails": ["sh", "-c", "echo 1.0; exit 1"],
    }
    tools |= {"absent": ["no-such-program", "--version"], "silent": ["true"]}
    more = {"quoted": ["printf", "%s", "a 'b' \\n"]}
    monkeypatch.setattr(environment, "TOOLS", tools)
    assert environment.versions(NamespaceHost("machine"), more) == {"good": "one two", "quoted": "a 'b' \\n"}
    # The machine is asked for the tools that the lab finds.
    monkeypatch.setattr(environment, "TOOLS", {"path": ["sh", "-c", "echo $PATH"]})
    assert testbed._tools()["path"] == boot.PATH
    script = Path(boot.__file__).with_name("init.sh").read_text(encoding="utf-8")
    assert f"export PATH={boot.PATH}\n" in script


def test_hosts_in_one_namespace_are_asked_once_and_known_tools_not_at_all() -> None:
    world = World()
    near, far = world.host("initiator"), world.host("target")
    described = environment.describe([near, far])["hosts"]
    assert isinstance(described, dict) and [*described] == ["initiator", "target"]
    assert {command.host for command in world.commands} == {"initiator"}
    asked = len(world.commands)
    described = environment.describe([near], tools={"fio": "fio-3.33"})["hosts"]
    assert isinstance(described, dict) and described["initiator"]["tools"] == {"fio": "fio-3.33"}
    assert len(world.commands) < 2 * asked
