"""The report in a real browser: sorted, filtered, pointed at, without an error and without a request."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.model.telemetry import ProcessorUse, RoundTrips, Telemetry
from harness.report import load, render
from tests import flat
from tests.browser.conftest import PATIENCE_S
from tests.unit.results.test_plain_curves import surface
from tests.unit.results_folder import ENVIRONMENT, made_plan, write
from tests.unit.table.test_table import HOSTILE, matrix, record, transfer

OLD = Path(__file__).parents[1] / "data" / "schema-1" / "results"
STORED = Path(__file__).parents[2] / "docs" / "figures" / "make-run"
# What the browser opens for itself.
INNER = ("data:", "chrome:", "about:")
OPEN_ALL = "document.querySelectorAll('details').forEach((part) => { part.open = true; });"
AXE = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@contextlib.contextmanager
def window(driver: Any, width: int) -> Iterator[None]:
    """A window of another width, in px."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of the whole matrix, and of a row with hostile names."""
    folder = tmp_path_factory.mktemp("report")
    trips = RoundTrips(interval_ns=10**7, payload_bytes=56, sent=10, received=10, p50_ns=2e5, p99_ns=3e5)
    use = ProcessorUse(hosts=("target",), wall_ns=10**9, cores=4, busy=0.25, busiest_core=0.5)
    telemetry = Telemetry(round_trips=trips, processors=(use,))
    records = [msgspec.structs.replace(record, telemetry=telemetry) for record in matrix()]
    bins, log = {1000: 900, 2000: 95, 9000: 5}, [1600, *[2000] * 11]
    write(folder / "results", records, made_plan(), ENVIRONMENT, bins=bins, log_kib_s=log)
    odd = record(3.0, workload="odd", warnings=(HOSTILE,), run_id="r2", link="wired", link_title=HOSTILE)
    write(folder / "results", [odd])
    return written(folder, render(load([folder / "results"])))


def written(folder: Path, text: str) -> Path:
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    return file


