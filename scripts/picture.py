"""Makes a picture of the beginning of a report, down to the end of its timeline, for a page of the documentation.

picture.py REPORT.html PICTURE.png [light|dark]
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1200, 900


def main(report: Path, picture: Path, scheme: str = "light") -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
        page.goto(report.resolve().as_uri())
        page.wait_for_timeout(500)  # canvases are drawn with the next frame
        section = page.locator("#timeline-section").bounding_box()
        end = int(section["y"] + section["height"]) + 16
        page.screenshot(path=picture, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": end})
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
