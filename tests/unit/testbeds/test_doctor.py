"""What is said of the machines of a run: from what a look at them prints, and the look itself."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from typer.testing import CliRunner

from harness import cli
from harness.hosts import Host, packages, programs, remote
from harness.model import TRANSPORTS, LabKernel
from harness.model.errors import RequirementError, UsageError
from harness.parse.hosts import HostAddress
from harness.parse.profiles import data_folder
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.testbeds import doctor, requirements, selftest
from harness.testbeds.doctor import judge, machine_findings
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import ciphers, kernel
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.participants import Participant, machines
from harness.testbeds.requirements import Asked, asked_for, parse_facts
from harness.testbeds.selftest import SelftestOutcome
from tests.unit.agents import agent_source
from tests.unit.fakes import World
from tests.unit.hosts.test_hosts import executable
from tests.unit.hosts.test_remote import SSH, UNSHARE
from tests.unit.testbeds.refusals import refusal

pytestmark = pytest.mark.thorough

FINE = """\
Welcome to nas! 3 updates can be applied.
harness-facts
login root
uid 0
kernel 6.1.0-28-amd64
distribution Debian GNU/Linux 12 (bookworm)
family debian
python 3.11
free 1048576
interface eth0 192.168.1.10/24
interface wlan0 192.168.1.11/24 (WiFi)
"""
NAS = Participant(role="target", name="target", address=HostAddress("ssh://root@nas"))
LAPTOP = Participant(role="initiator", name="initiator", address=HostAddress("local"))
NEEDS = {"", "iscsi", "ipsec", *doctor.OPTIONAL, "several"}
ROLES = {"lab", "target", "initiator", "controller", "make"}
INSTALL = "apt-get update && apt-get install --no-install-recommends"


def shown(found: Iterable[doctor.Finding]) -> list[str]:
    """Findings as people see them, each on a line."""
    return [f"{each.state}: {each.text}" + f" -> {each.mend}" * bool(each.mend) for each in found]


def said(text: str, at: Participant = NAS, sudo: str = "", asked: Asked = doctor.AS_BY_DEFAULT) -> list[str]:
    """The findings that a look's output gives."""
    facts = parse_facts(text)
    assert facts is not None
    return shown(judge(at, facts, sudo, asked))


def problems(lines: Iterable[str]) -> list[str]:
    return [line.removeprefix("missing: ") for line in lines if line.startswith("missing: ")]


