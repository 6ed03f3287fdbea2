"""Every page in a real browser, on a desk and on a phone: nothing goes wrong, and nothing is cut or tiny."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.chrome import Chrome
from browser.conftest import PAGES

DESK, PHONE = 1280, 390
LEAST = 14
"""Pixels of text on a phone."""
SCROLLED = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIRST = "document.querySelector('table.sort tbody th').textContent"
NUMBERS = """[...document.querySelectorAll('table.sort tbody tr')]
  .map(row => parseFloat(row.cells[NTH].dataset.value)).filter(value => !isNaN(value))"""
CLICK = "document.querySelector('table.sort thead').rows[0].cells[NTH].click()"
CUT = """[...document.querySelectorAll('details')].filter(one => one.textContent.includes('not chosen'))
  .map(one => one.querySelector('.scroll')).map(one => one.scrollWidth - one.clientWidth)"""


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, browser: Chrome, tmp_path_factory: pytest.TempPathFactory):
    return request.param, PAGES[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(("width", "dark"), [(DESK, False), (PHONE, False), (PHONE, True)], ids=str)
def test_a_page_is_whole(page, browser: Chrome, pictures: Path, width: int, dark: bool) -> None:
    name, path = page
    browser.open(path, width, dark)
    browser.picture(pictures / f"{name}-{width}{'-dark' * dark}.png")
    assert browser.troubles == []
    assert browser.ask(SCROLLED) <= 0, "it scrolls sideways"
    assert browser.ask(CUT) in ([], [0]), "the weights of silos are cut"
    if width == PHONE:
        assert browser.smaller_than(LEAST) == []
    luminance = browser.ask("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g)[0]")
    assert (int(luminance) < 100) is dark


def test_a_heading_sorts_the_table(page, browser: Chrome) -> None:
    name, path = page
    browser.open(path, DESK)
    if name == "masked" or "federation" in name or "columns" in name:
        assert browser.ask("document.querySelector('table.sort')") is None
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
    path.write_text(text.replace('content="300"', 'content="0.2"'))
    browser.open(path, DESK)
    path.write_text(text.replace("<title>", "<title>later "))
    browser.until_shown("document.title.startsWith('later')")
    assert browser.troubles == []
