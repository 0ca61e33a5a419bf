"""``python -m tests.testing.screenshots FOLDER``: the status page as pictures for the docs, dark, light and on a phone."""

from __future__ import annotations

import sys
from pathlib import Path

from metrics.exporter import Exporter
from tests.testing.browser import browser, minutes

VIEWS = {
    "status-light": ("light", 1280, 1150),
    "status-dark": ("dark", 1280, 1150),
    "status-phone": ("dark", 390, 844),
}


def main(folder: Path) -> None:
    """Write them."""
    folder.mkdir(parents=True, exist_ok=True)
    exporter = Exporter("127.0.0.1", 0)
    exporter.start()
    for snapshot in minutes():
        exporter.publish(snapshot)
    with browser() as started:
        for name, (scheme, width, height) in VIEWS.items():
            page = started.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
            page.goto(f"http://127.0.0.1:{exporter.port}/")
            page.wait_for_selector("#nodes .curve")
            page.screenshot(path=folder / f"{name}.png", full_page=True)
            page.close()
    exporter.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
