"""Paths through PPPoE: the session, how its client is proved, and that nothing of it is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.hosts.journal import Journal
from harness.hosts.packages import Package
from harness.model.errors import RequirementError, UsageError
from harness.network import links, paths
from harness.network.links import Folders
from harness.network.paths.pppoe import kind
from harness.parse.profiles import data_folder, load_link
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import ipsec
from harness.results.store import RunFolder
from harness.runs import modules
from tests.unit.fakes import Failure, World
from tests.unit.fakes.answers import NO
from tests.unit.network.paths.building import assert_nothing_is_left, built, fails, lines_of

PAP = """\
rcvd [LCP ConfReq id=0x1 <mru 1492> <auth pap> <magic 0x5eedb0b5>]
sent [LCP ConfAck id=0x1 <mru 1492> <auth pap> <magic 0x5eedb0b5>]
sent [PAP AuthReq id=0x1 user="client-3" password=<hidden>]
"""
PAP_BELIEVED = f'{PAP}rcvd [PAP AuthAck id=0x1 "Login ok"]\nPAP authentication succeeded\n'
PAP_REFUSED = f'{PAP}rcvd [PAP AuthNak id=0x1 "Login incorrect"]\nPAP authentication failed\n'
CHAP_BELIEVED = """\
sent [LCP ConfAck id=0x1 <mru 1492> <auth chap MD5> <magic 0x5eedb0b5>]
rcvd [CHAP Challenge id=0x6c <c0ffee>, name = "concentrator"]
CHAP authentication succeeded
"""


def session(place: Path, log: str = CHAP_BELIEVED, **more: Any) -> World:
    """Discovery is heard, the session has its addresses, and its client has logged that."""
    addresses = (0, "2: ppp0 inet 198.18.3.5 peer 198.18.3.6/32 scope global ppp0", "")
    world = World(answers=[(("ip", "-o", "-4"), addresses)], **more)
    world.secret_files["/proc/net/packet"] = "0000 3 3 8863 2 1 0 0 42\n"
    (place / "pppd-client.log").write_text(log, encoding="utf-8")
    return world


@pytest.mark.parametrize("failure", [Failure.STATUS, Failure.HANG])
@pytest.mark.parametrize(("spec", "log"), [("pppoe", CHAP_BELIEVED), ("pppoe:pap", PAP_BELIEVED)])
def test_nothing_is_left_wherever_it_breaks(spec: str, log: str, failure: Failure, tmp_path: Path) -> None:
    assert_nothing_is_left(spec, failure, tmp_path, lambda place, **more: session(place, log, **more))


def test_the_clients_log_tells_how_it_was_proved() -> None:
    found = {
        PAP_BELIEVED: ("pap", True),
        PAP_REFUSED: ("pap", False),
        CHAP_BELIEVED: ("chap MD5", True),
        PAP: ("pap", None),
        # The last session counts, and words of another protocol do not.
        PAP_BELIEVED + CHAP_BELIEVED: ("chap MD5", True),
        CHAP_BELIEVED + PAP_REFUSED: ("pap", False),
        CHAP_BELIEVED + PAP: ("pap", None),
        f"{PAP}CHAP authentication succeeded\n": ("pap", None),
        "Timeout waiting for PADO packets\n": (None, None),
        "sent [LCP ConfAck id=0x1 <mru 1492>]\nPAP authentication succeeded\n": (None, None),
        "": (None, None),
    }
    assert {log: kind.authentication(log) for log in found} == found


def test_the_client_is_proved_as_asked_and_its_secret_is_in_no_command(tmp_path: Path) -> None:
    secrets = set()
    for spec, agreed in (("pppoe", "chap MD5"), ("pppoe:chap", "chap MD5"), ("pppoe:pap", "pap")):
        place, way = tmp_path / spec, agreed.split()[0]
        place.mkdir()
        world = session(place, PAP_BELIEVED if way == "pap" else CHAP_BELIEVED)
        with built(spec, world, place) as path:
            assert links.describe(path)["pppoe_authentication"] == agreed
            (file,) = (name for name in world.secret_files if name.endswith("-secrets"))
            secret = world.secret_files[file].split('"')[1]
        assert file == f"/etc/ppp/{way}-secrets" and secret not in str(world.commands)
        assert f"\nrequire-{way}\n" in world.secret_files[str(place / "private" / "options")]
        secrets.add(secret)
    assert len(secrets) == 3


def test_a_session_that_is_refused_or_proved_otherwise_is_none(tmp_path: Path) -> None:
    for spec, said_there in (("pppoe:pap", CHAP_BELIEVED), ("pppoe", PAP_BELIEVED), ("pppoe", "")):
        expected = "expected the PPPoE client to authenticate by"
        assert expected in fails(spec, session(tmp_path, said_there), tmp_path)
    # What both ends said is reported.
    (tmp_path / "pppd-concentrator.log").write_text("peer refused\n")
    world = session(tmp_path, "CHAP authentication failed\n")
    world.answers.insert(0, (("ip", "-o", "-4"), NO))
    reason = fails("pppoe", world, tmp_path)
    assert all(words in reason for words in ("within 20 s", "CHAP authentication failed", "peer refused"))


def test_who_proves_itself_is_part_of_the_links_name() -> None:
    assert (load_link("pppoe:pap:jumbo").name, load_link("pppoe:chap").name) == ("pppoe-pap-mtu9000", "pppoe")
    assert load_link("pppoe:pap").title.endswith(", PAP")
    for spec in ("pppoe:pap:chap", "pppoe:mschap", "routed:pap", "wired:pap"):
        with pytest.raises(UsageError, match="expected each of"):
            load_link(spec)


def test_a_session_takes_its_header_from_the_mtu(tmp_path: Path) -> None:
    for spec, mtu in (("pppoe", 1492), ("pppoe:jumbo", 1492), ("pppoe:mtu=1400", 1392)):
        (client,) = lines_of(spec, session(tmp_path), tmp_path, "pppoe-client")
        (call,) = [line for line in client if line.startswith("daemon ") and "rp-pppoe.so" in line]
        assert call.endswith(f"mtu {mtu} mru {mtu}")
        assert any("TCPMSS --clamp-mss-to-pmtu" in line for line in client)


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Package, "installed", property(lambda package: package.name != "pppoe"))
    host = World().host("initiator")
    place = links.LinkPlace(Journal(tmp_path / "j"), host, load_link("pppoe"), tag="beef", index=3)
    up = paths.bring_up(place, Folders(private=tmp_path, logs=tmp_path))
    with pytest.raises(RequirementError) as error, up:
        pytest.fail("it came up")
    assert error.value.message == "pppoe needs packages that are missing: pppoe"
    assert (error.value.hint or "").endswith("apt-get install --no-install-recommends pppoe")
    assert not host.world.commands


def test_a_run_takes_the_modules_and_a_folder_for_the_secrets_and_comes_back(tmp_path: Path) -> None:
    plan = make_plan(RunRequest(links=("wired", "pppoe"), ipsec=("both",)))
    both = {*links.MODULES, *ipsec.MODULES, *kind.MODULES}
    assert [set(wanted) for wanted in modules.of(plan).values()] == [both, both]
    assert paths.private_folders(plan.links.values()) == (str(kind.CONFIGURATION),)
    folder = RunFolder(tmp_path)
    folder.save_plan(plan)
    assert folder.load_plan() == plan


def test_only_such_links_have_modifiers_and_counts_of_their_own(tmp_path: Path) -> None:
    profile = load_link("pppoe:unshaped")
    assert (profile.name, profile.title) == ("pppoe-unshaped", "PPPoE over Gigabit Ethernet, unshaped")
    assert profile.hops is not None and profile.hops.count == 2
    with pytest.raises(UsageError, match="found '2'"):
        load_link("pppoe:2")
    text = (data_folder() / "profiles/links/pppoe.toml").read_text(encoding="utf-8")
    file = tmp_path / "mine.toml"
    for old, new, said in (
        ("count = 2\nleast = 2\nmost = 2", "count = 1\nleast = 1\nmost = 1", "2 <= least"),
        ('kind = "pppoe"', 'kind = "router"\nauth = "pap"', "only the kind pppoe has auth"),
    ):
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(UsageError, match=said):
            load_link(str(file))
