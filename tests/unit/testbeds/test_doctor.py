"""What is said of the machines of a run: from what a look at them prints, and the look itself."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from harness import cli
from harness.hosts import Host, packages, programs, remote
from harness.model import LabKernel, Plan
from harness.model.errors import RequirementError, UsageError
from harness.parse.hosts import HostAddress
from harness.parse.profiles import data_folder
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.testbeds import doctor, requirements, selftest
from harness.testbeds.doctor import judge, machine_findings, require
from harness.testbeds.lab import boot
from harness.testbeds.lab.kernels import ciphers, kernel
from harness.testbeds.lab.kernels import source as sources
from harness.testbeds.participants import Participant, machines
from harness.testbeds.requirements import Asked, asked_for, parse_facts
from harness.testbeds.selftest import SelftestOutcome
from tests.unit.agents import agent_source
from tests.unit.fakes import World
from tests.unit.hosts.test_remote import SSH, UNSHARE, script

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
NEEDS = {"", "iscsi", "nbd", "ipsec", *doctor.OPTIONAL, "several"}
ROLES = {"lab", "target", "initiator", "controller", "make"}


def said(text: str, machine: Participant = NAS, sudo: str = "") -> list[str]:
    """The findings that a look's output gives, each on a line as people see it."""
    facts = parse_facts(text)
    assert facts is not None
    return [
        f"{finding.state}: {finding.text}" + f" -> {finding.mend}" * bool(finding.mend)
        for finding in judge(machine, facts, sudo)
    ]


def only_problem(lines: str, machine: Participant = NAS, base: str = FINE) -> str:
    (problem,) = (line for line in said(base + lines, machine) if line.startswith("missing: "))
    return problem.removeprefix("missing: ")


# packages.txt


