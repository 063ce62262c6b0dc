"""Hops over SSH: what is asked of their shell, what becomes of one that is lost, and who is counted once.

ssh(1) is a script here that has a shell carry out its last word, as sshd does.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from harness.hosts import BOOT_ID, ReadableHost
from harness.hosts.runner import Completed, await_condition
from harness.model.errors import CommandFailed, HopLost, RequirementError
from harness.model.probing import Ping
from harness.observe import environment, hops
from harness.observe.counters import CPUINFO, NET_DEV, STAT, Observer
from harness.observe.hops import Hop
from harness.parse.hosts import parse_address
from harness.planning import probe_plan
from harness.planning.plan import make_plan
from harness.planning.request import Kernels, RunRequest
from harness.results.store import RunFolder
from harness.runs import executor
from harness.testbeds import doctor
from tests.unit.fakes import World
from tests.unit.hosts.test_hosts import executable
from tests.unit.parsing import refused

pytestmark = pytest.mark.thorough

ROUTER = parse_address("ssh://admin@router", "hop")
SSH = """\
printf '%s\\n' "$@" > "$(dirname "$0")/ssh.words"
echo "Welcome to the router"
for last; do :; done
exec sh -c "$last"
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs found before the machine's own."""
    folder = tmp_path / "tools"
    folder.mkdir()
    executable(folder / "ssh", SSH)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def hop(tools: Path, tmp_path: Path) -> Iterator[Hop]:
    del tools
    with hops.connect(ROUTER, name="hop", log=tmp_path / "hop.log") as hop:
        yield hop


def refusing(log: Path) -> RequirementError:
    with pytest.raises(RequirementError) as error, hops.connect(ROUTER, name="hop", log=log):
        pytest.fail("it was reached")
    return error.value


