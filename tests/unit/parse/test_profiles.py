"""Links and proposals: what ships loads, what a user writes is checked, what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.model import Duplex
from harness.model.errors import UsageError
from harness.model.units import check_name
from harness.parse.profiles import data_folder, expand_ipsec, load_link, load_proposal, search_folders

LINKS = sorted(file.stem for file in (data_folder() / "profiles" / "links").glob("*.toml"))
PROPOSALS = sorted(file.stem for file in (data_folder() / "ipsec").glob("*.toml"))
GOOD = 'title = "T"\nemulated = true\n'


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and configuration: profiles of whoever runs the tests must not matter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def refusal(folder: Path, content: str | bytes) -> str:
    """What is said of a link file with that content."""
    path = folder / "bad.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UsageError) as error:
        load_link(str(path))
    text = str(error.value)
    assert text.isprintable()
    assert str(path) in text
    assert error.value.hint
    return text


def test_what_ships_is_complete() -> None:
    cables = ["2.5g", "5g", "10g", "25g", "ethernet", "fast-ethernet", "wired"]
    single = [*cables, "wan", "wifi", "wifi-ac", "wifi-ax", "wifi-b"]
    assert sorted(LINKS) == sorted([*single, "openflow", "openflow-ethernet", "pppoe", "routed", "switched"])
    assert PROPOSALS == [
        "aes128-sha256",
        "aes128gcm16",
        "aes128gcm16-gso",
        "aes256gcm16",
        "chacha20poly1305",
        "null-sha256",
    ]


@pytest.mark.parametrize("name", LINKS)
def test_shipped_links_load(name: str) -> None:
    profile = load_link(name)
    # Those with hops say how many there are.
    assert profile.name == name or (profile.hops is not None and profile.name.startswith(f"{name}-"))
    assert profile.emulated
    assert profile.title
    assert profile.source
    assert profile.rate_bit_s
    assert profile.mtu_bytes == 1500
    # Random loss and jitter would make reference figures unrepeatable.
    assert profile.jitter_us == profile.loss_percent == 0


def test_the_two_links_of_the_matrix() -> None:
    wired, wifi = load_link("wired"), load_link("wifi")
    assert (wired.rate_bit_s, wired.delay_us, wired.frame_overhead_bytes) == (10**9, 50, 24)
    assert wired.duplex is Duplex.FULL
    assert (wifi.rate_bit_s, wifi.delay_us, wifi.frame_overhead_bytes) == (5 * 10**7, 700, 0)
    assert wifi.duplex is Duplex.HALF


@pytest.mark.parametrize("name", PROPOSALS)
def test_shipped_proposals_load(name: str) -> None:
    proposal = load_proposal(name)
    assert proposal.name == name and proposal.esp == name.removesuffix("-gso")
    assert proposal.segmentation_offload is name.endswith("-gso")
    assert proposal.kernel_algorithms
    assert proposal.encrypts == (name != "null-sha256")


@pytest.mark.parametrize("folder", [("profiles", "links"), ("ipsec",)])
def test_every_key_is_described(folder: tuple[str, ...]) -> None:
    readme = data_folder().joinpath(*folder, "README.md").read_text()
    value = load_link("wired") if folder[-1] == "links" else load_proposal("aes128gcm16")
    for field in set(value.__struct_fields__) - {"name", "interface", "portal", "base", "family"}:
        assert f"| `{field}` |" in readme


@pytest.mark.parametrize(
    ("spec", "name", "mtu_bytes", "rate_bit_s"),
    [
        ("wired:unshaped", "wired-unshaped", 1500, None),
        ("wired:jumbo", "wired-mtu9000", 9000, 10**9),
        ("wired:mtu=1400", "wired-mtu1400", 1400, 10**9),
        ("wired:unshaped:jumbo", "wired-unshaped-mtu9000", 9000, None),
        ("wired:mtu=9000:unshaped", "wired-unshaped-mtu9000", 9000, None),
    ],
)
def test_modifiers(spec: str, name: str, mtu_bytes: int, rate_bit_s: int | None) -> None:
    profile = load_link(spec)
    assert (profile.name, profile.mtu_bytes, profile.rate_bit_s) == (name, mtu_bytes, rate_bit_s)
    assert check_name("link", profile.name) == name


def test_every_quantity_can_be_set_and_several_at_once() -> None:
    profile = load_link("wired:mtu=9000,rate=2.5G:rtt=5ms,window=64K")
    assert profile.name == "wired-rate2.5g-rtt5ms-window64k-mtu9000"
    assert profile.title == "Gigabit Ethernet, 2.5 Gbit/s, round trip 5 ms, window 64 KiB, MTU 9000"
    assert (profile.rate_bit_s, profile.delay_us) == (2_500_000_000, 2500)
    assert (profile.tcp_window_bytes, profile.mtu_bytes) == (65536, 9000)
    lossy = load_link("wired:loss=0.1%,jitter=20us,queue=100")
    assert (lossy.name, lossy.loss_percent) == ("wired-jitter20us-loss0.1-queue100", 0.1)
    assert (lossy.jitter_us, lossy.queue_packets) == (20, 100)


def test_a_round_trip_is_that_of_the_whole_path() -> None:
    assert load_link("switched:4:rtt=1ms").path_delay_us == pytest.approx(500)
    assert load_link("wired:unshaped:rtt=5000us").name == "wired-unshaped-rtt5ms"
    with pytest.raises(UsageError, match="delay_us: expected 0 to"):
        load_link("switched:4:rtt=20us")


@pytest.mark.parametrize(
    ("spec", "name", "title", "count"),
    [
        ("switched", "switched-3", "Gigabit Ethernet, 3 switches", 3),
        ("switched:0", "switched-0", "Gigabit Ethernet, 0 switches", 0),
        ("switched:jumbo:1", "switched-1-mtu9000", "Gigabit Ethernet, 1 switch, MTU 9000", 1),
        ("routed:16", "routed-16", "Routed Gigabit Ethernet, 16 routers", 16),
        ("pppoe:unshaped", "pppoe-unshaped", "PPPoE over Gigabit Ethernet, unshaped", 2),
        ("openflow:flows", "openflow-flows", "Open vSwitch, flows", 1),
        ("openflow:cpu=25", "openflow-controller-cpu25", "Open vSwitch, controller, 25% CPU", 1),
    ],
)
def test_links_with_hops_say_what_they_are(spec: str, name: str, title: str, count: int) -> None:
    profile = load_link(spec)
    assert profile.hops is not None
    assert (profile.name, profile.title, profile.hops.count) == (name, title, count)
    assert check_name("link", profile.name) == name


def test_a_hop_delays_with_what_sending_takes() -> None:
    switched, bare = load_link("switched:4"), load_link("switched:4:unshaped")
    assert switched.path_delay_us == pytest.approx(4 * 7)
    assert (bare.path_delay_us, bare.rate_bit_s) == (0, None)


def test_a_controllers_link_is_one_of_the_links() -> None:
    profile = load_link("openflow:controller=fast-ethernet")
    assert profile.name == "openflow-controller-fast-ethernet"
    assert profile.hops is not None and profile.hops.openflow is not None
    assert (profile.rate_bit_s, profile.hops.openflow.rate_bit_s) == (10**8, 10**8)
    assert not profile.hops.openflow.flows


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("switched:17", "a number of switches (0 to 16)"),
        ("switched:-1", "a number of switches (0 to 16)"),
        ("switched:1:2", "at most once"),
        ("routed:0", "a number of routers (1 to 16)"),
        ("pppoe:2", "found '2'"),
        ("wired:2", "found '2'"),
        ("openflow:flows:controller", "'controller', 'controller=LINK' or 'flows'"),
        ("openflow:cpu=0", "'cpu=N' (1 to 100 percent)"),
        ("openflow:cpu=101", "'cpu=N' (1 to 100 percent)"),
        ("openflow:controller=nothing", "there is no link 'nothing'"),
        ("openflow:controller=local", "the disk without a network"),
        ("switched:flows", "found 'flows'"),
    ],
)
def test_hops_refused(spec: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        load_link(spec)
    assert said in error.value.message
    assert error.value.hint


OPENFLOW = 'kind = "openflow"\ncount = 1\nleast = 1\nmost = 1'


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('kind = "switch"\ncount = 17\nleast = 0\nmost = 17', "most <= 16"),
        ('kind = "pppoe"\ncount = 1\nleast = 1\nmost = 1', "2 <= least"),
        ('kind = "router"\ncount = 1\nleast = 2\nmost = 3', "least <= count"),
        (OPENFLOW, "a table openflow"),
        ('kind = "switch"\ncount = 1\nleast = 0\nmost = 4\ndelay_us = -1', "delay_us of 0 to"),
        ('kind = "hub"\ncount = 1\nleast = 0\nmost = 4', "hub"),
        (f'{OPENFLOW}\n[hops.openflow]\ncontroller = "wired"\npacket_us = -1', "packet_us of 0 to"),
        (f'{OPENFLOW}\n[hops.openflow]\ncontroller = "wired"\ncpu_percent = 101', "cpu_percent of 1 to"),
    ],
)
def test_hops_of_a_file_refused(tmp_path: Path, table: str, said: str) -> None:
    assert said in refusal(tmp_path, f"{GOOD}\n[hops]\n{table}\n")


def test_unshaped_wifi_is_a_bare_wire() -> None:
    profile = load_link("wifi:unshaped")
    assert (profile.rate_bit_s, profile.delay_us, profile.duplex) == (None, 0, Duplex.FULL)
    assert profile.title == "WiFi 802.11n, unshaped"


@pytest.mark.parametrize(
    "modifiers",
    [
        *("", "fast", "mtu", "mtu=", "jumbo:mtu=1500", "jumbo:jumbo", "unshaped:unshaped", "unshaped:"),
        *("JUMBO", "a\nb", "rtt", "rtt=", "rtt=5ms,", "rtt=5ms,rtt=5ms", "rate=1G:rate=2G", "delay=5ms"),
    ],
)
def test_modifiers_refused(modifiers: str) -> None:
    with pytest.raises(UsageError, match="at most once"):
        load_link(f"wired:{modifiers}")


@pytest.mark.parametrize(
    ("modifiers", "said"),
    [
        *((f"mtu={text}", "mtu") for text in ("-1", "575", "65536", "1e3", "nan", "٩٠٠٠", "9" + "0" * 99)),
        ("rate=999", "rate_bit_s: expected 1000 to"),
        ("rate=fast", "rate: expected a number of bits per second"),
        ("rate=1.5", "rate: expected a number of bits per second"),
        ("rtt=0ms", "rtt: "),
        ("rtt=1000m", "delay_us: expected 0 to"),
        ("loss=1", "loss: expected a percentage above"),
        ("loss=100%", "loss: expected a percentage above"),
        ("window=100", "tcp_window_bytes: expected 536 to"),
        ("queue=0", "queue_packets: expected 1 to"),
        ("jitter=1ms", "expected at most delay_us, which is 50"),
    ],
)
def test_values_of_modifiers_refused(modifiers: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        load_link(f"wired:{modifiers}")
    assert said in error.value.message and error.value.hint


@pytest.mark.parametrize("spec", ["local", "local:jumbo", "local.toml", "x/local.toml"])
def test_local_has_no_profile(spec: str) -> None:
    with pytest.raises(UsageError, match="without a network"):
        load_link(spec)


def test_unknown_names_say_what_there_is(elsewhere: Path) -> None:
    (elsewhere / "profiles" / "links").mkdir(parents=True)
    (elsewhere / "profiles" / "links" / "lab-5.toml").write_text(GOOD)
    with pytest.raises(UsageError) as error:
        load_link("wierd")
    assert error.value.hint == (
        "did you mean wired? there are 10g, 2.5g, 25g, 5g, ethernet, fast-ethernet, lab-5, local, "
        "openflow, openflow-ethernet, pppoe, routed, switched, wan, wifi, wifi-ac, wifi-ax, wifi-b, wired"
    )
    with pytest.raises(UsageError, match="did you mean aes128gcm16"):
        load_proposal("aes128gcm")


@pytest.mark.parametrize(
    "name", ["", "../wired", "/etc/passwd", "-x", "a;b", "$(x)", "a%", "WIRED", "a\0b", "w\n"]
)
def test_hostile_names(name: str) -> None:
    with pytest.raises(UsageError):
        load_link(name)
    with pytest.raises(UsageError):
        load_proposal(name)
    with pytest.raises(UsageError):
        expand_ipsec(name)


def test_folders_of_the_user_come_first(elsewhere: Path) -> None:
    assert search_folders("ipsec")[1] == elsewhere / "config" / "harness" / "ipsec"
    config = elsewhere / "config" / "harness" / "links"
    config.mkdir(parents=True)
    (config / "wired.toml").write_text(GOOD + "mtu_bytes = 1300\n")
    assert load_link("wired").mtu_bytes == 1300
    here = elsewhere / "profiles" / "links"
    here.mkdir(parents=True)
    (here / "wired.toml").write_text(GOOD + "mtu_bytes = 1200\n")
    assert load_link("wired").mtu_bytes == 1200
    assert load_link("wired", folders=[config]).mtu_bytes == 1300


def test_a_folder_that_may_not_be_entered_is_passed_over(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: Path) -> bool:
        if self.is_relative_to(elsewhere / "config"):
            raise PermissionError(13, "Permission denied")
        return self.exists()

    monkeypatch.setattr(Path, "is_file", closed)
    assert load_link("wired").name == "wired"


def test_a_path_names_the_link_for_the_file(elsewhere: Path) -> None:
    (elsewhere / "my-lab.toml").write_text(GOOD)
    assert load_link("my-lab.toml:jumbo").name == "my-lab-mtu9000"
    (elsewhere / "My Lab.toml").write_text(GOOD)
    with pytest.raises(UsageError, match="try my-lab"):
        load_link("./My Lab.toml")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rate_bit_s = -1", "line 3, rate_bit_s: expected 1000 to"),
        ("rate_bit_s = 0", "expected 1000 to"),
        ("rate_bit_s = 1e309", "line 3, rate_bit_s: Expected int"),
        ('rate_bit_s = "1 Gbit/s"', "line 3, rate_bit_s: Expected int | null, got str"),
        ("rate_bit_s = true", "Expected int"),
        ("rate_bit_s = 99999999999999999999999999", "rate_bit_s"),
        ("rate_bit_s = " + "9" * 5000, "digits"),
        ("delay_us = nan", "delay_us: expected 0 to 60000000 us, found 'nan'"),
        ("delay_us = inf", "delay_us: expected 0 to"),
        ("delay_us = -0.1", "delay_us: expected 0 to"),
        ("delay_us = 1e309", "delay_us: expected 0 to"),
        ("jitter_us = 5", "jitter_us: expected at most delay_us"),
        ("loss_percent = 100.1", "loss_percent: expected 0 to 100 %"),
        ("mtu_bytes = 575", "mtu_bytes: expected 576 to 65535"),
        ("mtu_bytes = 65536", "mtu_bytes: expected 576 to 65535"),
        ("mtu_bytes = 1500.5", "Expected int"),
        ('duplex = "both"', "line 3, duplex: Invalid enum value 'both'"),
        ('duplex = "half"', "line 3, duplex: half duplex shares rate_bit_s"),
        ("mtu = 1500", "line 3, mtu: there is no key 'mtu' (did you mean mtu_bytes?"),
        ('name = "x"', "line 3, name: the name is the file"),
        ('"mtu_bytes\\u001b" = 1', "there is no key"),
        ("[wired]", "line 3, wired: there is no key"),
        ("mtu_bytes = 1500\nmtu_bytes = 1500", "line 4, 'mtu_bytes = 1500': the key is there twice"),
        ("mtu_bytes 1500", "line 3, 'mtu_bytes 1500': expected valid TOML"),
        ("mtu_bytes = ", "line 3"),
        ("x = " + "[" * 5000, "expected valid TOML"),
        ('description = "a\\u001b[2J"', "line 3, description: expected one line of visible characters"),
        ('description = """a\nb"""', "description: expected one line"),
        ("emulated = 1979-05-27", "emulated"),
    ],
)
def test_what_is_wrong_in_a_file_is_reported(elsewhere: Path, line: str, said: str) -> None:
    assert said in refusal(elsewhere, GOOD + line + "\n")


def test_missing_keys_are_named(elsewhere: Path) -> None:
    assert "title: Object missing required field title" in refusal(elsewhere, "emulated = true\n")
    assert "title" in refusal(elsewhere, "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD.encode("utf-16"), "line 1: expected plain UTF-8, found a byte order mark"),
        (GOOD.encode("utf-32"), "byte order mark"),
        (GOOD.encode("utf-16-le"), "NUL byte"),
        (GOOD.encode("utf-8-sig"), "byte order mark"),
        ((GOOD + 'source = "Zürich"').encode("latin-1"), "line 3: expected UTF-8, found the byte 0xfc"),
        (b"\x7fELF\0\0", "NUL byte"),
        (b"#" * (1 << 20) + b"#", "at most 1 MiB"),
    ],
)
def test_what_is_no_text_is_reported(elsewhere: Path, content: bytes, said: str) -> None:
    assert said in refusal(elsewhere, content)


def test_what_is_no_file_is_reported(elsewhere: Path) -> None:
    (elsewhere / "folder.toml").mkdir()
    for spec, said in (
        ("folder.toml", "expected a regular file, found a folder"),
        ("none.toml", "nothing there"),
        ("a\0b.toml", "expected a path"),
        ("x" * 300 + ".toml", "too long"),
    ):
        with pytest.raises(UsageError, match=said):
            load_link(spec)


def test_ipsec_options() -> None:
    assert expand_ipsec("off") == ("off",)
    assert expand_ipsec("on") == ("aes128gcm16",)
    assert expand_ipsec("both") == ("off", "aes128gcm16")
    assert expand_ipsec(["on", "off, aes128gcm16", "null-sha256"]) == ("aes128gcm16", "off", "null-sha256")
    for empty in ("", ",", "on,", [""], []):
        with pytest.raises(UsageError):
            expand_ipsec(empty)


@pytest.mark.parametrize(
    "line",
    [
        'esp = "aes128gcm16\\n}"',
        'esp = "a b"',
        'esp = ""',
        'ike = "a; b"',
        "kernel_algorithms = []",
        'kernel_algorithms = ["cbc(aes) x"]',
        'charon_plugins = ["updown { }"]',
        'charon_plugins = "openssl"',
        "encrypts = 1",
        'colour = "red"',
    ],
)
def test_what_could_leave_its_place_in_the_configuration_is_refused(elsewhere: Path, line: str) -> None:
    values = {
        "title": '"T"',
        "esp": '"null-sha256"',
        "ike": '"aes128-sha256-ecp256"',
        "kernel_algorithms": '["hmac(sha256)"]',
    }
    key, _, value = line.partition(" = ")
    (elsewhere / "mine.toml").write_text("".join(f"{k} = {v}\n" for k, v in (values | {key: value}).items()))
    with pytest.raises(UsageError, match=key):
        load_proposal("mine", folders=[elsewhere])


def test_a_share_of_a_switchs_processor_needs_a_price(elsewhere: Path) -> None:
    folder = elsewhere / "profiles" / "links"
    folder.mkdir(parents=True)
    text = (data_folder() / "profiles/links/openflow.toml").read_text(encoding="utf-8")
    (folder / "slow.toml").write_text(text.replace("packet_us = 55", "cpu_percent = 50"), encoding="utf-8")
    with pytest.raises(UsageError, match="expected packet_us with cpu_percent 50, found none"):
        load_link("slow")
    (folder / "free.toml").write_text(text.replace("packet_us = 55", ""), encoding="utf-8")
    with pytest.raises(UsageError, match="'cpu=50'"):
        load_link("free:cpu=50")
