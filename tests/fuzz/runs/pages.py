"""Pages in a real browser: they load, reach for nothing, can be used, and are looked at.

    python benchmarks/run.py pages [--only NAME …] [--shots FOLDER] [--time-limit S]

Opens each page in headless Chromium and prints one JSON object: per page its size, dispatches,
milliseconds until all charts are there and to open every layer, and what was wrong: messages on
the console, requests, a page wider than the window, a click on a dispatch, on a row or with the
keyboard that does not show why. Screenshots at 1400 and 420 pixels, light and dark, go to FOLDER.
Not ok if a page is wrong or MiniLM's takes more than two seconds.

Chromium is the one on the PATH, else an attempt is made to install it. Where there is none, the
reason is printed and nothing is checked; that is ok, as the machine is at fault.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gates import say

from fuzz.pageprograms import deep_page, hostile_page, loop_page, run_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIZES = ((1400, 1000), (420, 900))
SCHEMES = ("light", "dark")
MOST_READY_MS = {"minilm": 2000}
MOST_KIB = 5 * 1024
READY = "document.documentElement.dataset.ready"
# where a dispatch that can be seen lies on the screen: its number, x and y
SEEN = """() => {
  const { view, graph } = page.app;
  const box = view.container.getBoundingClientRect();
  for (const [i] of graph.dispatches.entries()) {
    const node = view.cy.getElementById(`d${i}`);
    if (node.empty() || i === page.app.selected) continue;
    const { x, y } = node.renderedPosition();
    if (x > 20 && y > 20 && x < box.width - 20 && y < box.height - 20) {
      return [i, box.left + x, box.top + y];
    }
  }
  return null;
}"""
# where an edge that can be seen lies on the screen
SEEN_EDGE = """() => {
  const { view } = page.app;
  const box = view.container.getBoundingClientRect();
  for (const edge of view.cy.edges().toArray()) {
    const { x, y } = edge.renderedMidpoint();
    const at = [box.left + x, box.top + y];
    const isSeen = x > 20 && y > 20 && x < box.width - 20 && y < box.height - 20;
    if (isSeen && at[1] < innerHeight) return at;
  }
  return null;
}"""
OPEN_ALL = """() => {
  const begin = performance.now();
  page.app.view.openAll();
  return performance.now() - begin;
}"""

Json = dict[str, Any]


def pages(seconds: float) -> dict[str, Callable[[], str]]:
    """Name → what makes the text of the page."""
    return {
        "mlp_784": lambda: run_page("mlp.py:mlp_784", "avx512", seconds),
        "encoder": lambda: run_page("encoder", "avx512-xla", seconds),
        "minilm": lambda: run_page("minilm", "avx512-xla", seconds),
        "resnet50": lambda: run_page("resnet50", "avx512-xla", seconds),
        "loop": loop_page,
        "deep": deep_page,
        "hostile": hostile_page,
    }


# ---- the browser ---------------------------------------------------------------------------------
def find_browser() -> tuple[str | None, str]:
    """The browser's path, and why there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = ["apt-get", "install", "--yes", "--quiet", "chromium"]
        subprocess.run(install, check=False, stdout=subprocess.DEVNULL, timeout=300)
        found = shutil.which("chromium")
    return found, "" if found else f"none of {', '.join(BROWSERS)} is on the PATH"