def test_every_line_of_the_list_says_who_needs_the_package_and_when() -> None:
    listed = requirements.packages()
    text = (data_folder() / "packages.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(listed) == len(lines) == len({package.name for package in listed})
    for package in listed:
        assert package.needed_by and package.needed_by.keys() <= ROLES, package
        assert set(package.needed_by.values()) <= NEEDS, package
        assert package.purpose, package
    for need in NEEDS - {""}:
        assert f"{need} (" in text, "it is explained at its head"


def test_each_role_has_the_programs_that_it_is_known_to_start() -> None:
    known = {
        "target": {"program:tcpdump", "program:ip", "program:modprobe", "program:fio"},
        "initiator": {"program:iscsiadm", "program:tcpdump", "program:ip", "program:modprobe", "program:fio"},
    }
    for role, words in known.items():
        assert words <= {package.word for package in requirements.wanted(role, {"", "iscsi"})}
        assert "program:/usr/sbin/charon-systemd" in {p.word for p in requirements.wanted(role, {"ipsec"})}
    assert not {p.name for p in requirements.packages() if "sshd" in p.shown_by}, "it would open a service"


# What is said


def test_a_machine_that_has_everything() -> None:
    assert said(FINE) == [
        "ok: ssh://root@nas: reached as root; Debian GNU/Linux 12 (bookworm), Linux 6.1.0-28-amd64",
        f"ok: all {len(requirements.wanted('target', {'', 'ipsec', 'iscsi'}))} packages are installed",
        "ok: its kernel has all modules",
        "ok: 1 GiB are free in /var/tmp, for --backing file",
        "ok: interfaces: eth0 192.168.1.10/24, wlan0 192.168.1.11/24 (WiFi)",
    ]
    assert not [line for line in said(FINE, LAPTOP) if not line.startswith("ok: ")]


MISSING = "absent program:tcpdump\nabsent program:/usr/sbin/charon-systemd\n"


@pytest.mark.parametrize(
    ("family", "command"),
    [
        (
            "debian",
            "-> apt-get update && apt-get install --no-install-recommends charon-systemd tcpdump",
        ),
        ("raspbian debian", "apt-get install --no-install-recommends charon-systemd"),
        ("fedora", "dnf install strongswan tcpdump"),
        ("rocky rhel centos fedora", "dnf install strongswan tcpdump"),
        ("arch", "pacman -S strongswan tcpdump"),
        ("opensuse-leap suse opensuse", "zypper install strongswan tcpdump"),
        (
            "alpine",
            "install what provides /usr/sbin/charon-systemd, tcpdump",
        ),
    ],
)
def test_all_that_is_missing_is_named_at_once_with_the_distribution_s_command(
    family: str, command: str
) -> None:
    problem = only_problem(MISSING, base=FINE.replace("family debian", f"family {family}"))
    assert problem.startswith("packages are missing: charon-systemd (")
    assert command in problem
    assert "sudo" not in problem


def test_one_command_installs_all_that_a_bare_machine_lacks() -> None:
    bare = FINE + "".join(
        f"absent {package.word}\n" for package in requirements.packages() if "initiator" in package.needed_by
    )
    lines = said(bare, LAPTOP)
    (command,) = (line.partition(" -> ")[2] for line in lines if " -> " in line)
    named = set(command.removeprefix("apt-get update && apt-get install --no-install-recommends ").split())
    assert named == {p.name for p in requirements.packages() if "initiator" in p.needed_by}
    (note,) = (line for line in lines if line.startswith("note: "))
    assert "without iputils-ping, iperf3, hping3, gcc, libc6-dev, some probes are skipped" in note
    assert note.endswith("; the command above also installs them")
    assert "the lab" not in "".join(lines), "it is a real machine"


def test_a_machine_without_python() -> None:
    problem = only_problem("absent program:/usr/bin/python3\n", base=FINE.replace("python 3.11\n", ""))
    assert problem.endswith("apt-get install --no-install-recommends python3")


def test_what_is_asked_of_debian_alone_counts_there_alone() -> None:
    missing = "absent package:libstrongswan-standard-plugins\n"
    assert "libstrongswan-standard-plugins" in only_problem(missing)
    elsewhere = said(FINE.replace("family debian", "family fedora") + missing)
    assert all(line.startswith("ok: ") for line in elsewhere)


def test_who_is_not_root_gets_the_command_with_sudo() -> None:
    base = FINE.replace("login root", "login joe")
    assert "reached as joe, who may use sudo;" in said(base)[0]
    assert "-> sudo apt-get update && sudo apt-get install" in only_problem(MISSING, base=base)


def test_who_may_not_become_root_is_reported_so_and_all_else_as_well() -> None:
    text = FINE.replace("login root\nuid 0", "login joe\nuid 1000") + MISSING
    lines = said(text, sudo="Banner of the machine\nsudo: a password is required\n")
    problems = [line for line in lines if line.startswith("missing: ")]
    assert len(problems) == 2
    assert "expected root's rights: sudo: a password is required -> log in as root, or" in problems[0]


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({}, "use a kernel that has these modules"),
        ({"family debian": "family ubuntu debian"}, "apt-get install linux-modules-extra-6.1.0-28-amd64"),
        ({"6.1.0-28-amd64": "6.1.0-28-cloud-amd64"}, "apt-get install linux-image-amd64, then boot"),
        ({"family debian": "family debian\nmodules absent"}, "reboot if the kernel was updated"),
    ],
)
def test_missing_modules(changes: dict[str, str], advice: str) -> None:
    base = FINE
    for old, new in changes.items():
        base = base.replace(old, new)
    problem = only_problem("absent module:target_core_mod\nabsent module:esp4\n", base=base)
    assert "lacks target_core_mod, esp4 -> " in problem
    assert advice in problem


def test_without_modprobe_nothing_is_said_of_modules() -> None:
    assert not [line for line in said(FINE + "absent program:modprobe\n") if "its kernel" in line]


