"""Draw the picture of a report that the README shows: `.venv/bin/python scripts/picture.py`.

The report is that of the README's three commands, as a page, photographed by headless Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "report.png"
VIEW = {"width": 1400, "height": 1110}  # CSS pixels
MOST_BYTES = 200_000


def main() -> int:
    """Write the picture; 1 where no Chromium is, or the picture is too large for a repository."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.stderr.write("scripts/picture.py: no Chromium. Run 'apt-get install chromium'.\n")
        return 1
    collscope = str(Path(sys.executable).with_name("collscope"))
    with tempfile.TemporaryDirectory() as folder:
        page, db = Path(folder, "report.html"), ("--db", str(Path(folder, "job.db")))
        for words in (
            ("ingest", "trace", "samples/traces/ringll"),
            ("report", "--system", "h200", "--format", "html", "-o", str(page)),
        ):
            subprocess.run([collscope, *words, *db], cwd=ROOT, check=True)
        _photograph(browser, page)
    size = PICTURE.stat().st_size
    if size > MOST_BYTES:
        sys.stderr.write(f"{PICTURE}: {size} B are too many. Make the view smaller.\n")
        return 1
    return 0


def _photograph(browser: str, page: Path) -> None:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = chromium.new_page(viewport=VIEW, color_scheme="light", offline=True)
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready]")
        tab.screenshot(path=PICTURE)
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())
