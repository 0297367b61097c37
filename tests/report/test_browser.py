"""The reports in a browser, on a desk and on a phone: nothing overflows, breaks or complains."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from bench.report.data import read_result
from bench.report.html import write_report
from tests.report.made import recovery_result, references

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
WIDTHS = {"desk": 1280, "phone": 390}
PROBE = """<script>
window.addEventListener("load", () => {
  const root = document.documentElement, images = [...document.images];
  const wide = [...document.querySelectorAll("main *")].filter((e) =>
    !e.closest(".scroll, pre, details:not([open])") && e.getBoundingClientRect().right > root.clientWidth + 1);
  parent.postMessage([window.innerWidth, root.scrollWidth, images.length,
    images.filter((image) => !image.complete || image.naturalWidth === 0).length, wide.length].join(" "), "*");
});
</script></body>"""
# A window is never narrower than 500 pixels, a frame may be.
FRAME = """<!doctype html><title>frame</title><script>
window.addEventListener("message", (event) => { document.documentElement.dataset.found = event.data; });
</script><iframe src="probed.html" style="width: WIDTHpx; height: 900px; border: 0"></iframe>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium (.ci/run installs it)"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The page of every reference result, and of a made one with faults."""
    folders = references() | {"made_recovery": recovery_result(tmp_path_factory.mktemp("made") / "result")}
    return {
        name: write_report(read_result(folder, "run"), tmp_path_factory.mktemp(name))
        for name, folder in folders.items()
    }


NAMES = [*sorted(references()), "made_recovery"]


def browse(page: Path, width: int, *options: str) -> subprocess.CompletedProcess[str]:
    profile = page.parent / f"profile-{width}"
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
    logging = ["--enable-logging=stderr", "--virtual-time-budget=10000", f"--window-size={width},900"]
    command = [str(CHROMIUM), *quiet, *logging, *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)


@pytest.mark.parametrize("where", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_report_fits_shows_its_figures_and_says_nothing_on_the_console(name, where, pages):
    probed = pages[name].with_name("probed.html")
    probed.write_text(pages[name].read_text().replace("</body>", PROBE))
    frame = probed.with_name("frame.html")
    frame.write_text(FRAME.replace("WIDTH", str(WIDTHS[where])))
    done = browse(frame, 1400, "--dump-dom")
    found = re.search(r'data-found="([\d ]+)"', done.stdout)
    assert found, "the page came to its end"
    inner, scroll, images, broken, wide = map(int, found[1].split())
    assert inner == WIDTHS[where]
    assert scroll <= inner, "the page as a whole scrolls sideways"
    assert wide == 0, "an element reaches beyond the page"
    assert images >= 4
    assert broken == 0
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []


@pytest.mark.parametrize("where", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_screenshot_can_be_taken(name, where, pages, tmp_path):
    picture = tmp_path / "page.png"
    browse(pages[name], WIDTHS[where], f"--screenshot={picture}")
    content = picture.read_bytes()
    assert struct.unpack(">II", content[16:24]) == (WIDTHS[where], 900)
    assert len(content) > 20_000, "an empty page is smaller"