@pytest.mark.parametrize(
    ("lines", "who"),
    [
        ("listener 812 x y\n", "x y (process 812)"),
        ("listener - \n", "a process"),
        ("listener 7 x\nlistener 8 z\n", "x (process 7), z (process 8)"),
    ],
)
def test_who_listens_on_the_port_of_the_runs_own_ike_daemon(lines: str, who: str) -> None:
    assert only_problem(lines) == (
        f"{who} uses UDP port 3264, which the run's own IKE daemon needs"
        " -> move it to another port, or leave that protection out"
    )


@pytest.mark.parametrize(
    ("lines", "machine", "note"),
    [
        (
            "absent program:ethtool\n",
            NAS,
            "without ethtool, the record says less -> apt-get update && apt-get install",
        ),
        (
            "absent program:ethtool\nabsent program:iw\n",
            LAPTOP,
            " install --no-install-recommends iw ethtool",
        ),
        (
            "absent program:iw\n",
            LAPTOP,
            "--link wifi=IFACE is not possible -> apt-get update && apt-get install",
        ),
        ("absent program:pki\n", LAPTOP, "--auth cert is not possible"),
        ("journal agent-target-17.jsonl\n", NAS, "-> harness clean with the same --target"),
        ("busy target run-7\nlistener 9 charon-systemd\n", NAS, "in use by run run-7 (target) -> wait"),
    ],
)
def test_what_is_no_failure_is_a_note(lines: str, machine: Participant, note: str) -> None:
    found = said(FINE + lines, machine)
    assert not [line for line in found if line.startswith("missing: ")]
    (line,) = (line for line in found if line.startswith("note: "))
    assert note in line


@pytest.mark.parametrize(
    "lines",
    [
        "journal agent-initiator-17.jsonl\n",
        "busy target r\njournal agent-target-1.jsonl\n",
    ],
)
def test_what_does_not_concern_the_role_is_not_said(lines: str) -> None:
    assert not [line for line in said(FINE + lines) if "left" in line]


def test_an_old_python_and_a_container() -> None:
    assert "3.9 or later" in only_problem("", base=FINE.replace("python 3.11", "python 3.7"))
    problem = only_problem("unshare unshare: unshare failed: Operation not permitted\n")
    assert "no namespaces can be made" in problem and "container" in problem


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", ""),
        ("only-ipv4 eth0\nonly-ipv4 veth1a2b\n", "so no --ip 6 over eth0"),  # nobody measures over veth1a2b
        ("only-ipv4 veth1a2b\n", ""),
        ("no-ipv6 kernel\n", "without IPv6 in the kernel"),
    ],
)
def test_ipv6_that_is_not_there_is_a_note(lines: str, expected: str) -> None:
    (*_, last) = (line for line in said(FINE + lines) if "interfaces: " in line or "--ip 6" in line)
    assert (expected in last and last.startswith("note: ")) if expected else "interfaces: " in last, last


def test_a_machine_cannot_drive_the_terminal() -> None:
    lines = said(FINE.replace("Debian", "\x1b[31mDebian") + "interface \x1b[2J 10.0.0.1/8\n")
    assert all(line.isprintable() for line in lines)


def test_what_is_no_answer() -> None:
    assert parse_facts("This account is currently not available.\n") is None


# What a run demands


def host_that_says(text: str) -> World:
    return World(answers=[(("sh", "-s"), (0, text, ""))])


def wired(*protections: str, carried_by: tuple[str, ...] = ("iscsi",)) -> Plan:
    return make_plan(RunRequest(links=("wired",), ipsec=protections or ("off",), transports=carried_by))


def test_a_run_demands_what_its_columns_need() -> None:
    charon = FINE + "absent program:/usr/sbin/charon-systemd\nlistener 812 pluto\nabsent module:esp4\n"
    require(host_that_says(charon).host("target"), "target", wired())
    with pytest.raises(RequirementError) as refused:
        require(host_that_says(charon).host("target"), "target", wired("aes128gcm16"))
    for word in ("the target is not ready", "charon-systemd (IPsec", "lacks esp4", "pluto (process 812)"):
        assert word in refused.value.message
    assert refused.value.hint is not None
    assert refused.value.hint.startswith(
        "there: apt-get update && apt-get install --no-install-recommends charon-systemd; "
    )
    assert "move it to another port" in refused.value.hint


