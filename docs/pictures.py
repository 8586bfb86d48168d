"""Takes the pictures of docs/pictures.md: pages of runs and of a comparison, in headless Chromium.

`make pictures` runs it; it needs the extra `[pages]` and a Chromium on the PATH.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import eqsat

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
READY = "document.documentElement.dataset.ready"
FORCED = ("tiles.matmul=[{mnk: [16, 16, 16], rate: 0.68}]", "tiles_forced=true")


def demo(folder: Path) -> tuple[Path, Path]:
    """The demo's pages: of the joint choice, and beside the policy that keeps the transpose."""
    experiment = eqsat.Experiment.read(ROOT / "experiments" / "quickstart.yaml")
    rows = ("keep", "eqsat")
    results = experiment.run(folder, rows=rows)
    runs = {o.cell.name: o.need_run() for o in results.outcomes}
    page = runs["eqsat"].report(folder / "demo.html")
    beside = folder / "compare.html"
    from eqsat.report.compare.page import write_comparison

    found = eqsat.compare(runs["keep"], runs["eqsat"], names=rows, flip=True, time_limit=60)
    return page, write_comparison(found, beside)


def minilm(folder: Path) -> Path:
    """MiniLM-L6 with every contraction packed."""
    program = eqsat.read("minilm")
    run = eqsat.optimize(program, target="avx512-xla", settings=FORCED, time_limit=120)
    return run.report(folder / "minilm.html")


def shoot(browser: Any, page: Path, name: str, size: tuple[int, int], use: Callable[[Any], None],
          scheme: str = "light") -> None:  # fmt: skip
    """One picture; use: what is done with the page first."""
    width, height = size
    viewport = {"width": width, "height": height}
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(page.as_uri())
    use(tab)
    tab.wait_for_timeout(300)
    tab.screenshot(path=FOLDER / f"{name}.png")
    context.close()


def ready(tab: Any) -> None:
    tab.wait_for_function(READY, timeout=30_000)


def charts(tab: Any) -> None:
    ready(tab)
    tab.locator("#charts").scroll_into_view_if_needed()
    tab.evaluate("document.querySelector('#charts').scrollIntoView()")


def main() -> int:
    """Write every picture; 1 where there is no browser."""
    found = shutil.which("chromium")
    if found is None:
        print("no chromium on the PATH: nothing was written", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        page, beside = demo(folder)
        model = minilm(folder)
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        shoot(browser, page, "demo", (1400, 900), ready)
        shoot(browser, beside, "compare", (1400, 1000), lambda _: None)
        shoot(browser, model, "minilm", (1400, 1100), ready)
        shoot(browser, model, "arena", (1400, 620), charts)
        shoot(browser, model, "dark", (1400, 1100), ready, "dark")
        shoot(browser, page, "phone", (420, 900), ready)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
