"""Looks at every page of the built site in Chromium, wide and light, then narrow and dark.

`scripts/docs --check` runs it. It installs Playwright and axe-core in a temporary directory, and
prints a line for each fault. CHROMIUM is the path of the browser, if PATH does not have it.
"""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import venv
from pathlib import Path
from urllib.parse import unquote, urldefrag

SIZES = ((1280, "light"), (390, "dark"))
AXE = "axe-core@4.14.1"
# Broken images, links, what they may lead to, whether the page is wider than the screen, and axe.
LOOK = """async () => ({
  images: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
  links: [...document.querySelectorAll("a[href]")].map(a => a.href),
  ids: [...document.querySelectorAll("[id]")].map(e => e.id),
  wide: document.documentElement.scrollWidth > innerWidth,
  axe: (await axe.run()).violations.map(v => `${v.id}: ${v.nodes[0].html.slice(0, 120)}`),
})"""


class Handler(http.server.SimpleHTTPRequestHandler):
    """A handler that prints nothing."""

    def log_message(self, *words):
        """Print nothing."""


def look(page, axe, home, urls):
    """Return the faults of all pages, and the anchors and the links of each."""
    faults, ids, links = set(), {}, {}

    def note(fault):
        faults.add((page.url, fault))

    page.on("console", lambda message: message.type == "error" and note(message.text))
    page.on("pageerror", lambda error: note(str(error)))
    page.on("requestfailed", lambda request: note(f"request failed: {request.url}"))
    page.on("request", lambda one: one.url.startswith(home) or note(f"foreign: {one.url[:99]}"))
    for url in urls:
        page.goto(url)
        page.add_script_tag(path=axe)
        seen = page.evaluate(LOOK)
        ids[page.url], links[page.url] = {*seen["ids"], ""}, seen["links"]
        for fault in (*seen["images"], *seen["axe"], *["wider than the screen"] * seen["wide"]):
            note(fault)
    return faults, ids, links


def check(site, axe):
    """Print the faults of a site, and return whether there are any."""
    from playwright.sync_api import sync_playwright

    handler = functools.partial(Handler, directory=site)
    server = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home, faults = f"http://localhost:{server.server_port}/", set()
    # The index of the root only leads to another page.
    paths = sorted({path.relative_to(site) for path in site.rglob("*.html")} - {Path("index.html")})
    with sync_playwright() as play:
        program = (
            os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
        )
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width, scheme in SIZES:
            page = browser.new_page(
                viewport={"width": width, "height": 844},
                color_scheme=scheme,
                reduced_motion="reduce",
            )
            found, ids, links = look(page, axe, home, [f"{home}{path}" for path in paths])
            faults |= {(url, f"{width} pixels, {scheme}: {fault}") for url, fault in found}
        browser.close()
    for url, target in ((url, target) for url, of_page in links.items() for target in of_page):
        path, anchor = urldefrag(target)
        is_there = (site / path.removeprefix(home)).exists() and unquote(anchor) in ids.get(
            path, [""]
        )
        if target.startswith(home) and not is_there:
            faults.add((url, f"broken link: {target}"))
    print(*sorted(f"{url.removeprefix(home)}: {fault}" for url, fault in faults), sep="\n")
    print(f"{len(paths)} pages, {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    if sys.argv[2:]:
        sys.exit(check(Path(sys.argv[1]).absolute(), sys.argv[2]))
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        subprocess.run([f"{folder}/bin/pip", "install", "-q", "playwright"], check=True)
        subprocess.run(["npm", "install", "--silent", "--prefix", folder, AXE], check=True)
        words = [sys.argv[1], f"{folder}/node_modules/axe-core/axe.min.js"]
        sys.exit(subprocess.run([f"{folder}/bin/python", __file__, *words], check=False).returncode)