def test_a_run_does_not_demand_what_is_only_noted() -> None:
    notes = (
        "absent program:iw\nabsent program:ethtool\nabsent program:pki\nabsent module:target_core_iblock\n"
    )
    require(host_that_says(FINE + notes).host("initiator"), "initiator", wired("aes128gcm16"))


def test_a_run_is_held_to_what_its_transports_need() -> None:
    """The kernel may lack one of several; packages are all asked for."""
    no_lio = host_that_says(FINE + "absent program:nbdkit\nabsent module:iscsi_target_mod\n").host("target")
    require(no_lio, "target", wired(carried_by=("nvme-tcp",)))
    with pytest.raises(RequirementError, match=r"packages are missing: nbdkit "):
        require(no_lio, "target", wired(carried_by=("nbd",)))
    with pytest.raises(RequirementError, match=r"lacks iscsi_target_mod"):
        require(no_lio, "target", wired(carried_by=("iscsi",)))
    no_nvme = host_that_says(FINE + "absent module:nvmet_tcp\n").host("target")
    require(
        no_nvme,
        "target",
        wired(
            carried_by=(
                "iscsi",
                "nvme-tcp",
            )
        ),
    )
    with pytest.raises(RequirementError, match="lacks nvmet_tcp"):
        require(no_nvme, "target", wired(carried_by=("nvme-tcp",)))


def test_a_kernel_without_nvme_tcp_is_a_note() -> None:
    (note,) = [line for line in said(FINE + "absent module:nvmet_tcp\n") if not line.startswith("ok: ")]
    assert note == (
        "note: not needed by every run: without the kernel modules nvmet_tcp, --transport nvme-tcp is not "
        "possible"
    )


def judged(text: str, asked: Asked) -> list[str]:
    facts = parse_facts(text)
    assert facts is not None
    return [f"{found.state}: {found.text}" for found in judge(NAS, facts, "", asked) if found.state != "ok"]


def test_what_is_asked_for_has_to_be_there_and_nothing_else() -> None:
    """As the options of a run say it; by default iSCSI and IPsec."""
    lacks = "absent module:nvmet_tcp\nabsent module:wireguard\n"
    (note,) = judged(FINE + lacks, asked_for([], []))
    assert note.startswith("note: ") and "--transport nvme-tcp is not possible" in note
    assert judged(FINE + lacks, asked_for(["nvme-tcp"], ["off", "wireguard"])) == [
        "missing: its kernel 6.1.0-28-amd64 lacks nvmet_tcp, wireguard"
    ]
    no_nbd = "absent program:nbdkit\nabsent program:/usr/sbin/charon-systemd\nlistener 812 pluto\n"
    assert judged(FINE + no_nbd, asked_for(["nvme-tcp"], ["wireguard"])) == []
    assert len(judged(FINE + no_nbd, asked_for(["nvme-tcp", "nbd"], ["both"]))) == 2