def test_every_line_of_the_list_says_who_needs_the_package_and_when() -> None:
    listed = requirements.packages()
    text = (data_folder() / "packages.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(listed) == len(lines) == len({package.name for package in listed})
    for package in listed:
        assert package.needed_by and package.needed_by.keys() <= ROLES, package
        assert set(package.needed_by.values()) <= NEEDS | {*TRANSPORTS} and package.purpose, package
    for need in NEEDS - {""}:
        assert f"{need} (" in text, "it is explained at its head"
    # Each role has the programs that it is known to start.
    common = {"program:tcpdump", "program:ip", "program:modprobe", "program:fio"}
    for role, words in {"target": common, "initiator": {"program:iscsiadm", *common}}.items():
        assert words <= {package.word for package in requirements.wanted(role, {"", "iscsi"})}
        assert "program:/usr/sbin/charon-systemd" in {p.word for p in requirements.wanted(role, {"ipsec"})}
    assert not {p.name for p in listed if "sshd" in p.shown_by}, "it would open a service"


def test_a_machine_that_has_everything() -> None:
    assert said(FINE) == [
        "ok: ssh://root@nas: reached as root; Debian GNU/Linux 12 (bookworm), Linux 6.1.0-28-amd64",
        f"ok: all {len(requirements.wanted('target', {'', 'ipsec', 'iscsi'}))} packages are installed",
        "ok: its kernel has all modules",
        "ok: 1 GiB are free in /var/tmp, for --backing file",
        "ok: interfaces: eth0 192.168.1.10/24, wlan0 192.168.1.11/24 (WiFi)",
    ]
    assert all(line.startswith("ok: ") for line in said(FINE, LAPTOP))


MISSING = "absent program:tcpdump\nabsent program:/usr/sbin/charon-systemd\n"


def test_all_that_is_missing_is_named_at_once_with_the_distribution_s_command() -> None:
    for family, command in (
        ("debian", f"-> {INSTALL} charon-systemd tcpdump"),
        ("raspbian debian", "apt-get install --no-install-recommends charon-systemd"),
        ("fedora", "dnf install strongswan tcpdump"),
        ("arch", "pacman -S strongswan tcpdump"),
        ("opensuse-leap suse opensuse", "zypper install strongswan tcpdump"),
        ("alpine", "install what provides /usr/sbin/charon-systemd, tcpdump"),
    ):
        (problem,) = problems(said(FINE.replace("family debian", f"family {family}") + MISSING))
        assert problem.startswith("packages are missing: charon-systemd (")
        assert command in problem and "sudo" not in problem, family
    # What is asked of Debian alone counts there alone.
    missing = "absent package:libstrongswan-standard-plugins\n"
    (problem,) = problems(said(FINE + missing))
    assert "libstrongswan-standard-plugins" in problem
    elsewhere = said(FINE.replace("family debian", "family fedora") + missing)
    assert all(line.startswith("ok: ") for line in elsewhere)


def test_one_command_installs_all_that_a_bare_machine_lacks() -> None:
    needed = [package for package in requirements.packages() if "initiator" in package.needed_by]
    lines = said(FINE + "".join(f"absent {package.word}\n" for package in needed), LAPTOP)
    (command,) = (line.partition(" -> ")[2] for line in lines if " -> " in line)
    assert set(command.removeprefix(f"{INSTALL} ").split()) == {package.name for package in needed}
    (note,) = (line for line in lines if line.startswith("note: "))
    assert "without iputils-ping, iperf3, hping3, gcc, libc6-dev, some probes are skipped" in note
    assert note.endswith("; the command above also installs them")
    assert "the lab" not in "".join(lines), "it is a real machine"


def test_who_is_not_root_gets_the_command_with_sudo_if_it_may_be_used() -> None:
    lines = said(FINE.replace("login root", "login joe") + MISSING)
    assert "reached as joe, who may use sudo;" in lines[0]
    (problem,) = problems(lines)
    assert "-> sudo apt-get update && sudo apt-get install" in problem
    text = FINE.replace("login root\nuid 0", "login joe\nuid 1000") + MISSING
    rights, _packages = problems(said(text, sudo="Banner of the machine\nsudo: a password is required\n"))
    assert "expected root's rights: sudo: a password is required -> log in as root, or" in rights


NO_MODULES = "absent module:target_core_mod\nabsent module:esp4\n"
LACKS = "lacks target_core_mod, esp4 -> .*"
PORT = "uses UDP port 3264, which the run's own IKE daemon needs -> move it to another port, or leave "


def test_what_a_run_cannot_do_without_is_missing() -> None:
    for lines, old, new, words in (
        (NO_MODULES, "", "", f"{LACKS}use a kernel that has these modules"),
        (NO_MODULES, "debian\n", "ubuntu debian\n", f"{LACKS}install linux-modules-extra-6.1.0-28-amd64"),
        (NO_MODULES, "28-amd64", "28-cloud-amd64", f"{LACKS}apt-get install linux-image-amd64, then boot"),
        (NO_MODULES, "debian\n", "debian\nmodules other\n", f"{LACKS}.*another kernel's: reboot if"),
        (
            NO_MODULES,
            "debian\n",
            "debian\nmodules absent\n",
            f"{LACKS}.*: install its modules",
        ),
        ("", "python 3.11", "python 3.7", "3.9 or later"),
        ("absent program:/usr/bin/python3\n", "python 3.11\n", "", f"{INSTALL} python3$"),
        ("unshare unshare: unshare failed: Operation not permitted\n", "", "", "no namespaces .*container"),
        ("listener 812 x y\n", "", "", rf"^x y \(process 812\) {PORT}"),
        ("listener - \n", "", "", f"^a process {PORT}"),
        ("listener 7 x\nlistener 8 z\n", "", "", rf"^x \(process 7\), z \(process 8\) {PORT}"),
    ):
        (problem,) = problems(said(FINE.replace(old, new) + lines))
        assert re.search(words, problem)


def test_what_is_no_failure_is_a_note() -> None:
    for lines, machine, note in (
        ("absent program:ethtool\n", NAS, f"without ethtool, the record has fewer details -> {INSTALL}"),
        ("absent program:ethtool\nabsent program:iw\n", LAPTOP, f"{INSTALL} iw ethtool"),
        ("absent program:iw\n", LAPTOP, f"--link wifi=IFACE is not possible -> {INSTALL}"),
        ("absent program:pki\n", LAPTOP, "--auth cert is not possible"),
        ("journal agent-target-17.jsonl\n", NAS, "-> harness clean with the same --target"),
        ("busy target run-7\nlistener 9 charon-systemd\n", NAS, "in use by run run-7 (target) -> wait"),
        ("only-ipv4 eth0\nonly-ipv4 veth1a2b\n", NAS, "so no --ip 6 over eth0"),
        ("no-ipv6 kernel\n", NAS, "without IPv6 in the kernel, --ip 6"),
    ):
        found = said(FINE + lines, machine)
        (line,) = (line for line in found if line.startswith("note: "))
        assert note in line and not problems(found)
    for lines, words in (
        ("absent program:modprobe\n", "its kernel"),
        ("journal agent-initiator-17.jsonl\n", "left"),
        ("busy target r\njournal agent-target-1.jsonl\n", "left"),
        ("only-ipv4 veth1a2b\n", "--ip 6"),
    ):
        found = said(FINE + lines)
        assert not [line for line in found if words in line], "it does not concern the role"
        assert "interfaces: " in found[-1]


def test_a_machine_cannot_drive_the_terminal_and_may_give_no_answer() -> None:
    lines = said(FINE.replace("Debian", "\x1b[31mDebian") + "interface \x1b[2J 10.0.0.1/8\n")
    assert all(line.isprintable() for line in lines)
    assert parse_facts("This account is currently not available.\n") is None


def require(lines: str, *protections: str, role: str = "target", by: tuple[str, ...] = ("iscsi",)) -> None:
    """What a run over these transports and protections demands of a machine that says this as well."""
    host = World(answers=[(("sh", "-s"), (0, FINE + lines, ""))]).host(role)
    made = make_plan(RunRequest(links=("wired",), ipsec=protections or ("off",), transports=by))
    doctor.require(host, role, made)


def test_a_run_demands_what_its_columns_need_and_not_what_is_only_noted() -> None:
    charon = "absent program:/usr/sbin/charon-systemd\nlistener 812 pluto\nabsent module:esp4\n"
    require(charon)
    said = r"the target is not ready.*charon-systemd \(IPsec.*lacks esp4.*pluto \(process 812\)"
    hint = refusal(RequirementError, said, require, charon, "aes128gcm16")
    assert hint.startswith(f"there: {INSTALL} charon-systemd; ") and "move it to another port" in hint
    noted = ("program:iw", "program:ethtool", "program:pki", "module:target_core_iblock")
    require("".join(f"absent {word}\n" for word in noted), "aes128gcm16", role="initiator")


def test_a_run_is_held_to_what_its_transport_needs() -> None:
    with pytest.raises(RequirementError, match="lacks iscsi_target_mod"):
        require("absent module:iscsi_target_mod\n", by=("iscsi",))


def judged(text: str, *asked: list[str]) -> list[str]:
    """What is not ok of a machine that says this as well."""
    return [line for line in said(FINE + text, asked=asked_for(*asked)) if not line.startswith("ok: ")]


def test_what_is_asked_for_has_to_be_there_and_nothing_else() -> None:
    no_charon = "absent program:/usr/sbin/charon-systemd\nlistener 812 pluto\n"
    assert judged(no_charon, ["iscsi"], ["off"]) == []
    assert len(judged(no_charon, ["iscsi"], ["both"])) == 2
    for by, protected_by, named in ((["smb"], [], "smb"), ([], ["wiregard"], "wiregard"), ([], ["+"], "''")):
        refusal(UsageError, named, asked_for, by, protected_by)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs found before the machine's own, where all is well and root is there."""
    (folder := tmp_path / "tools").mkdir()
    users = f'users:(("charon",pid={os.getpid()},fd=12))'
    for name, text in {
        "ssh": SSH,
        "id": 'test "$1" = -u && echo 0 || echo root',
        "unshare": UNSHARE.replace("/usr/bin/python3", "true"),
        "modprobe": 'test "$3" != esp4',
        "ss": f"echo 'UNCONN 0 0 0.0.0.0:3264 0.0.0.0:* {users}'",
        "ip": "echo '1: lo    inet 127.0.0.1/8 scope host lo'; echo '2: eth7    inet 10.1.2.3/8 brd x'",
        "iw": "",
    }.items():
        executable(folder / name, text)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def of(where: str, found: Iterable[doctor.Finding]) -> list[str]:
    return shown(each for each in found if each.where == where)


def of_nas() -> str:
    return "\n".join(of("target", machine_findings(machines("ssh://nas", []))))


@pytest.mark.usefixtures("tools")
def test_a_look_at_a_machine() -> None:
    found = list(machine_findings(machines("ssh://nas", ["local", "ssh://b"])))
    for where in ("target", "initiator", "initiator2"):
        lines = "\n".join(of(where, found))
        assert "reached as root; " in lines and os.uname().release in lines
        assert "lacks esp4" in lines
        # Where a run is, here a lab that may be up, its own daemons have the ports.
        is_reported = where == "target" and "it is in use by" not in lines
        assert (f"(process {os.getpid()})" in lines) is is_reported, "that which is called"
        assert "interfaces: eth7 10.1.2.3/8" in lines and "127.0.0.1" not in lines
        assert ("are free in /var/tmp" in lines) is (where == "target")


def test_a_look_without_root(tools: Path) -> None:
    executable(tools / "id", 'test "$1" = -u && echo 1000 || echo joe')
    executable(tools / "sudo", 'test "$1" = -n || exit 9; echo "sudo: a password is required" >&2; exit 1')
    lines = of_nas()
    assert "reached as joe;" in lines and "NOPASSWD" in lines and "lacks esp4" in lines
    executable(tools / "sudo", 'test "$1" = -n || exit 9; shift; IS_ROOT=1 exec "$@"')
    executable(
        tools / "id", 'if test "$1" != -u; then echo joe; else test "$IS_ROOT" && echo 0 || echo 1000; fi'
    )
    lines = of_nas()
    assert "reached as joe, who may use sudo;" in lines and "root's rights" not in lines


def test_a_machine_out_of_reach_does_not_hide_the_others(tools: Path) -> None:
    for words, hint in (
        ("Host key verification failed.", "compare the fingerprint"),
        ("root@nas: Permission denied (publickey).", "ssh-add"),
        ("ssh: Could not resolve hostname nas: Name or service not known", "check the name"),
    ):
        executable(tools / "ssh", f"echo '{words}' >&2; exit 255")
        found = list(machine_findings(machines("ssh://nas", ["local"])))
        (line,) = of("target", found)
        assert line.startswith(f"missing: the target could not be reached: {words}") and hint in line
        assert "reached as root" in of("initiator", found)[0]
    # A login shell that refuses.
    executable(tools / "ssh", "echo This account is currently not available.; exit 1")
    (line,) = of_nas().splitlines()
    assert "This account is currently not available." in line


@pytest.mark.usefixtures("tools")
def test_here_ssh_is_needed_for_other_machines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    look_on = requirements.look_on

    def look(host: Host, asked: list[str]) -> requirements.MachineFacts:
        facts = look_on(host, asked)
        return parse_facts(FINE + "".join(f"absent {word}\n" for word in asked)) or facts

    monkeypatch.setattr(doctor, "look_on", look)
    assert not of(doctor.CONTROLLER, machine_findings(machines("local", ["local"])))
    (line,) = of(doctor.CONTROLLER, machine_findings(machines("ssh://nas", ["local"])))
    assert "openssh-client" in line and "fio" not in line
    (line,) = of(doctor.CONTROLLER, machine_findings(machines("local", ["local", "local"])))
    assert "fio" in line and "openssh-client" not in line
    # Addresses are checked before anything is reached.
    refusal(UsageError, "initiator as ssh://", machines, "ssh://nas", ["nas"])


@pytest.fixture
def state(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where agents keep their journals; they are started as a run does."""
    source = agent_source(folder := tmp_path / "state")
    monkeypatch.setattr(programs, "source", lambda _room, name: {"agent": source}[name])
    # Where root has made runs before, others may not even look.
    monkeypatch.setattr(remote, "PRIVATE", tmp_path / "private")
    for name, text in (("unshare", UNSHARE), ("mount", ""), ("umount", "")):
        executable(tools / name, text)
    return folder


def leave(state: Path, role: str, *argv: str) -> Path:
    """A journal as a killed agent leaves it."""
    state.mkdir(exist_ok=True)
    journal = state / f"agent-{role}-17.jsonl"
    entry = {"what": "NetworkNamespace own", "steps": [{"argv": argv}]}
    journal.write_text(json.dumps({"id": 1, "entry": entry}) + "\n", encoding="utf-8")
    return journal


def command(expected: int, *words: str) -> str:
    """What the command prints; it ends with this status."""
    done = CliRunner().invoke(cli.app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == expected, done.output
    return done.output


def test_clean_says_what_it_removes_and_could_not_and_whom_it_could_not_reach(
    state: Path, tools: Path
) -> None:
    (mine := tools / "left").touch()
    journal = leave(state, "target", "rm", str(mine))
    text = command(0, "clean", "--target", "ssh://nas")
    assert "removed, left by an earlier run: target: NetworkNamespace own" in text
    assert "initiator: nothing was left behind" in text
    assert not mine.exists() and not journal.exists()
    command(0, "clean", "--target", "ssh://nas", "--initiator", "ssh://a")
    journal = leave(state, "initiator", "false")
    text = command(1, "clean", "--initiator", "local", "--initiator", "ssh://b")
    assert "could not be removed: initiator: NetworkNamespace own" in text and journal.exists()
    leave(state, "initiator", "true")
    executable(tools / "ssh", "echo 'ssh: connect to host nas port 22: No route to host' >&2; exit 255")
    text = command(2, "clean", "--target", "ssh://nas")
    assert "the target could not be reached: ssh: connect to host nas port 22" in text
    assert "hint: is the machine on" in text
    assert "initiator: NetworkNamespace own" in text, "the others are cleaned all the same"


@pytest.mark.usefixtures("tools")
def test_the_command_ends_with_2_unless_all_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    trying: dict[str, list[SelftestOutcome]] = {}

    def of(_host: Host, role: str, _folder: Path, _asked: Asked) -> list[SelftestOutcome]:
        return trying.setdefault(role, [SelftestOutcome(what="a session"), SelftestOutcome(what="ESP")])

    monkeypatch.setattr(selftest, "of", of)
    monkeypatch.setattr(remote, "connect", lambda *_, **words: contextlib.nullcontext(words["name"]))
    text = command(2, "doctor", "--target", "ssh://nas")
    assert "missing target    " in text and "fix: " in text and "the machines are not ready" in text
    assert not trying, "what lacks something is not tried"
    for line, untried in (
        ("busy target run-7\n", "initiator and the target"),
        ("journal agent-target-17.jsonl\n", "target"),
    ):
        found = parse_facts(FINE + line), ""
        monkeypatch.setattr(doctor, "look_at", lambda *_, found=found: found)
        text = command(0, "doctor", "--target", "ssh://nas", "--initiator", "local")
        assert text.endswith(f"nothing is missing, but doctor could not try the {untried}\n")
        assert "target" not in trying and "ready" not in text
    monkeypatch.setattr(doctor, "look_at", lambda *_: (parse_facts(FINE), ""))
    text = command(0, "doctor", "--target", "ssh://nas")
    assert text.count("tried and undone: a session, ESP\n") == 2
    assert text.endswith(
        "the machines are ready: harness run --target ssh://nas --link local --link wired=INTERFACE\n"
    )
    error = RequirementError("it was refused", hint="ask again")
    trying["initiator"] = [SelftestOutcome(what="a session", error=error), SelftestOutcome(what="ESP")]
    text = command(2, "doctor", "--target", "ssh://nas")
    assert "missing initiator a session was tried and failed: it was refused\n" in text
    assert "fix: ask again\n" in text and "initiator tried and undone: ESP\n" in text
    assert text.endswith("the machines are not ready\n")


def test_the_list_is_what_gets_installed(tmp_path: Path) -> None:
    """tools/install-packages.sh takes the first word of each line, whatever stands behind it."""
    asks = 'for last; do :; done; echo "$last" >> "$0.asked"; echo install ok installed'
    executable(tmp_path / "dpkg-query", asks)
    project = Path(__file__).resolve().parents[3]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "tools/install-packages.sh", "packages.txt"], cwd=project, env=env, check=True)
    asked = (tmp_path / "dpkg-query.asked").read_text(encoding="utf-8").split()
    assert asked == [package.name for package in requirements.packages()]


def test_as_installed_nothing_of_make_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = "".join(f"absent {package.word}\n" for package in requirements.packages())
    facts = parse_facts(f"{requirements.MARK}family debian\n{absent}")
    assert facts is not None
    monkeypatch.setattr(doctor, "_local_facts", lambda: facts)
    assert "shellcheck" in [package.name for package in doctor.missing_packages()]
    monkeypatch.setattr(doctor, "data_folder", lambda: tmp_path)
    names = [package.name for package in doctor.missing_packages()]
    assert "fio" in names and "shellcheck" not in names


def here(monkeypatch: pytest.MonkeyPatch, text: str, **findings: object) -> list[str]:
    """What is said of a machine by what a look at it prints; nothing of this one is looked at."""
    facts = parse_facts(f"{requirements.MARK}uid 1000\n{text}")
    monkeypatch.setattr(doctor, "_local_facts", lambda: facts)
    monkeypatch.setattr(doctor, "_lab_findings", lambda: iter(()))
    monkeypatch.setattr(sources, "absent_packages", list)
    monkeypatch.setattr(packages, "missing", lambda _name: [])
    monkeypatch.setattr(kernel, "recipe", lambda: kernel.Recipe("6.1.159 sha256:0", "cc", {}))
    monkeypatch.setattr(kernel, "cached", lambda _wanted: findings.get("own"))
    monkeypatch.setattr(
        kernel, "usual", lambda: LabKernel.CUSTOM if findings.get("own") else LabKernel.DEBIAN
    )
    monkeypatch.setattr(ciphers, "are_possible", lambda: findings.get("possible", True))
    monkeypatch.setattr(ciphers, "cached", lambda: findings.get("ciphers"))
    found = list(doctor.findings())
    return [line.replace(":", f": {each.where}:", 1) for each, line in zip(found, shown(found), strict=True)]


BOOKWORM = "distribution Debian GNU/Linux 12 (bookworm)\nfamily debian\nrelease 12 bookworm\n"
BULLSEYE = "distribution Debian GNU/Linux 11\nfamily debian\nrelease 11 bullseye\n"
FEDORA = "distribution Fedora Linux 43\nfamily fedora\nrelease 43 \n"
ALPINE = "distribution Alpine Linux v3.22\nfamily alpine\nrelease 3.22\n"
NO_KERNEL = "absent program:linux.uml\n"


def test_the_system_is_named_and_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, state, words in (
        (BOOKWORM, "ok", "the harness was tried on Debian 12"),
        (BULLSEYE, "note", "this release of Debian was not tried, but the names of its packages are known"),
        (
            FEDORA,
            "note",
            "the names of the packages of Fedora 43 to 45 are known, but the harness was not tried on it",
        ),
        (ALPINE, "note", "the names of its packages are unknown -> add a file to releases/"),
    ):
        name = text.partition("\n")[0].removeprefix("distribution ")
        assert here(monkeypatch, text)[0] == f"{state}: here: {name}: {words}"


def test_where_there_is_no_package_of_a_kernel_the_lab_needs_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = problems(here(monkeypatch, FEDORA + NO_KERNEL))
    (line,) = (line for line in lines if line.startswith("kernel"))
    assert line.startswith("kernel: this system has no package user-mode-linux, so the lab needs a kernel of")
    assert line.endswith(" is not built -> harness kernel build")
    assert not [line for line in lines if "packages are missing" in line], "it is no package to install"
    own = SimpleNamespace(built=SimpleNamespace(release="6.1.159"), folder="/cache")
    lines = here(monkeypatch, FEDORA + NO_KERNEL, own=own)
    assert "ok: kernel: the custom kernel 6.1.159 is built: /cache" in lines
    assert not [line for line in problems(lines) if not line.startswith("host:")]
    (line,) = (line for line in problems(here(monkeypatch, BOOKWORM + NO_KERNEL)) if line.startswith("both"))
    assert "packages are missing: user-mode-linux (" in line, "Debian has it"
    lines = problems(here(monkeypatch, BOOKWORM + NO_KERNEL, own=own))
    assert not [line for line in lines if line.startswith("both")], "its own will do"


def test_portable_ciphers_are_a_note_where_better_ones_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(text: str, **findings: object) -> list[str]:
        return [line for line in here(monkeypatch, text, **findings) if "generic" in line]

    (line,) = noted(BOOKWORM)
    assert line.startswith("note: kernel: the processor's ciphers for Debian's kernel are not built")
    assert line.endswith(" -> harness kernel ciphers")
    assert not noted(BOOKWORM, ciphers=boot.Kernel(binary=Path("/linux"), modules=Path("/modules")))
    assert not noted(BOOKWORM, possible=False), "there is nothing better"
    assert not noted(FEDORA + NO_KERNEL), "the custom kernel has them"


NO_USERS = RequirementError("expected user namespaces, found none", hint="sysctl")
HANGS = subprocess.TimeoutExpired("linux", doctor.BOOT_DEADLINE_S)


@pytest.mark.parametrize(
    ("status", "error", "state", "words"),
    [
        (0, None, doctor.OK, "it boots and writes to its results folder"),
        (0, None, doctor.MISSING, "its command ended with status 0"),
        (1, None, doctor.MISSING, "its command ended with status 1: check_ptrace"),
        (None, None, doctor.MISSING, "it ended before its command did: check_ptrace"),
        (None, HANGS, doctor.MISSING, "it did not boot within 60 s"),
        (None, NO_USERS, doctor.MISSING, "user namespaces"),
    ],
)
def test_the_lab_is_ready_when_it_has_booted_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, error: Any, state: str, words: str
) -> None:
    used: list[Path] = []

    @contextlib.contextmanager
    def booted(command: list[str], *, results: Path, **_: object) -> Iterator[mock.Mock]:
        assert command[:2] == ["sh", "-c"]
        used.append(results)
        if state is doctor.OK:
            (results / "trial").touch()
        lab = mock.Mock(**{"exit_status.return_value": status, "process.wait.side_effect": error})
        lab.last_words.return_value = "check_ptrace : expected SIGTRAP"
        yield lab

    monkeypatch.setattr(boot, "booted", booted)
    found = doctor.try_lab(tmp_path)
    assert (found.state, found.tried, found.where) == (state, error is not NO_USERS, "lab")
    assert words in found.text and (error is not NO_USERS or found.mend == "sysctl")
    assert not used[0].exists() and not list(tmp_path.iterdir())