def look(name: str, path: Path, browser: Any, shots: Path) -> Json:
    """Everything that is checked of one page."""
    found: Json = {"kib": path.stat().st_size // 1024, "wrong": []}
    if found["kib"] > MOST_KIB:
        found["wrong"].append(f"larger than {MOST_KIB} KiB")
    for width, height in SIZES:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            tab, told = context.new_page(), []
            watch(tab, told, path)
            tab.goto(path.as_uri())
            tab.wait_for_function(READY, timeout=30_000)
            found.setdefault("ready_ms", int(tab.evaluate(READY)))
            found.setdefault("dispatches", tab.evaluate("page.app.graph.dispatches.length"))
            told += use(tab)
            found.setdefault("open_all_ms", int(tab.evaluate(OPEN_ALL)))
            tab.evaluate("page.app.view.foldAll(); page.app.showGraph('after')")
            tab.wait_for_timeout(100)
            tab.evaluate("scrollTo(0, 0)")
            tab.screenshot(path=shots / f"{name}_{width}_{scheme}.png")
            tab.screenshot(path=shots / f"{name}_{width}_{scheme}_all.png", full_page=True)
            found["wrong"] += [f"{width} {scheme}: {what}" for what in told]
            context.close()
    if found["ready_ms"] > MOST_READY_MS.get(name, sys.maxsize):
        found["wrong"].append(f"{found['ready_ms']} ms until it is ready")
    return found


def watch(tab: Any, told: list[str], path: Path) -> None:
    """Write down what a page says on its console, asks of the network, or opens."""

    def asked(request: Any) -> None:
        if request.url != path.as_uri() and not request.url.startswith(("data:", "blob:")):
            told.append(f"asks for {request.url[:100]}")

    tab.on("console", lambda message: told.append(f"console: {message.text[:200]}"))
    tab.on("pageerror", lambda error: told.append(f"error: {error}"))
    tab.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
    tab.on("request", asked)


def use(tab: Any) -> Iterator[str]:
    """What does not work: a click on the graph, on the table, keys, the search, an open layer."""
    if tab.evaluate("document.documentElement.scrollWidth > innerWidth"):
        yield "wider than the window"
    tab.locator("#graph").scroll_into_view_if_needed()
    if (seen := tab.evaluate(SEEN)) is not None:
        number, x, y = seen
        tab.mouse.click(x, y)
        yield from told_of(tab, number, "a click on the graph")
    last = tab.evaluate("page.app.graph.dispatches.length") - 1
    row = tab.locator("#table tr:not(.heading) button.name").nth(last)
    row.focus()
    tab.keyboard.press("Enter")
    yield from told_of(tab, last, "Enter in the table")
    tab.locator("#graph").focus()
    tab.keyboard.press("ArrowUp")
    yield from told_of(tab, max(0, last - 1), "an arrow key in the graph")
    tab.locator("#search").fill("no such op")
    if tab.locator("#found").inner_text() != "0 found":
        yield "a search finds what is not there"
    tab.locator("#search").fill("")
    tab.locator("#before").click()
    if tab.locator("#before").get_attribute("aria-pressed") != "true":
        yield "what was before is not shown"
    tab.locator("#after").click()
    if (edge := tab.evaluate(SEEN_EDGE)) is not None:
        tab.mouse.click(*edge)
        if "value" not in tab.locator("#panel h2").inner_text():
            yield "a click on an edge does not tell its values"
    yield from into_bodies(tab)


def into_bodies(tab: Any) -> Iterator[str]:
    """Into the body of a loop and back again."""
    holds = tab.evaluate("page.app.graph.dispatches.findIndex((d) => d.bodies.length)")
    if holds < 0:
        return
    tab.evaluate(f"page.app.select({holds}, 'table')")
    tab.get_by_role("button", name="open body").click()
    if not tab.evaluate("page.app.graph.parent === 'after' && page.app.selected !== null"):
        yield "the body of a loop is not shown"
    tab.locator("#path button").first.click()
    yield from told_of(tab, holds, "the way back from a body")


def told_of(tab: Any, number: int, after: str) -> Iterator[str]:
    """What is missing of a dispatch that was chosen: its panel, its row, its mark in the graph."""
    heading = tab.locator("#panel h2").inner_text()
    if not heading.startswith(f"{number} · "):
        yield f"{after}: the panel tells of `{heading}`, not of {number}"
    if (
        tab.evaluate("page.app.graph.dispatches[page.app.selected].why.length")
        and not tab.locator("#panel details").count()
    ):
        yield f"{after}: the panel does not tell why"
    if not tab.evaluate("page.app.view.cy.nodes('.marked').nonempty()"):
        yield f"{after}: nothing is marked in the graph"
    if tab.locator("#table tr[aria-current] td").first.inner_text() != str(number):
        yield f"{after}: another row is marked"


# ---- all of them ---------------------------------------------------------------------------------
def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--shots", type=Path, default=Path("results/pages"))
    parser.add_argument("--time-limit", type=float, default=30.0, metavar="S", help="of a search")


def measured(asked: argparse.Namespace) -> Json:
    browser_path, reason = find_browser()
    if importlib.util.find_spec("playwright") is None:
        reason = "playwright is not installed: pip install 'eqsat[pages]'"
    if reason:
        say(f"PAGES ARE NOT CHECKED: {reason}")
        return {"ok": True, "skipped": reason}
    from playwright.sync_api import sync_playwright

    asked.shots.mkdir(parents=True, exist_ok=True)
    makers = pages(asked.time_limit)
    chosen = asked.only or list(makers)
    result: Json = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name in chosen:
            path = Path(folder) / f"{name}.html"
            path.write_text(makers[name](), encoding="utf-8")
            result[name] = look(name, path, browser, asked.shots)
            say(f"{name}: {json.dumps(result[name])}")
        version = browser.version
        browser.close()
    wrong = any(found["wrong"] for found in result.values())
    return {"ok": not wrong, "browser": version, "pages": result}