@pytest.mark.parametrize(
    ("carried_by", "protected_by", "named"),
    [(["smb"], [], "smb"), ([], ["wiregard"], "wiregard"), ([], ["+"], "''")],
)
def test_what_nobody_can_ask_for_is_refused(
    carried_by: list[str], protected_by: list[str], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        asked_for(carried_by, protected_by)


# The look itself, on this machine, some of whose programs are scripts


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs found before the machine's own, where all is well and root is there."""
    folder = tmp_path / "tools"
    folder.mkdir()
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
        script(folder, name, text)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def of(where: str, found: Iterator[doctor.Finding] | list[doctor.Finding]) -> list[str]:
    return [f"{f.state}: {f.text} -> {f.mend}" for f in found if f.where == where]


def test_a_look_at_a_machine(tools: Path) -> None:
    del tools
    found = list(machine_findings(machines("ssh://nas", ["local", "ssh://b"])))
    assert {finding.where for finding in found} >= {"target", "initiator", "initiator2"}
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
    script(tools, "id", 'test "$1" = -u && echo 1000 || echo joe')
    script(tools, "sudo", 'test "$1" = -n || exit 9; echo "sudo: a password is required" >&2; exit 1')
    lines = "\n".join(of("target", machine_findings(machines("ssh://nas", []))))
    assert "reached as joe;" in lines and "NOPASSWD" in lines and "lacks esp4" in lines
    script(tools, "sudo", 'test "$1" = -n || exit 9; shift; IS_ROOT=1 exec "$@"')
    script(tools, "id", 'if test "$1" != -u; then echo joe; else test "$IS_ROOT" && echo 0 || echo 1000; fi')
    lines = "\n".join(of("target", machine_findings(machines("ssh://nas", []))))
    assert "reached as joe, who may use sudo;" in lines and "root's rights" not in lines


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("Host key verification failed.", "compare the fingerprint"),
        ("root@nas: Permission denied (publickey).", "ssh-add"),
        ("ssh: Could not resolve hostname nas: Name or service not known", "check the name"),
    ],
)
def test_a_machine_out_of_reach_does_not_hide_the_others(tools: Path, words: str, hint: str) -> None:
    script(tools, "ssh", f"echo '{words}' >&2; exit 255")
    found = list(machine_findings(machines("ssh://nas", ["local"])))
    (line,) = of("target", found)
    assert line.startswith(f"missing: the target could not be reached: {words}") and hint in line
    assert "reached as root" in of("initiator", found)[0]


def test_a_login_shell_that_refuses(tools: Path) -> None:
    script(tools, "ssh", "echo This account is currently not available.; exit 1")
    (line,) = of("target", machine_findings(machines("ssh://nas", [])))
    assert "This account is currently not available." in line


def test_here_ssh_is_needed_for_other_machines_alone(monkeypatch: pytest.MonkeyPatch, tools: Path) -> None:
    del tools
    look_on = requirements.look_on
    words: list[str] = []

    def look(host: Host, asked: list[str]) -> requirements.MachineFacts:
        words.extend(asked)
        facts = look_on(host, asked)
        return parse_facts(FINE + "".join(f"absent {word}\n" for word in asked)) or facts

    monkeypatch.setattr(doctor, "look_on", look)
    assert not of(doctor.CONTROLLER, machine_findings(machines("local", ["local"])))
    (line,) = of(doctor.CONTROLLER, machine_findings(machines("ssh://nas", ["local"])))
    assert "openssh-client" in line and "fio" not in line
    (line,) = of(doctor.CONTROLLER, machine_findings(machines("local", ["local", "local"])))
    assert "fio" in line and "openssh-client" not in line


def test_addresses_are_checked_before_anything_is_reached() -> None:
    with pytest.raises(UsageError, match="initiator as ssh://"):
        machines("ssh://nas", ["nas"])


# The commands