def test_it_is_reached_as_who_was_named_and_its_files_come_as_they_are(
    hop: Hop, tools: Path, tmp_path: Path
) -> None:
    assert (hop.name, hop.address, hop.lost) == ("hop", "ssh://admin@router", None)
    words = (tools / "ssh.words").read_text(encoding="utf-8").splitlines()
    assert words[-5:] == ["-l", "admin", "router", "--", "sh"]
    assert "-oBatchMode=yes" in words and "-oStrictHostKeyChecking=yes" in words
    texts = {"plain": "a b\n", "torn": "no newline", "empty": "", "own $(name)'s": "\n\n==> x\n0 1\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [str(tmp_path / name) for name in texts]
    assert hop.read_files([*paths, "/no/such/file"]) == [*texts.values(), ""]
    (tmp_path / "noise").write_bytes(b"\xff\xfe")
    assert hop.read_files([str(tmp_path / "noise")]) == ["\ufffd\ufffd"]


def test_words_reach_a_program_unchanged_and_one_shell_serves_them_all(
    hop: Hop, tools: Path, tmp_path: Path
) -> None:
    (tools / "ssh").unlink()
    for words in ([""], ["it's", "$HOME", "a\nb", "*", "\\", "!x"], ["-n", "--", "ü"]):
        assert hop.run(["printf", r"%s|", *words]).stdout == "".join(f"{word}|" for word in words)
    assert hop.run(["cat"]).stdout == "", "what it reads is not what we write to the shell"
    assert hop.run(["sh", "-c", "exit 3"], check=False).status == 3
    with pytest.raises(CommandFailed, match="`no-such-program` ended with status 127"):
        hop.run(["no-such-program"])
    await_condition(lambda: "no-such-program" in hop.dialogue.said(), deadline_s=60, what="the log")
    # It may be this machine.
    with hops.connect(parse_address("local", "hop"), name="hop", log=tmp_path / "log") as here:
        assert "cpu" in here.read_files([STAT])[0]
    with pytest.raises(HopLost, match=r"the hop \(local\) was lost: it was closed"):
        here.run(["true"])


def test_one_that_cannot_be_reached_is_reported_in_a_sentence(tools: Path, tmp_path: Path) -> None:
    refused_key = "admin@router: Permission denied (publickey)."
    for answer, said, hint in (
        ("echo 'ssh: Could not resolve hostname router' >&2; exit 255", "resolve hostname", "ssh/config"),
        ("echo 'Host key verification failed.' >&2; exit 255", "Host key", "fingerprint"),
        (f"echo '{refused_key}' >&2; exit 255", "Permission denied", "ssh-add"),
        ("echo 'bash: sh: command not found' >&2; exit 127", "command not found", "a hop needs sh, cat"),
        ("echo 'bad command name sh (line 1 column 1)'; exit 0", "the connection ended", "by hand"),
        ("read line; exit 255", "the connection ended", "by hand"),
    ):
        (tmp_path / "log").unlink(missing_ok=True)
        executable(tools / "ssh", answer)
        error = refusing(tmp_path / "log")
        assert error.message.startswith("the hop (ssh://admin@router) could not be reached: ")
        assert said in error.message and hint in (error.hint or ""), answer
    executable(tools / "ssh", SSH)
    executable(tools / "cat", "")
    error = refusing(tmp_path / "without proc")
    assert "/proc/stat and /proc/net/dev cannot be read there" in error.message and error.hint == hops.NEEDS


def test_one_that_hangs_is_given_up_after_a_while(hop: Hop) -> None:
    began = time.monotonic()
    with pytest.raises(HopLost, match="was lost: it did not answer in time"):
        hop.run(["sleep", "60"], timeout_s=0.3)
    with pytest.raises(HopLost, match="it did not answer in time"):
        hop.read_files([STAT])
    assert time.monotonic() - began < 30, "long before the program would have ended"


def test_an_answer_without_end_or_with_a_status_that_is_none_is_a_hop_lost(
    tools: Path, tmp_path: Path
) -> None:
    del tools
    for number, status in enumerate(("endless", "x", "-1", "", "9" * 5000, "\x1b[2J", "1 2")):
        with hops.connect(ROUTER, name="hop", log=tmp_path / str(number)) as hop:
            said = "yes | head -c 10000000" if status == "endless" else 'printf \'\\n%s %s\\n\' "$1" "$2"'
            with pytest.raises(HopLost, match="did not end" if status == "endless" else ".") as error:
                hop.run(["sh", "-c", said, "sh", hop._mark, status])
            assert error.value.message.isprintable() and len(error.value.message) < 300, status


def test_it_is_asked_what_it_is(hop: Hop) -> None:
    facts = environment.describe((), [hop])["hosts"]
    assert isinstance(facts, dict) and "tools" not in facts["hop"]
    assert facts["hop"]["address"] == "ssh://admin@router" and facts["hop"]["cpus"] == os.cpu_count()
    # As if the connection broke.
    os.killpg(hop.dialogue.process.pid, signal.SIGKILL)
    hop.dialogue.process.wait()
    lost = "the hop (ssh://admin@router) was lost: the connection ended"
    facts = {"hop": {"address": "ssh://admin@router", "lost": lost}}
    assert environment.describe((), [hop]) == {"hosts": facts}


def test_doctor_says_whether_it_answers(tools: Path) -> None:
    (well,) = doctor.hop_findings([ROUTER.text])
    assert well.ok and well.where == "hop"
    assert well.text.startswith("ssh://admin@router: reached as ") and "energy: " in well.text, well
    executable(tools / "ssh", "echo 'ssh: connect to host router port 22: Connection refused' >&2; exit 255")
    ill, also = doctor.hop_findings([ROUTER.text, "ssh://router2"])
    assert not ill.ok and ill.mend == "is sshd running there?" and "Connection refused" in ill.text
    assert also.where == "hop2" and not also.ok


class Router(ReadableHost):
    """A hop whose counters go up with each look, and which is lost after ``looks`` of them."""

    def __init__(self, name: str, *, boot: str, place: str = "net:[1]", looks: int = 100) -> None:
        self.name, self.boot, self.place, self.left = name, boot, place, looks
        self.looks = 0

    @property
    def kernel(self) -> object:
        return self

    def run(self, argv: Sequence[str], *, timeout_s: float = 1.0, check: bool = True) -> Completed:
        del timeout_s, check
        said = self.place if argv[0] == "readlink" else ""
        return Completed(argv=tuple(argv), status=0, stdout=said, stderr="")

    def read_files(self, paths: Sequence[str]) -> list[str]:
        return [self._text(path) for path in paths]

    def _text(self, path: str) -> str:
        if path in (STAT, NET_DEV):
            self.left -= 1
            if self.left < 0:
                raise HopLost(f"the {self.name} was lost")
            self.looks += 1
        n = self.looks
        return {
            BOOT_ID: self.boot,
            CPUINFO: "model name : MIPS",
            STAT: f"cpu  {n * 10} 0 {n * 20} {n * 50} 0 0 {n * 20} 0\ncpu0 0 0 {n * 20} 0 0 0 0 0\n",
            NET_DEV: f"lo: {n} {'0 ' * 15}\nidle0: {'7 ' * 16}\n"
            f"eth0: {n * 1000} {n} 0 {n} 0 0 0 0 {n * 500} {n} 0 0 0 0 0 0\n",
        }.get(path, "")


class Booted(World):
    """The hosts of a run, whose kernel has ``boot``."""

    boot = "a"

    def text_of(self, path: str) -> str:
        return {BOOT_ID: self.boot, STAT: "cpu  1 2 3 4\ncpu0 1 2 3 4\n"}.get(path) or super().text_of(path)


def test_a_hop_is_counted_with_all_of_its_interfaces_that_carried_anything() -> None:
    world, router = Booted(), Router("hop", boot="b")
    counted = Observer([world.host("initiator"), world.host("target", "t")], [router]).watch()()
    ends, hop = counted.processors
    assert ends.hosts == ("initiator", "target") and hop.hosts == ("hop",)
    assert (hop.user, hop.system, hop.softirq) == pytest.approx((0.1, 0.2, 0.2))
    assert hop.busiest_core == pytest.approx(1.0) and hop.energy_j is None
    (eth0,) = counted.interfaces
    assert (eth0.host, eth0.interface) == ("hop", "eth0")
    assert eth0.rx_bytes == 2 * eth0.tx_bytes > 0 and eth0.drops > 0
    assert counted.lost_hops == {}
    # Two names of one kernel are counted once.
    routers = [Router("hop", boot="b"), Router("hop2", boot="b"), Router("hop3", boot="b", place="net:[2]")]
    routers.append(Router("hop4", boot="a", place="net:[3]"))
    counted = Observer([Booted().host("initiator")], routers).watch()()
    assert [use.hosts for use in counted.processors] == [("initiator", "hop4"), ("hop", "hop2", "hop3")]
    assert [use.host for use in counted.interfaces] == ["hop", "hop3", "hop4"]
    nameless = [Router("hop", boot=""), Router("hop2", boot="", place="")]
    assert [use.hosts for use in Observer([], nameless).watch()().processors] == [("hop",), ("hop2",)]


def test_a_hop_that_is_lost_costs_its_own_figures() -> None:
    """``looks`` it is there for: at its interfaces, at its processors, and the same again."""
    for looks in range(4):
        reported: list[str] = []
        router = Router("hop", boot="b", looks=looks)
        observer = Observer([Booted().host("initiator")], [router], tell=reported.append)
        counted = observer.watch()()
        assert [use.hosts for use in counted.processors if "hop" not in use.hosts] == [("initiator",)]
        assert (counted.interfaces, counted.lost_hops) == ((), {"hop": "the hop was lost"}), looks
        assert observer.watch()().lost_hops == counted.lost_hops
        assert reported == ["the hop was lost; its counters are n/a from now on"]


REAL = RunRequest(target="ssh://root@server", links=("wired=eth0",), ipsec=("off",))


def test_hops_are_planned_as_they_were_named_and_refused_where_they_cannot_be() -> None:
    names = ("ssh://me@gateway", "ssh://switch:2222", "local", "snmp://switch/gi1,gi2")
    assert make_plan(msgspec.structs.replace(REAL, hops=names)).hops == names
    on_host = RunRequest(testbed="host", links=("wired",), ipsec=("off",), hops=names)
    assert make_plan(on_host).hops == names
    probing = probe_plan.make_plan(msgspec.structs.replace(REAL, hops=names), [Ping()], "probes")
    assert probing.hops == names
    assert hops.names(3) == ["hop", "hop2", "hop3"] and hops.names(0) == []
    for request, named, message in (
        (RunRequest(), ["ssh://gw"], "--hop 'ssh://gw' needs real machines, but the testbed is the lab"),
        (RunRequest(kernels=Kernels.PER_HOST), ["ssh://gw"], "or have nothing between their kernels"),
        (REAL, ["ssh://gw", "ssh://gw"], "expected up to 16 different hops, found "),
        (REAL, [f"ssh://gw{n}" for n in range(17)], "expected up to 16 different hops, found "),
        (REAL, ["gw"], "expected hop as ssh://[USER@]HOST[:PORT] or local, found gw"),
        (REAL, ["ssh://-oProxyCommand=x"], "expected hop as ssh://"),
    ):
        refusal = refused(make_plan, msgspec.structs.replace(request, hops=tuple(named)))
        assert message in refusal.message, named


def test_hops_are_reached_before_anything_is_brought_up(tools: Path, tmp_path: Path) -> None:
    asked = RunRequest(testbed="host", links=("wired",), ipsec=("off",), hops=("local", "ssh://admin@router"))
    made, folder = make_plan(asked), RunFolder(tmp_path)
    with executor.hosts(made, folder, lambda _event: None) as taking_part:
        assert [hop.address for hop in taking_part.hops] == list(asked.hops)
        assert [host.name for host in taking_part.all] == ["initiator", "target"]
        (use,) = taking_part.observer(lambda _event: None, energy=False).watch()().processors
        assert use.hosts == ("initiator", "target", "hop", "hop2"), "all are this machine"
    assert [hop.lost for hop in taking_part.hops] == ["it was closed"] * 2
    assert (tmp_path / "hop2.log").exists()
    executable(tools / "ssh", "echo 'ssh: connect to host router port 22: No route to host' >&2; exit 255")
    with (
        pytest.raises(RequirementError, match=r"the hop2 \(ssh://admin@router\) could not be reached"),
        executor.hosts(made, folder, lambda _event: None),
    ):
        pytest.fail("it was reached")