def written_of(which: str, page: Path, folder: Path) -> Path:
    """A page of the matrix, of results of before, of a run, of two, of one that goes on,
    or of curves."""
    if which == "page":
        return page
    if which == "run":
        return written(folder, render(load([STORED])))
    if which == "two":
        for run, mb_s in (("r1", 50.0), ("r2", 45.0)):
            half = [r for r in matrix() if r.column.link != "wifi"]
            slow = [
                flat.changed(r, run_id=run, block_bytes=4096, write=r.write and transfer(mb_s + r.repeat))
                for r in half
            ]
            write(folder / "two", slow, made_plan(run), ENVIRONMENT, bins={1000: 900, 2000: 95, 9000: 5})
        return written(folder, render(load([folder / "two"]).side_by_side))
    if which == "going":
        found = load([STORED])
        some = msgspec.structs.replace(found, records=found.records[: len(found.records) // 2])
        page_of_it = render(some, going=f"{found.runs[0]} goes on: 160 of 320 cells, 2 min left")
        # It would load itself again in the middle of what is looked at.
        return written(folder, re.sub("<meta http-equiv=.refresh.[^>]*>", "", page_of_it))
    return written(folder, render(load([OLD if which == "old" else surface(folder)])))


@pytest.fixture
def opened(driver: Any, page: Path) -> Iterator[Any]:
    """The page; after each test nothing was said on the console, and nothing but the page was asked for."""
    driver.get_log("performance")
    driver.get(page.as_uri())
    yield driver
    assert driver.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith(INNER)] == [page.as_uri()]


def _first_column(driver: Any, column: int = 0) -> list[str]:
    rows = "[...document.querySelector('table.matrix').tBodies[0].rows].filter((row) => !row.hidden)"
    script = f"return {rows}.map((row) => row.cells[arguments[0]].textContent)"
    found: list[str] = driver.execute_script(script, column)
    return found


def _find(driver: Any, selector: str) -> Any:
    return driver.find_element("css selector", selector)


@pytest.mark.core
def test_sorting_goes_down_up_and_back(opened: Any) -> None:
    before = _first_column(opened)
    heading = _find(opened, "table.matrix thead th:nth-child(2)")
    button = heading.find_element("css selector", "button")
    found = []
    for _ in range(3):
        button.click()
        values = [float(text.split()[0]) for text in _first_column(opened, 1) if text[0].isdigit()]
        found.append((heading.get_attribute("aria-sort"), values))
    assert [state for state, _ in found] == ["descending", "ascending", "none"]
    assert found[0][1] == sorted(found[0][1], reverse=True)
    assert found[1][1] == sorted(found[1][1])
    assert _first_column(opened) == before


def test_a_button_sorts_by_the_keyboard_as_well(opened: Any) -> None:
    heading = _find(opened, "table.matrix thead th:first-child")
    heading.find_element("css selector", "button").send_keys("\ue007")  # Enter
    assert heading.get_attribute("aria-sort") == "descending"
    assert _first_column(opened) == sorted(_first_column(opened), key=str.casefold, reverse=True)


def test_words_filter_rows_and_their_pictures(opened: Any) -> None:
    _find(opened, "#search").send_keys("READ 4k")
    names = _first_column(opened)
    assert len(names) == 2
    assert all("read-4k" in name for name in names)
    assert _find(opened, "#said").text.startswith("2 of 9 rows")
    figures = "[...document.querySelectorAll('figure[data-row]')]"
    assert opened.execute_script(f"return {figures}.filter((f) => !f.hidden).length") == 6


def test_bandwidth_over_time_is_drawn_and_judged(opened: Any) -> None:
    figures = opened.find_elements("css selector", "#time figure")
    assert len(figures) == 8
    assert len(figures[0].find_elements("css selector", ".li")) == 5
    opened.execute_script("arguments[0].querySelector('details').open = true", figures[0])
    rows = [row.text for row in figures[0].find_elements("css selector", "tbody tr")]
    assert len(rows) == 5
    # The first of five parts is 8 % below the others.
    assert all(" 8.5 % " in row and " yes " in row for row in rows)


def test_what_was_measured_during_the_cells_is_reported(opened: Any) -> None:
    assert not _find(opened, "#paths table").is_displayed()
    opened.execute_script(OPEN_ALL)
    rows = [row.text for row in opened.find_elements("css selector", "#paths tbody tr")]
    assert len(rows) == 40
    assert all("200 µs 300 µs 0 % 50% 25% n/a n/a" in row for row in rows)


def test_a_column_can_be_hidden(opened: Any) -> None:
    opened.execute_script("document.querySelector('#matrix details').open = true")
    _find(opened, "input[name=column]").click()
    assert not _find(opened, "table.matrix thead th:nth-child(2)").is_displayed()
    assert _find(opened, "table.matrix thead th:nth-child(3)").is_displayed()


def test_one_matrix_at_a_time(opened: Any) -> None:
    def shown() -> list[str]:
        parts = opened.find_elements("css selector", ".metric")
        return [part.get_attribute("data-metric") for part in parts if part.is_displayed()]

    assert shown() == ["MB/s"]
    _find(opened, "input[value='p99']").click()
    assert shown() == ["p99"]


def test_pointing_tells_more(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    tip = _find(opened, "#tip")
    ActionChains(opened).move_to_element(_find(opened, "table.matrix tbody td")).perform()
    assert "3 repeats" in tip.text
    mark = _find(opened, "#latency svg circle")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(opened).move_to_element(mark).perform()
    # All columns' curves are the same here, and the last lies on top.
    assert re.fullmatch(r"wifi\+aes128gcm16, [0-9.]+ %: [0-9.]+ [mµ]s", tip.text)
    ActionChains(opened).send_keys("\ue00c").perform()  # Escape
    assert not tip.is_displayed()


def test_arrow_keys_move_among_cells_and_tell_as_much(opened: Any) -> None:
    _find(opened, "table.matrix tbody td").send_keys("\ue014\ue015")  # right, down
    place = "const c = document.activeElement; return [c.parentElement.sectionRowIndex, c.cellIndex]"
    assert opened.execute_script(place) == [1, 2]
    assert "3 repeats" in _find(opened, "#tip").text
    assert opened.switch_to.active_element.get_attribute("aria-description")


def test_arrow_keys_move_among_the_marks_of_a_picture(opened: Any) -> None:
    picture = _find(opened, "#latency figure svg")
    picture.send_keys("\ue014")  # right
    first = _find(opened, "#tip").text
    assert re.fullmatch(r"local, [0-9.]+ %: [0-9.]+ [mµ]s", first)
    assert picture.get_attribute("aria-description") == first
    picture.send_keys("\ue014")
    assert _find(opened, "#tip").text != first
    picture.send_keys("\ue012")  # left
    assert _find(opened, "#tip").text == first
    assert len(picture.find_elements("css selector", ".at")) == 1


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("which", ["page", "old", "curves", "run", "two"])
def test_text_in_pictures_is_large_enough(
    driver: Any, page: Path, tmp_path: Path, which: str, width: int
) -> None:
    """12 px at least, and within its picture."""
    with window(driver, width):
        driver.get(written_of(which, page, tmp_path).as_uri())
        found = driver.execute_script(
            "const found = [];"
            "for (const picture of document.querySelectorAll('figure svg')) {"
            "  const edge = picture.getBoundingClientRect();"
            "  for (const text of picture.querySelectorAll('text, use')) {"
            "    const box = text.getBoundingClientRect();"
            "    if (!box.width) continue;"
            "    const px = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;"
            "    found.push([px, Math.max(edge.left - box.left, box.right - edge.right), text.textContent]);"
            "  }"
            "}"
            "return found;"
        )
    assert len(found) > 50
    assert [each for each in found if each[0] < 12] == []
    assert [each for each in found if each[1] > 1] == []


COLOURS = """
const found = {};
const note = (section, name, mark) => {
  if (name) ((found[name] ??= {})[section] ??= []).push(getComputedStyle(mark).fill);
};
for (const section of ["answer", "latency", "roofline"])
  for (const mark of document.querySelectorAll(`#${section} svg [class^=f]`))
    note(section, mark.tagName === "rect" ? mark.querySelector("title")?.textContent.split(",")[0]
      : mark.querySelector(":scope > title")?.textContent, mark);
// A bar's name stands above it, behind a sign.
for (const picture of document.querySelectorAll("#bars svg")) {
  const names = [...picture.querySelectorAll("g:not([class]) > text")];
  const marks = [...picture.querySelectorAll("rect")];
  if (names.length === marks.length)
    names.forEach((name, at) => note("bars", name.textContent.slice(2), marks[at]));
}
return found;
"""


def colours_of(driver: Any, names: Sequence[str]) -> list[str]:
    """The colour that each of these columns has in all pictures of the page."""
    found = driver.execute_script(COLOURS)
    of = {name: found[name] for name in names}
    assert all({"answer", "bars", "latency", "roofline"} == each.keys() for each in of.values()), of
    once = [{colour for shown in each.values() for colour in shown} for each in of.values()]
    assert [len(each) for each in once] == [1] * len(names), of
    return [colour for each in once for colour in each]


def no_text_is_cut(driver: Any) -> None:
    """No name in a picture is shortened, none leaves it, and no two texts lie on each other."""
    texts = "return [...document.querySelectorAll('svg text')].map((each) => each.textContent)"
    assert [each for each in driver.execute_script(texts) if "…" in each] == []
    assert driver.execute_script(CUT) == []


CUT = """
const found = [];
for (const picture of document.querySelectorAll("figure svg[role=img]")) {
  const edge = picture.getBoundingClientRect();
  const boxes = [...picture.querySelectorAll("text")].filter((each) => each.textContent)
    .map((each) => [each.getBoundingClientRect(), each.textContent]);
  boxes.forEach(([box, text], at) => {
    if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1
        || box.bottom > edge.bottom + 1) found.push([text, "leaves its picture"]);
    for (const [other, on] of boxes.slice(at + 1)) {
      const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
      const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
      if (across > 1 && down > 4) found.push([text, on]);
    }
  });
}
return found;
"""


def test_a_column_has_one_colour_and_the_page_begins_with_figures(driver: Any, tmp_path: Path) -> None:
    with window(driver, 390):
        driver.get(written_of("run", tmp_path, tmp_path).as_uri())
        colours = colours_of(driver, ("wired", "wired+aes128gcm16", "wifi", "wifi+aes128gcm16"))
        assert len({*colours}) == 4
        headline = _find(driver, ".headline")
        assert re.search(r"costs [0-9.]+ % at 256K", headline.text)
        assert headline.location["y"] < _find(driver, "header .muted").location["y"]
        no_text_is_cut(driver)
        # On a telephone the first column is over a network.
        assert "wired" in _find(driver, "table.matrix thead th:nth-child(2)").text
        assert _find(driver, "table.matrix thead th:last-child").text.split("\n")[1] == "local"
        links = driver.find_elements("css selector", "nav a")
        assert all(each.rect["x"] >= 0 and each.rect["x"] + each.rect["width"] <= 390 for each in links)
        assert not driver.find_elements("css selector", "#time figure")


def test_two_runs_stand_side_by_side_and_their_differences_before_all_else(
    driver: Any, tmp_path: Path
) -> None:
    names = ("A wired", "B wired", "A wired+aes128gcm16", "B wired+aes128gcm16")
    with window(driver, 390):
        driver.get(written_of("two", tmp_path, tmp_path).as_uri())
        assert len({*(colours := colours_of(driver, names))}) == 4
        no_text_is_cut(driver)
        sections = [
            each.get_attribute("id") for each in driver.find_elements("css selector", "main > section")
        ]
        assert sections[:2] == ["differences", "answer"]
        assert re.match(r"B compared with A: \d+ slower, \d+ faster", _find(driver, ".headline").text)
        marks = driver.find_elements("css selector", "#differences svg g[class^=f]")
        assert {each.value_of_css_property("fill") for each in marks} >= {colours[1], colours[3]}
        headings = [
            _find(driver, f"table.matrix thead th:nth-child({place})").text.split("\n")[1:3]
            for place in (2, 3)
        ]
        assert headings == [["A", "wired"], ["B", "wired"]]
        rows = driver.find_elements("css selector", "#answer tbody tr")
        assert sum(row.text.startswith("wired") for row in rows) == 2, "a table for each run"


def test_a_run_that_goes_on_says_what_is_measured_and_what_is_left(driver: Any, tmp_path: Path) -> None:
    with window(driver, 390):
        driver.get(written_of("going", tmp_path, tmp_path).as_uri())
        assert "160 of 320 cells, 2 min left" in _find(driver, "header [role=status]").text
        sections = driver.find_elements("css selector", "main > section")
        assert sections[0].get_attribute("id") == "progress"
        rows = [row.text.split() for row in sections[0].find_elements("css selector", "tbody tr")]
        assert [row[0] for row in rows][:2] == ["local", "wired"]
        assert sum(int(row[1]) for row in rows) == sum(int(row[2]) for row in rows) == 160
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 390


def test_colours_follow_the_system_and_the_switch(opened: Any) -> None:
    def background() -> str:
        found: str = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
        return found

    def prefer(scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    prefer("light")
    light = background()
    prefer("dark")
    assert light != (dark := background())
    _find(opened, "#theme option[value=light]").click()
    assert background() == light
    prefer("light")
    _find(opened, "#theme option[value=dark]").click()
    assert background() == dark


def test_in_print_a_heading_stays_with_what_it_is_of(opened: Any) -> None:
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        for place in ("h2", "h3", "#matrix h2 + p", "figcaption"):
            element = _find(opened, place)
            assert element.value_of_css_property("break-after") == "avoid", place
        # Nothing stands between the matrix's heading and its table.
        between = opened.execute_script(
            "const found = [];"
            "for (let at = document.querySelector('#matrix h2 + p').nextElementSibling;"
            " !at.classList.contains('metric'); at = at.nextElementSibling)"
            " if (getComputedStyle(at).display != 'none') found.push(at.outerHTML.slice(0, 80));"
            "return found"
        )
        assert between == []
        assert not _find(opened, "#environment").is_displayed(), "headings of details that are closed"
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_page_of_a_run_that_goes_on_loads_itself_again(driver: Any, tmp_path: Path) -> None:
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    results = load([OLD])
    file = written(tmp_path, render(results, going="r1 goes on: 1 of 2 cells"))
    driver.get(file.as_uri())
    # Its text may be asked for just as the page loads itself.
    waiting = WebDriverWait(driver, PATIENCE_S, ignored_exceptions=[StaleElementReferenceException])
    waiting.until(lambda found: "1 of 2 cells" in _find(found, "header").text)
    ended = tmp_path / "ended.html"
    ended.write_text(render(results), encoding="utf-8")
    ended.replace(file)  # never half of it
    waiting.until(lambda found: "1 of 2 cells" not in _find(found, "header").text)


@pytest.mark.parametrize("width", [480, 1280])
def test_nothing_is_wider_than_the_window(opened: Any, width: int) -> None:
    with window(opened, width):
        opened.execute_script(OPEN_ALL)
        assert opened.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("theme", "width"), [("light", 1400), ("dark", 1400), ("light", 390)])
@pytest.mark.parametrize("which", ["page", "old", "curves", "run", "two", "going"])
def test_everybody_can_use_it(
    driver: Any, page: Path, tmp_path: Path, which: str, theme: str, width: int
) -> None:
    with window(driver, width):
        driver.get(written_of(which, page, tmp_path).as_uri())
        require_usable(driver, theme)


def require_usable(driver: Any, theme: str) -> None:
    """No rule of axe-core's is broken, with everything opened."""
    driver.execute_script(f"{OPEN_ALL} document.documentElement.dataset.theme = arguments[0];", theme)
    driver.execute_script(AXE)
    found = driver.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run(document, { resultTypes: ['violations'] }).then(done, (error) => done(String(error)));"
    )
    assert isinstance(found, dict), found
    assert [(v["id"], v["nodes"][0]["html"][:200], len(v["nodes"])) for v in found["violations"]] == []
    assert len(found["passes"]) > 20
