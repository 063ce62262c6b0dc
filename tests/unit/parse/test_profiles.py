"""Links and proposals: what ships loads, what a user writes is checked, what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Duplex
from harness.model.units import check_name
from harness.parse.profiles import data_folder, expand_ipsec, load_link, load_proposal, search_folders
from tests.unit.parsing import has, listed, refused

LINKS = sorted(file.stem for file in (data_folder() / "profiles" / "links").glob("*.toml"))
PROPOSALS = sorted(file.stem for file in (data_folder() / "ipsec").glob("*.toml"))
GOOD = 'title = "T"\nemulated = true\n'


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and configuration: profiles of whoever runs the tests must not matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def written(file: Path, text: str = GOOD) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file.parent


def refusal(folder: Path, content: str | bytes) -> str:
    """What is said of a link file with that content."""
    path = folder / "bad.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    text = str(refused(load_link, str(path)))
    assert str(path) in text
    return text


def test_what_ships_is_complete_and_loads() -> None:
    hops = "openflow openflow-ethernet pppoe routed switched"
    plain = "10g 2.5g 25g 5g ethernet fast-ethernet wan wifi wifi-ac wifi-ax wifi-b wired"
    assert sorted(f"{hops} {plain}".split()) == LINKS
    gcm = "aes128gcm16 aes128gcm16-gso aes256gcm16"
    assert f"aes128-sha256 {gcm} chacha20poly1305 null-sha256".split() == PROPOSALS
    for name in LINKS:
        profile = load_link(name)
        # Those with hops say how many there are.
        assert profile.name == name or (profile.hops is not None and profile.name.startswith(f"{name}-"))
        assert profile.emulated and profile.title and profile.source and profile.rate_bit_s
        # Random loss and jitter would make reference figures unrepeatable.
        has(profile, mtu_bytes=1500, jitter_us=0, loss_percent=0)
    for name in PROPOSALS:
        proposal = load_proposal(name)
        has(proposal, name=name, esp=name.removesuffix("-gso"), encrypts=name != "null-sha256")
        has(proposal, segmentation_offload=name.endswith("-gso"))
        assert proposal.kernel_algorithms
    for folder, value in (("profiles/links", load_link("wired")), ("ipsec", load_proposal("aes128gcm16"))):
        readme = (data_folder() / folder / "README.md").read_text()
        for field in set(value.__struct_fields__) - {"name", "interface", "portal", "base", "family"}:
            assert f"| `{field}` |" in readme


def test_every_quantity_can_be_set_and_several_at_once() -> None:
    for spec, name, expected in (
        ("wired:unshaped", "wired-unshaped", {"mtu_bytes": 1500, "rate_bit_s": None}),
        ("wired:jumbo", "wired-mtu9000", {"mtu_bytes": 9000, "rate_bit_s": 10**9}),
        ("wired:mtu=1400", "wired-mtu1400", {"mtu_bytes": 1400, "rate_bit_s": 10**9}),
        ("wired:unshaped:jumbo", "wired-unshaped-mtu9000", {"mtu_bytes": 9000, "rate_bit_s": None}),
        ("wired:mtu=9000:unshaped", "wired-unshaped-mtu9000", {"mtu_bytes": 9000, "rate_bit_s": None}),
        ("wired:unshaped:rtt=5000us", "wired-unshaped-rtt5ms", {}),
    ):
        has(load_link(spec), name=check_name("link", name), **expected)
    profile = load_link("wired:loss=0.1%,jitter=20us,queue=100")
    has(profile, name="wired-jitter20us-loss0.1-queue100", loss_percent=0.1, jitter_us=20, queue_packets=100)
    profile = load_link("wired:mtu=9000,rate=2.5G:rtt=5ms,window=64K")
    has(profile, rate_bit_s=2_500_000_000, delay_us=2500, tcp_window_bytes=65536, mtu_bytes=9000)
    assert profile.name == "wired-rate2.5g-rtt5ms-window64k-mtu9000"
    assert profile.title == "Gigabit Ethernet, 2.5 Gbit/s, round trip 5 ms, window 64 KiB, MTU 9000"
    wifi = load_link("wifi:unshaped")
    has(wifi, rate_bit_s=None, delay_us=0, duplex=Duplex.FULL, title="WiFi 802.11n, unshaped")
    has(load_link("wired"), rate_bit_s=10**9, delay_us=50, frame_overhead_bytes=24, duplex=Duplex.FULL)
    has(load_link("wifi"), rate_bit_s=5 * 10**7, delay_us=700, frame_overhead_bytes=0, duplex=Duplex.HALF)


def test_links_with_hops_say_what_they_are() -> None:
    for spec, name, title, count in (
        ("switched", "switched-3", "Gigabit Ethernet, 3 switches", 3),
        ("switched:0", "switched-0", "Gigabit Ethernet, 0 switches", 0),
        ("switched:jumbo:1", "switched-1-mtu9000", "Gigabit Ethernet, 1 switch, MTU 9000", 1),
        ("routed:16", "routed-16", "Routed Gigabit Ethernet, 16 routers", 16),
    ):
        profile = load_link(spec)
        has(profile, name=check_name("link", name), title=title)
        has(profile.hops, count=count)
    # A hop delays with what sending takes, and a round trip is that of the whole path.
    assert load_link("switched:4").path_delay_us == pytest.approx(4 * 7)
    has(load_link("switched:4:unshaped"), path_delay_us=0, rate_bit_s=None)
    assert load_link("switched:4:rtt=1ms").path_delay_us == pytest.approx(500)


def test_specs_refused(elsewhere: Path) -> None:
    (elsewhere / "folder.toml").mkdir()
    for specs, said in (
        ("switched:17 | switched:-1", "a number of switches (0 to 16)"),
        ("switched:1:2", "at most once"),
        ("routed:0", "a number of routers (1 to 16)"),
        ("wired:2", "found '2'"),
        ("switched:flows", "found 'flows'"),
        ("switched:4:rtt=20us | wired:rtt=1000m", "delay_us: expected 0 to"),
        ("wired: | wired:fast | wired:mtu | wired:mtu= | wired:jumbo:mtu=1500", "at most once"),
        ("wired:jumbo:jumbo | wired:unshaped:unshaped | wired:unshaped:", "at most once"),
        ("wired:JUMBO | wired:a\nb | wired:rtt | wired:rtt= | wired:rtt=5ms,", "at most once"),
        ("wired:rtt=5ms,rtt=5ms | wired:rate=1G:rate=2G | wired:delay=5ms", "at most once"),
        ("wired:mtu=-1 | wired:mtu=575 | wired:mtu=65536 | wired:mtu=1e3 | wired:mtu=nan", "mtu"),
        (f"wired:mtu=٩٠٠٠ | wired:mtu=9{'0' * 99}", "mtu"),
        ("wired:rate=999", "rate_bit_s: expected 1000 to"),
        ("wired:rate=fast | wired:rate=1.5", "rate: expected a number of bits per second"),
        ("wired:rtt=0ms", "rtt: "),
        ("wired:loss=1 | wired:loss=100%", "loss: expected a percentage above"),
        ("wired:window=100", "tcp_window_bytes: expected 536 to"),
        ("wired:queue=0", "queue_packets: expected 1 to"),
        ("wired:jitter=1ms", "expected at most delay_us, which is 50"),
        ("local | local:jumbo | local.toml | x/local.toml", "without a network"),
        ("folder.toml", "expected a regular file, found a folder"),
        ("none.toml", "nothing there"),
        ("a\0b.toml", "expected a path"),
        (f"{'x' * 300}.toml", "too long"),
    ):
        for spec in listed(specs):
            assert said in str(refused(load_link, spec)), specs
    for table, said in (
        ('kind = "switch"\ncount = 17\nleast = 0\nmost = 17', "most <= 16"),
        ('kind = "router"\ncount = 0\nleast = 0\nmost = 1', "1 <= least"),
        ('kind = "router"\ncount = 1\nleast = 2\nmost = 3', "least <= count"),
        ('kind = "switch"\ncount = 1\nleast = 0\nmost = 4\ndelay_us = -1', "delay_us of 0 to"),
        ('kind = "hub"\ncount = 1\nleast = 0\nmost = 4', "hub"),
    ):
        assert said in refusal(elsewhere, f"{GOOD}\n[hops]\n{table}\n"), table


def test_unknown_and_hostile_names_are_refused_and_a_path_names_the_link(elsewhere: Path) -> None:
    written(elsewhere / "profiles" / "links" / "lab-5.toml")
    assert refused(load_link, "wierd").hint == (
        "did you mean wired? there are 10g, 2.5g, 25g, 5g, ethernet, fast-ethernet, lab-5, local, "
        "openflow, openflow-ethernet, pppoe, routed, switched, wan, wifi, wifi-ac, wifi-ax, wifi-b, wired"
    )
    assert "did you mean aes128gcm16" in str(refused(load_proposal, "aes128gcm"))
    written(elsewhere / "my-lab.toml")
    assert load_link("my-lab.toml:jumbo").name == "my-lab-mtu9000"
    written(elsewhere / "My Lab.toml")
    assert "try my-lab" in str(refused(load_link, "./My Lab.toml"))
    for name in ("w\n", *listed("| ../wired | /etc/passwd | -x | a;b | $(x) | a% | WIRED | a\0b")):
        for call in (load_link, load_proposal, expand_ipsec):
            refused(call, name)


def test_folders_of_the_user_come_first_and_one_that_may_not_be_entered_is_passed_over(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert search_folders("ipsec")[1] == elsewhere / "config" / "harness" / "ipsec"
    config = written(elsewhere / "config" / "harness" / "links" / "wired.toml", GOOD + "mtu_bytes = 1300\n")
    assert load_link("wired").mtu_bytes == 1300
    written(elsewhere / "profiles" / "links" / "wired.toml", GOOD + "mtu_bytes = 1200\n")
    assert load_link("wired").mtu_bytes == 1200
    assert load_link("wired", folders=[config]).mtu_bytes == 1300

    def closed(self: Path) -> bool:
        if self.is_relative_to(elsewhere / "config"):
            raise PermissionError(13, "Permission denied")
        return self.exists()

    monkeypatch.setattr(Path, "is_file", closed)
    assert load_link("wired").name == "wired"


def test_what_is_wrong_in_a_file_is_reported(elsewhere: Path) -> None:
    for lines, said in (
        ("rate_bit_s = -1 | rate_bit_s = 0", "line 3, rate_bit_s: expected 1000 to"),
        ("rate_bit_s = 1e309", "line 3, rate_bit_s: Expected int"),
        ('rate_bit_s = "1 Gbit/s"', "line 3, rate_bit_s: Expected int | null, got str"),
        ("rate_bit_s = 99999999999999999999999999", "rate_bit_s"),
        ("rate_bit_s = " + "9" * 5000, "digits"),
        ("delay_us = nan", "delay_us: expected 0 to 60000000 us, found 'nan'"),
        ("delay_us = inf | delay_us = -0.1 | delay_us = 1e309", "delay_us: expected 0 to"),
        ("jitter_us = 5", "jitter_us: expected at most delay_us"),
        ("loss_percent = 100.1", "loss_percent: expected 0 to 100 %"),
        ("mtu_bytes = 575 | mtu_bytes = 65536", "mtu_bytes: expected 576 to 65535"),
        ("mtu_bytes = 1500.5 | rate_bit_s = true", "Expected int"),
        ('duplex = "both"', "line 3, duplex: Invalid enum value 'both'"),
        ('duplex = "half"', "line 3, duplex: half duplex shares rate_bit_s"),
        ("mtu = 1500", "line 3, mtu: there is no key 'mtu' (did you mean mtu_bytes?"),
        ('name = "x"', "line 3, name: the name comes from the file"),
        ('"mtu_bytes\\u001b" = 1', "there is no key"),
        ("[wired]", "line 3, wired: there is no key"),
        ("mtu_bytes = 1500\nmtu_bytes = 1500", "line 4, 'mtu_bytes = 1500': the key appears twice"),
        ("mtu_bytes 1500", "line 3, 'mtu_bytes 1500': expected valid TOML"),
        ("mtu_bytes =", "line 3"),
        ("x = " + "[" * 5000, "expected valid TOML"),
        ('description = "a\\u001b[2J"', "line 3, description: expected one line of visible characters"),
        ('description = """a\nb"""', "description: expected one line"),
        ("emulated = 1979-05-27", "emulated"),
    ):
        for line in listed(lines):
            assert said in refusal(elsewhere, f"{GOOD}{line}\n"), line
    for content, said in (
        ("emulated = true\n", "title: Object missing required field title"),
        ("", "title"),
        (GOOD.encode("utf-16"), "line 1: expected plain UTF-8, found a byte order mark"),
        (GOOD.encode("utf-32"), "byte order mark"),
        (GOOD.encode("utf-16-le"), "NUL byte"),
        (GOOD.encode("utf-8-sig"), "byte order mark"),
        ((GOOD + 'source = "Zürich"').encode("latin-1"), "line 3: expected UTF-8, found the byte 0xfc"),
        (b"\x7fELF\0\0", "NUL byte"),
        (b"#" * (1 << 20) + b"#", "at most 1 MiB"),
    ):
        assert said in refusal(elsewhere, content)


def test_ipsec_options() -> None:
    assert expand_ipsec("off") == ("off",)
    assert expand_ipsec("on") == ("aes128gcm16",)
    assert expand_ipsec("both") == ("off", "aes128gcm16")
    assert expand_ipsec(["on", "off, aes128gcm16", "null-sha256"]) == ("aes128gcm16", "off", "null-sha256")
    for empty in ("", ",", "on,", [""], []):
        refused(expand_ipsec, empty)


def test_what_could_leave_its_place_in_the_configuration_is_refused(elsewhere: Path) -> None:
    for key, values in (
        ("esp", r'"aes128gcm16\n}" | "a b" | ""'),
        ("ike", '"a; b"'),
        ("kernel_algorithms", '[] | ["cbc(aes) x"]'),
        ("charon_plugins", '["updown { }"] | "openssl"'),
        ("encrypts", "1"),
        ("colour", '"red"'),
    ):
        good = {"title": '"T"', "esp": '"null-sha256"', "ike": '"aes128-sha256-ecp256"'}
        for value in listed(values):
            lines = {**good, "kernel_algorithms": '["hmac(sha256)"]', key: value}
            written(elsewhere / "mine.toml", "".join(f"{name} = {each}\n" for name, each in lines.items()))
            assert key in str(refused(load_proposal, "mine", folders=[elsewhere]))