@pytest.fixture
def state(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where agents keep their journals; they are started as a run does."""
    folder = tmp_path / "state"
    folder.mkdir()
    source = agent_source(folder)
    monkeypatch.setattr(programs, "source", lambda _room, name: {"agent": source}[name])
    # Where root has made runs before, others may not even look.
    monkeypatch.setattr(remote, "PRIVATE", tmp_path / "private")
    for name, text in (("unshare", UNSHARE), ("mount", ""), ("umount", "")):
        script(tools, name, text)
    return folder


def leave(state: Path, role: str, argv: list[str]) -> Path:
    """A journal as a killed agent leaves it."""
    journal = state / f"agent-{role}-17.jsonl"
    entry = {"what": "NetworkNamespace own", "steps": [{"argv": argv}]}
    journal.write_text(json.dumps({"id": 1, "entry": entry}) + "\n", encoding="utf-8")
    return journal


def command(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def test_clean_removes_what_killed_runs_left_on_the_machines(state: Path, tmp_path: Path) -> None:
    mine = tmp_path / "left"
    mine.touch()
    journal = leave(state, "target", ["rm", str(mine)])
    status, text = command("clean", "--target", "ssh://nas")
    assert status == 0, text
    assert "removed, left by an earlier run: target: NetworkNamespace own" in text
    assert "initiator: nothing was left behind" in text
    assert not mine.exists() and not journal.exists()
    assert command("clean", "--target", "ssh://nas", "--initiator", "ssh://a")[0] == 0


def test_clean_says_what_it_could_not_remove(state: Path) -> None:
    journal = leave(state, "initiator", ["false"])
    status, text = command("clean", "--initiator", "local", "--initiator", "ssh://b")
    assert status == 1, text
    assert "could not be removed: initiator: NetworkNamespace own" in text
    assert journal.exists()


def test_clean_of_a_machine_out_of_reach(state: Path, tools: Path) -> None:
    leave(state, "initiator", ["true"])
    script(tools, "ssh", "echo 'ssh: connect to host nas port 22: No route to host' >&2; exit 255")
    status, text = command("clean", "--target", "ssh://nas")
    assert status == 2, text
    assert "the target could not be reached: ssh: connect to host nas port 22" in text
    assert "hint: is the machine on" in text
    assert "initiator: NetworkNamespace own" in text, "the others are cleaned all the same"


@pytest.fixture
def trying(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[SelftestOutcome]]:
    """What comes of the trial of each role that is tried: well, unless a test says otherwise."""
    outcomes: dict[str, list[SelftestOutcome]] = {}

    def of(_host: Host, role: str, _folder: Path, _asked: Asked) -> list[SelftestOutcome]:
        return outcomes.setdefault(role, [SelftestOutcome(what="a session"), SelftestOutcome(what="ESP")])

    monkeypatch.setattr(selftest, "of", of)
    monkeypatch.setattr(remote, "connect", lambda *_, **words: contextlib.nullcontext(words["name"]))
    return outcomes


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Each machine says this."""
    facts = parse_facts(text)
    monkeypatch.setattr(doctor, "look_at", lambda *_: (facts, ""))


def test_the_command_ends_with_2_unless_all_is_there(
    tools: Path, trying: dict[str, list[SelftestOutcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    del tools
    status, text = command("doctor", "--target", "ssh://nas")
    assert status == 2
    assert "missing target    " in text and "fix: " in text and "the machines are not ready" in text
    assert not trying, "what lacks something is not tried"
    answering(monkeypatch, FINE)
    status, text = command("doctor", "--target", "ssh://nas")
    assert status == 0, text
    assert text.count("tried, and undone again: a session, ESP\n") == 2
    assert text.endswith("the machines are ready: harness run\n")


def test_a_machine_is_not_ready_when_what_was_tried_on_it_failed(
    trying: dict[str, list[SelftestOutcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, FINE)
    error = RequirementError("it was refused", hint="ask again")
    trying["initiator"] = [SelftestOutcome(what="a session", error=error), SelftestOutcome(what="ESP")]
    status, text = command("doctor", "--target", "ssh://nas")
    assert status == 2, text
    assert "missing initiator a session was tried and failed: it was refused\n" in text
    assert "fix: ask again\n" in text
    assert "initiator tried, and undone again: ESP\n" in text
    assert text.endswith("the machines are not ready\n")


@pytest.mark.parametrize("line", ["busy target run-7\n", "journal agent-target-17.jsonl\n"])
def test_a_machine_in_use_or_with_leftovers_is_not_tried(
    trying: dict[str, list[SelftestOutcome]], monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    answering(monkeypatch, FINE + line)
    status, text = command("doctor", "--target", "ssh://nas", "--initiator", "local")
    assert status == 0, text
    untried = ["target"] if "journal" in line else ["initiator", "target"]
    assert text.endswith(f"nothing is missing, but doctor could not try the {' and the '.join(untried)}\n")
    assert "target" not in trying and "ready" not in text


def test_the_list_is_what_gets_installed(tmp_path: Path) -> None:
    """tools/install-packages.sh takes the first word of each line, whatever stands behind it."""
    script(
        tmp_path, "dpkg-query", 'for last; do :; done; echo "$last" >> "$0.asked"; echo install ok installed'
    )
    project = Path(__file__).resolve().parents[3]
    subprocess.run(
        ["sh", "tools/install-packages.sh", "packages.txt"],
        cwd=project,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
    )
    asked = (tmp_path / "dpkg-query.asked").read_text(encoding="utf-8").split()
    assert asked == [package.name for package in requirements.packages()]


def test_as_installed_nothing_of_make_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = "".join(f"absent {package.word}\n" for package in requirements.packages())
    facts = requirements.parse_facts(f"{requirements.MARK}family debian\n{absent}")
    assert facts is not None
    monkeypatch.setattr(doctor, "_local_facts", lambda: facts)
    assert "shellcheck" in [package.name for package in doctor.missing_packages()]
    monkeypatch.setattr(doctor, "data_folder", lambda: tmp_path)
    names = [package.name for package in doctor.missing_packages()]
    assert "fio" in names and "shellcheck" not in names


# This machine


def here(monkeypatch: pytest.MonkeyPatch, text: str, **findings: object) -> list[str]:
    """What is said of a machine by what a look at it prints; nothing of this one is looked at."""
    facts = parse_facts(f"{requirements.MARK}uid 1000\n{text}")
    monkeypatch.setattr(doctor, "_local_facts", lambda: facts)
    monkeypatch.setattr(doctor, "_lab_findings", lambda: iter(()))
    monkeypatch.setattr(sources, "absent_packages", list)
    monkeypatch.setattr(packages, "missing", lambda _name: [])
    recipe = kernel.Recipe("6.1.159 sha256:0", "cc", {})
    monkeypatch.setattr(kernel, "recipe", lambda: recipe)
    monkeypatch.setattr(kernel, "cached", lambda _wanted: findings.get("own"))
    monkeypatch.setattr(kernel, "usual", lambda: LabKernel.OWN if findings.get("own") else LabKernel.DEBIAN)
    monkeypatch.setattr(ciphers, "are_possible", lambda: findings.get("possible", True))
    monkeypatch.setattr(ciphers, "cached", lambda: findings.get("ciphers"))
    return [
        f"{finding.state}: {finding.where}: {finding.text}" + f" -> {finding.mend}" * bool(finding.mend)
        for finding in doctor.findings()
    ]


BOOKWORM = "distribution Debian GNU/Linux 12 (bookworm)\nfamily debian\nrelease 12 bookworm\n"
FEDORA = "distribution Fedora Linux 43\nfamily fedora\nrelease 43 \n"
NO_KERNEL = "absent program:linux.uml\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BOOKWORM, "ok: here: Debian GNU/Linux 12 (bookworm): the harness was tried on Debian 12"),
        (
            "distribution Debian GNU/Linux 11\nfamily debian\nrelease 11 bullseye\n",
            "note: here: Debian GNU/Linux 11: this release is not among those of Debian that are known, but "
            "the names are",
        ),
        (
            FEDORA,
            "note: here: Fedora Linux 43: what is known of Fedora 43 to 45 are the names of its packages; it "
            "was not tried",
        ),
        (
            "distribution Alpine Linux v3.22\nfamily alpine\nrelease 3.22\n",
            "note: here: Alpine Linux v3.22: it is not known how its packages are called -> add a file to "
            "releases/",
        ),
    ],
)
def test_the_system_is_named_and_what_is_known_of_it(
    monkeypatch: pytest.MonkeyPatch, text: str, line: str
) -> None:
    assert here(monkeypatch, text)[0] == line


def test_where_there_is_no_package_of_a_kernel_the_lab_needs_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = here(monkeypatch, FEDORA + NO_KERNEL)
    (line,) = (line for line in lines if line.startswith("missing: kernel"))
    assert line.startswith(
        "missing: kernel: this system has no package user-mode-linux, so the lab needs a kernel of its own; "
    )
    assert line.endswith(" is not built -> harness kernel build")
    assert not [line for line in lines if "packages are missing" in line], "it is no package to install"
    own = SimpleNamespace(built=SimpleNamespace(release="6.1.159"), folder="/cache")
    lines = here(monkeypatch, FEDORA + NO_KERNEL, own=own)
    assert "ok: kernel: the lab's own kernel 6.1.159 is built: /cache" in lines
    assert not [line for line in lines if line.startswith("missing") and ": host:" not in line]
    (line,) = (line for line in here(monkeypatch, BOOKWORM + NO_KERNEL) if line.startswith("missing: both"))
    assert "packages are missing: user-mode-linux (" in line, "Debian has it"
    lines = here(monkeypatch, BOOKWORM + NO_KERNEL, own=own)
    assert not [line for line in lines if line.startswith("missing: both")], "its own will do"


def test_portable_ciphers_are_a_note_where_better_ones_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(text: str, **findings: object) -> list[str]:
        return [line for line in here(monkeypatch, text, **findings) if "portable" in line]

    (line,) = noted(BOOKWORM)
    assert line.startswith("note: kernel: the processor's ciphers for Debian's kernel are not built")
    assert line.endswith(" -> harness kernel ciphers")
    assert not noted(BOOKWORM, ciphers=boot.Kernel(binary=Path("/linux"), modules=Path("/modules")))
    assert not noted(BOOKWORM, possible=False), "there is nothing better"
    assert not noted(FEDORA + NO_KERNEL), "the own kernel has them"


# The lab, booted


class Booted:
    """What a lab that has ended says; ``writes`` is where its command wrote to its results."""

    def __init__(self, status: int | None, writes: Path | None, *, hangs: bool = False) -> None:
        self.status, self.hangs = status, hangs
        self.process = self
        if writes is not None:
            (writes / "trial").touch()

    def wait(self, timeout: float) -> None:
        if self.hangs:
            raise subprocess.TimeoutExpired("linux", timeout)

    def exit_status(self) -> int | None:
        return self.status

    def last_words(self) -> str:
        return "check_ptrace : expected SIGTRAP"


@pytest.mark.parametrize(
    ("status", "writes", "hangs", "state", "words"),
    [
        (0, True, False, doctor.FindingState.OK, "it boots, and writes to its folder of results"),
        (0, False, False, doctor.FindingState.MISSING, "its command ended with status 0"),
        (1, False, False, doctor.FindingState.MISSING, "its command ended with status 1: check_ptrace"),
        (None, False, False, doctor.FindingState.MISSING, "it ended before its command did: check_ptrace"),
        (None, False, True, doctor.FindingState.MISSING, "it did not boot within 60 s"),
    ],
)
def test_the_lab_is_ready_when_it_has_booted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int | None,
    writes: bool,
    hangs: bool,
    state: doctor.FindingState,
    words: str,
) -> None:
    used: list[Path] = []

    @contextlib.contextmanager
    def booted(command: list[str], *, results: Path, **_: object) -> Iterator[Booted]:
        used.append(results)
        assert command[:2] == ["sh", "-c"]
        yield Booted(status, results if writes else None, hangs=hangs)

    monkeypatch.setattr(boot, "booted", booted)
    found = doctor.try_lab(tmp_path)
    assert (found.state, found.tried, found.where) == (state, True, "lab") and words in found.text
    assert not used[0].exists() and not list(tmp_path.iterdir())


def test_what_keeps_the_lab_from_booting_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def booted(*_: object, **__: object) -> contextlib.AbstractContextManager[None]:
        raise RequirementError("expected user namespaces, found none", hint="sysctl")

    monkeypatch.setattr(boot, "booted", booted)
    found = doctor.try_lab(tmp_path)
    assert (
        found.state is doctor.FindingState.MISSING
        and "user namespaces" in found.text
        and found.mend == "sysctl"
    )
