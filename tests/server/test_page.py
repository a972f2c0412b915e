"""The page, driven in a real browser. Skipped where Playwright or Chromium is not installed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sapwood.runtime.client import Client

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: apt-get install chromium"),
]
ROBOT = "#turns .turn.assistant >> nth=-1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """The page, ready; a script error on it fails the test."""
    page = browser.new_page(viewport={"width": 1400, "height": 800})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    page.wait_for_selector("#status[data-state=up]")
    yield page
    page.close()
    assert not errors


def say(page: Any, text: str) -> None:
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def finished(page: Any) -> str:
    page.wait_for_selector(f"{ROBOT} >> .tools button")
    text: str = page.inner_text(f"{ROBOT} >> .text")
    return text


def test_an_answer_streams_and_its_tokens_show_their_probabilities(page: Any) -> None:
    page.fill("#max_tokens", "12")
    say(page, "hello")
    finished(page)
    assert "prompt tokens from the tree" in page.inner_text(ROBOT)
    page.hover(f"{ROBOT} >> .token >> nth=0")
    assert "%" in page.inner_text("#tip")


def test_an_answer_can_be_stopped_and_the_next_one_given(page: Any) -> None:
    page.fill("#max_tokens", "100000")
    say(page, "go on for ever")
    page.wait_for_selector("#stop:visible")
    page.keyboard.press("Escape")
    page.wait_for_selector("#turns .turn.stopped")
    page.fill("#max_tokens", "3")
    say(page, "again")
    finished(page)


def test_a_turn_is_forked_and_its_branches_compared(page: Any) -> None:
    page.fill("#max_tokens", "8")
    say(page, "hello")
    first = finished(page)
    page.click(f"{ROBOT} >> text=Fork")
    page.wait_for_selector(f"{ROBOT} >> text=2/2")
    second = finished(page)
    page.click(f"{ROBOT} >> text=‹")
    assert finished(page) == first
    page.click(f"{ROBOT} >> text=Compare")
    assert [box.inner_text() for box in page.query_selector_all(".compare > div")] == [first, second]


def test_a_schema_shapes_the_answer_and_a_broken_one_is_named(page: Any) -> None:
    page.check("#constrain")
    page.fill("#schema", "{")
    say(page, "hello")
    assert "not JSON" in page.inner_text("#schema-error")
    page.fill("#schema", '{"enum": ["yes"]}')
    page.press("#prompt", "Enter")
    assert finished(page) == '"yes"'


def test_the_tree_grows_with_what_is_said(page: Any) -> None:
    say(page, "something that nobody has said before")
    finished(page)
    page.wait_for_function("Number(document.getElementById('tree').dataset.nodes) > 0")
    page.focus("#tree")
    page.keyboard.press("ArrowDown")
    assert "tokens" in page.inner_text("#tip")


def test_a_phone_shows_one_panel_at_a_time(browser: Any, url: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 780}, color_scheme="dark")
    page.goto(url)
    assert page.is_visible("#chat") and not page.is_visible("#watch")
    page.click("text=Tree")
    assert page.is_visible("#watch") and not page.is_visible("#chat")
    page.close()


def test_a_killed_backend_shows_and_comes_back(browser: Any, serve: Callable[..., str]) -> None:
    with Client.launch("fake") as client:
        page = browser.new_page()
        page.goto(serve(client))
        page.wait_for_selector("#status[data-state=up]")
        assert client._process
        os.kill(client._process.pid, signal.SIGKILL)
        page.wait_for_selector("#banner:visible")
        page.wait_for_selector("#status[data-state=up]", timeout=20_000)
        page.fill("#max_tokens", "3") if page.is_visible("#max_tokens") else None
        say(page, "hello again")
        finished(page)
        page.close()
