"""Every page in a real browser, on a desk and on a phone: nothing goes wrong, and nothing is cut or tiny."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from browser.chrome import Chrome
from browser.conftest import PAGES

DESK, PHONE = 1280, 390
BESIDE = {"chromium": "", "firefox": "-firefox"}
LEAST = 14
"""Pixels of text on a phone."""
SCROLLED = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIRST = "document.querySelector('table.sort tbody th').textContent"
NUMBERS = """[...document.querySelector('table.sort').tBodies[0].rows]
  .map(row => parseFloat(row.cells[NTH].dataset.value)).filter(value => !isNaN(value))"""
CLICK = "document.querySelector('table.sort thead').rows[0].cells[NTH].click()"
OPEN = """document.querySelectorAll('details').forEach(one => { one.open = true; });
  dispatchEvent(new Event('resize'))"""
BROKEN = """[...document.querySelectorAll('.span + span')].filter(one => one.offsetHeight > 30)
  .map(one => one.textContent)"""
LONG = """[...document.querySelectorAll('.note')].filter(one => !one.closest('details'))
  .map(one => one.textContent).filter(text => text.split(/\\s+/).length > 50)"""
"""Captions that nobody reads to the end."""
SCALES = """[...document.querySelectorAll('.stacked svg.span:not(.axis)')]
  .map(one => one.closest('td').dataset.head)
  .filter(head => !/ bar from .* to /.test(head))"""
CUT = """[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth
    || one.scrollHeight > one.clientHeight && !one.parentElement.querySelector('.scrolls'))
  .map(one => one.textContent.slice(0, 80) + ': ' + one.scrollWidth + ' of ' + one.clientWidth)"""

AXES = """[...document.querySelectorAll('th .axis')].filter(one => one.checkVisibility()).map(axis => {
    const head = axis.closest('th'), rows = [...head.closest('table').tBodies[0].rows];
    const bar = rows.map(row => row.cells[head.cellIndex].querySelector('svg.span')).find(one => one);
    return bar ? Math.abs(bar.getBoundingClientRect().left - axis.getBoundingClientRect().left) : 0; })
  .filter(apart => apart > 8)"""


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, browser: Chrome, tmp_path_factory: pytest.TempPathFactory):
    return request.param, PAGES[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(("width", "dark"), [(w, d) for w in (DESK, PHONE) for d in (False, True)], ids=str)
def test_a_page_is_whole(page, browser: Chrome, pictures: Path, width: int, dark: bool) -> None:
    name, path = page
    browser.open(path, width, dark)
    browser.picture(pictures / f"{name}-{width}{'-dark' * dark}{BESIDE[browser.name]}.png")
    assert browser.troubles == []
    assert browser.ask(SCROLLED) <= 0, "it scrolls sideways"
    assert browser.ask(LONG) == []
    browser.ask(OPEN)
    assert browser.ask(SCALES) == [], "bars of a phone have a scale"
    assert browser.ask(CUT) == [], "tables are cut, or scroll and do not say so"
    assert browser.ask(BROKEN) == [], "an interval breaks"
    assert browser.ask(AXES) == [], "a scale does not stand over its bars"
    if width == PHONE:
        assert browser.smaller_than(LEAST) == []
    luminance = browser.ask("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)[0]")
    assert (int(luminance) < 100) is dark


def test_a_heading_sorts_the_table(page, browser: Chrome) -> None:
    name, path = page
    browser.open(path, DESK)
    if name in ("masked", "one-round", "lost", "split") or "federation" in name or "columns" in name:
        assert name == "one-round" or browser.ask("document.querySelector('table.sort')") is None
        return
    numbers, click = (text.replace("NTH", "1") for text in (NUMBERS, CLICK))
    browser.ask(click)
    assert browser.ask(numbers) == sorted(browser.ask(numbers))
    browser.ask(click)
    assert browser.ask(numbers) == sorted(browser.ask(numbers), reverse=True)
    browser.ask(click.replace("cells[1]", "cells[0]"))
    first = browser.ask(FIRST)
    browser.ask(click.replace("cells[1]", "cells[0]"))
    assert browser.ask(FIRST) != first
    assert browser.troubles == []


def test_a_page_of_a_run_that_goes_on_loads_itself_anew(browser: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    text = PAGES["going-on"](tmp_path).read_text()
    path.write_text(text.replace('content="300"', 'content="1"'))
    browser.open(path, DESK)
    path.write_text(text.replace("<title>", "<title>later "))  # which stays for 300 seconds: no race
    browser.until_shown("document.title.startsWith('later')")
    assert browser.troubles == []


CROSSES = """[...document.querySelectorAll('.stage')]
  .filter(one => one.querySelector('.unit')?.textContent === 'round').map(one => one.querySelector('.cross'))
  .map(cross => cross.classList.contains('on') && parseFloat(cross.getAttribute('x1')))"""
TIP = "document.querySelector('.stage .tip')"


def test_values_are_told_by_pointer_and_by_arrow_keys(browser: Chrome, tmp_path: Path) -> None:
    browser.open(PAGES["run"](tmp_path), DESK)
    assert browser.ask(f"{TIP}.hidden") is True
    browser.ask("document.querySelector('.stage').focus()")
    for key in ("ArrowRight", "ArrowRight"):
        browser.press(key)
    assert browser.ask(f"{TIP}.textContent") == "round 2\ntest set 65%\nsilos' mean 58%"
    shown = browser.ask(CROSSES)
    assert len(shown) > 3
    assert sorted({*shown}) == pytest.approx([100 / 39, 3.75]), "the map has a column a round"
    browser.press("Escape")
    assert browser.ask(f"{TIP}.hidden") is True
    assert {*browser.ask(CROSSES)} == {False}
    box = "(b => [b.left, b.top, b.width, b.height])(document.querySelector('.plot').getBoundingClientRect())"
    left, top, width, height = browser.ask(box)
    browser.point((left + width - 1, top + height / 2))
    assert browser.ask(f"{TIP}.textContent") == "round 40\ntest set 93.5%\nsilos' mean 86.5%"
    assert browser.troubles == []


BOX = """(nth => { const plot = document.querySelectorAll('.plot')[nth];
  plot.scrollIntoView({block: 'center'});
  const box = plot.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })"""


def test_a_value_of_a_silo_is_told_on_the_map(browser: Chrome, tmp_path: Path) -> None:
    browser.open(PAGES["run"](tmp_path), DESK)
    stage = "[...document.querySelectorAll('.stage')].find(one => one.querySelector('image'))"
    nth = browser.ask(f"[...document.querySelectorAll('.plot')].indexOf({stage}.querySelector('.plot'))")
    left, top, width, height = browser.ask(f"{BOX}({nth})")
    browser.point((left + width / 80, top + height / 16))
    assert browser.ask(f"{stage}.querySelector('.tip').textContent") == "round 1\nh 21.00%"
    assert {*browser.ask(CROSSES)} == {0, 1.25}
    browser.ask(f"{stage}.focus()")
    for key in ("ArrowDown", "ArrowRight"):
        browser.press(key)
    assert browser.ask(f"{stage}.querySelector('.tip').textContent") == "round 2\ng 53.00%"
    assert browser.troubles == []


def test_charts_are_zoomed_alike_and_a_key_hides_its_line(browser: Chrome, tmp_path: Path) -> None:
    browser.open(PAGES["run"](tmp_path), DESK)
    views = "[...document.querySelectorAll('.marks')].map(one => one.getAttribute('viewBox'))"
    before = browser.ask(views)
    left, top, width, height = browser.ask(f"{BOX}(0)")
    y = top + height / 2
    browser.point((left + width / 4, y), (left + width / 2, y), (left + 3 * width / 4, y))
    zoomed = browser.ask(views)
    (view,) = {*zoomed} - {*before}
    assert zoomed.count(view) > 1
    first, _, wide, deep = map(float, view.split())
    assert (first, wide, deep) == (pytest.approx(250, abs=5), pytest.approx(500, abs=5), 200)
    ticks = browser.ask(
        "[...document.querySelector('.plot').querySelectorAll('.below')].map(one => one.textContent)"
    )
    assert [11 <= int(tick) <= 31 for tick in ticks] == [True] * len(ticks)
    browser.ask("document.querySelector('.plot').ondblclick()")
    assert browser.ask(views) == before
    shown = "getComputedStyle(document.querySelector('.line.mean')).display"
    assert browser.ask(shown) != "none"
    key = "[...document.querySelectorAll('.keys span')].find(one => one.textContent.startsWith('silos'))"
    browser.ask(f"{key}.click()")
    assert (browser.ask(shown), browser.ask(f"{key}.ariaPressed")) == ("none", "false")
    browser.ask(f"{key}.click()")
    assert browser.ask(shown) != "none"
    assert browser.troubles == []


def test_a_chart_is_saved_as_a_picture_that_opens_alone(browser: Chrome, tmp_path: Path) -> None:
    browser.open(PAGES["run"](tmp_path), DESK)
    browser.ask("URL.createObjectURL = blob => { window.saved = blob; return '#'; }")
    browser.ask("HTMLAnchorElement.prototype.click = () => 0")
    browser.ask("document.querySelector('.save').click()")
    browser.ask("window.saved.text().then(text => { window.text = text; })")
    browser.until_shown("typeof window.text === 'string'")
    path = tmp_path / "saved.svg"
    path.write_text(browser.ask("window.text"))
    ElementTree.parse(path)
    assert "var(" not in path.read_text()
    browser.open(path, DESK)
    assert browser.ask("document.querySelectorAll('path').length") > 3
    assert browser.ask("document.querySelector('text').getBoundingClientRect().width") > 5
    assert browser.troubles == []


def test_what_a_hostile_name_would_bring_does_not_run(browser: Chrome, tmp_path: Path) -> None:
    browser.open(PAGES["run"](tmp_path), DESK)
    evil = "<img src=x onerror='window.hurt=1'><p id=q style='color:rgb(255,0,0)'>"
    browser.ask(f"document.body.insertAdjacentHTML('beforeend', {evil!r})")
    browser.until_shown("document.querySelector('img[src=x]').complete")
    assert browser.ask("window.hurt") is None
    assert browser.ask("getComputedStyle(document.getElementById('q')).color") != "rgb(255, 0, 0)"
    assert any("Content Security Policy" in trouble for trouble in browser.troubles)


def test_a_page_says_the_same_without_its_program(browser: Chrome, tmp_path: Path) -> None:
    page, shown = PAGES["run"](tmp_path), "document.querySelector('main').innerText"
    browser.open(page, DESK)
    told = browser.ask(shown)
    browser.scripting(on=False)
    try:
        browser.open(page, DESK)
        assert browser.ask(shown) == told
    finally:
        browser.scripting(on=True)
    assert browser.troubles == []


ROWS = "[...document.querySelectorAll('table.silos tbody tr')].filter(row => row.checkVisibility()).length"
CHOSEN = "document.querySelector('.line.silo').getAttribute('d')"


def test_the_address_names_a_silo_and_a_row_is_found_and_chosen(browser: Chrome, tmp_path: Path) -> None:
    page = PAGES["run"](tmp_path)
    browser.open(page, DESK)
    assert browser.ask(CHOSEN) == ""
    browser.ask("location.hash = 'silo=long-beach'")
    browser.until_shown("document.querySelector('.chosen') !== null")
    assert browser.ask("document.querySelector('.chosen th').textContent") == "long-beach"
    assert browser.ask("document.querySelector('.keys').textContent").endswith("long-beach 87.50%")
    assert browser.ask(CHOSEN) == browser.ask(
        "document.querySelector('.chosen .spark path').getAttribute('d')"
    )
    browser.ask("document.querySelector('table.silos tbody tr').click()")
    browser.until_shown("document.querySelector('.chosen th').textContent === 'h'")
    assert browser.ask("location.hash") == "#silo=h"
    many = PAGES["many"](tmp_path / "many")
    browser.open(many, DESK)
    assert browser.ask(ROWS) == 0, "the long table is folded"
    browser.ask("location.hash = 'silo=hospital-42'")
    browser.until_shown("document.querySelector('.chosen') !== null")
    assert browser.ask(ROWS) == 200
    find = "document.querySelector('input[type=search]')"
    browser.ask(f"{find}.value = 'PITAL-17'; {find}.dispatchEvent(new Event('input'))")
    assert browser.ask(ROWS) == 11
    assert browser.troubles == []


def test_a_page_of_200_silos_and_5000_rounds_is_shown_at_once(browser: Chrome, tmp_path: Path) -> None:
    page = PAGES["many"](tmp_path)
    took = "(t => t.loadEventEnd - t.responseEnd)(performance.getEntriesByType('navigation')[0])"

    def shown() -> float:
        browser.open(page, DESK)
        return browser.ask(took)

    assert any(shown() < 300 for _ in range(20)), (
        "milliseconds, in one of some tries: others use the machine, too"
    )


CONTRASTS = """
(() => {
  const rgb = (text) => {
    const found = text.match(/[0-9.]+/g).map(Number).map(v => text.startsWith("color(") ? 255 * v : v);
    return found.length < 4 ? [...found, 255] : found;
  };
  const light = (colour) => {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= 0.04 ? v / 12.9 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const written = (one) => [...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  return [...document.querySelectorAll("main *")]
    .filter(one => one.checkVisibility() && !one.closest("svg") && written(one))
    .map(one => {
      const ends = [light(rgb(getComputedStyle(one).color)), light(ground(one))].sort((x, y) => y - x);
      return [(ends[0] + 0.05) / (ends[1] + 0.05), one.className + ": " + one.textContent];
    }).filter(([ratio]) => ratio < 4.5);
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_has_contrast(page, browser: Chrome, dark: bool) -> None:
    browser.open(page[1], DESK, dark)
    assert browser.ask(CONTRASTS) == []
