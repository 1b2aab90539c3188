"""The built documentation site in a headless Chromium, served on the loopback interface."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlparse

import pytest

from tests.support.browser import MISSING, open_browser
from tests.support.polling import wait_until

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(bool(MISSING), reason=MISSING)]

TASKS = [
    "faq/",
    "tutorials/every-night/",
    "how-to/own-data/",
    "how-to/images/",
    "how-to/several-gpus/",
    "how-to/logs/",
    "how-to/cost/",
    "how-to/schedules/",
    "how-to/upgrade/",
    "how-to/aws/",
    "how-to/air-gapped/",
    "how-to/queues/",
    "how-to/why-a-job-waits/",
    "how-to/resume/",
    "how-to/fine-tune-another-model/",
    "how-to/from-training-operator/",
]
# A front page, a tutorial, generated reference pages, wide tables, and a page with diagrams.
PAGES = [
    "",
    "explanation/comparison/",
    "tutorials/laptop/",
    "reference/python/trainjob/",
    "reference/command-options/",
    "reference/airflow/",
    "evidence/conformance/",
    "explanation/adoption/",
]


# What readers type, and the pages of which one has to be among the first three results.
SEARCHES = {
    "8 gpus 2 nodes": ["how-to/several-gpus/"],
    "alerts": ["how-to/failure-notifications/", "how-to/metrics/"],
    "architecture": ["explanation/architecture/"],
    "aws": ["how-to/aws/"],
    "azure": ["how-to/azure/"],
    "backfill": ["how-to/schedules/"],
    "checkpoint": ["how-to/resume/"],
    "cost": ["how-to/cost/"],
    "cron": ["how-to/schedules/"],
    "csv": ["how-to/own-data/"],
    "csv every night": ["tutorials/every-night/"],
    "delete": ["how-to/clean-up/"],
    "deprecation": ["explanation/versioning/"],
    "dpo": ["how-to/preference-tuning/"],
    "FineTuneOperator": ["reference/airflow-api/"],
    "gpu": ["tutorials/lora-on-a-gpu/", "how-to/several-gpus/"],
    "fsdp": ["how-to/several-gpus/"],
    "google cloud": ["how-to/google-cloud/"],
    "hardening": ["how-to/hardening/"],
    "hf token": ["faq/"],
    "hugging face token": ["tutorials/lora-on-a-gpu/", "faq/"],
    "image": ["how-to/images/", "how-to/air-gapped/"],
    "install": ["how-to/installation/"],
    "iam role": ["how-to/aws/"],
    "irsa": ["how-to/aws/"],
    "kueue": ["how-to/queues/"],
    "logs": ["how-to/logs/"],
    "logs after the pod is gone": ["how-to/logs/", "faq/"],
    "lora": ["tutorials/lora-on-a-gpu/"],
    "minio": ["how-to/object-stores/"],
    "mlflow": ["how-to/tracking/"],
    "multi node": ["how-to/several-gpus/"],
    "nfs": ["how-to/storage/"],
    "offline": ["how-to/air-gapped/"],
    "oom": ["reference/errors/", "how-to/troubleshooting/", "faq/"],
    "out of memory": ["reference/errors/", "how-to/troubleshooting/", "faq/"],
    "own image": ["how-to/images/", "faq/"],
    "partition": ["how-to/schedules/"],
    "permissions": ["reference/permissions/", "how-to/platform/"],
    "preemption": ["how-to/queues/", "how-to/resume/"],
    "production": ["how-to/production-checklist/", "tutorials/airflow/"],
    "proxy": ["how-to/air-gapped/"],
    "pytorchjob": ["how-to/from-training-operator/"],
    "queue": ["how-to/queues/"],
    "rbac": ["how-to/platform/", "reference/permissions/"],
    "resume": ["how-to/resume/", "how-to/resume-a-function/"],
    "s3": ["how-to/object-stores/"],
    "slack": ["how-to/failure-notifications/"],
    "shared memory": ["how-to/several-gpus/", "faq/"],
    "spot instances": ["how-to/resume/", "faq/"],
    "storage class": ["how-to/storage/"],
    "standalone": ["tutorials/every-night/"],
    "upgrade": ["how-to/upgrade/"],
    "windows": ["faq/"],
    "yesterday": ["how-to/schedules/", "faq/"],
    "workload identity": ["how-to/google-cloud/", "how-to/azure/", "how-to/object-stores/"],
}


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


def build_site(name, *options):
    """Build the site, and return its folder."""
    if not (ROOT / ".venv" / "docs" / ".ready").exists():
        pytest.skip("needs .venv/docs, which `make docs` creates")
    # The depth of the folder matters, because zensical.toml names the packages relative to it.
    done = subprocess.run(
        ["make", "docs", f"SITE=.cache/{name}", *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / ".cache" / name / "html"


@pytest.fixture(scope="module")
def site():
    return build_site("site-of-the-test")


@contextlib.contextmanager
def serve(folder):
    """Serve a site, as `python -m http.server` does, and yield its address."""
    handler = functools.partial(_QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def address(site):
    with serve(site) as address:
        yield address


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def browser(request, tmp_path_factory):
    width, scheme = request.param
    with open_browser(tmp_path_factory.mktemp("browser") / "profile", (1280, 900)) as browser:
        browser.driver.get("about:blank")
        browser.run_command(
            "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=width < 500
        )
        browser.run_command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        yield browser


def open_page(browser, address):
    """Open a page, and wait until its images are loaded."""
    browser.requests(), browser.errors()
    browser.driver.get(address)
    browser.evaluate("document.querySelectorAll('img').forEach((image) => (image.loading = 'eager'))")
    wait_until(lambda: browser.evaluate("[...document.images].every((image) => image.complete)"), 30)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.rstrip("/") or "front page")
def test_a_page_is_complete_and_needs_no_other_host(browser, address, page):
    open_page(browser, address + page)
    assert browser.find("h1")
    assert (
        browser.evaluate("[...document.images].filter((image) => !image.naturalWidth).map((image) => image.src)") == []
    )
    if browser.find(".mermaid"):
        wait_until(lambda: not browser.find("pre.mermaid"), 30)
    assert [url for url in browser.requests() if url.startswith("http") and not url.startswith(address)] == []
    assert [error["message"] for error in browser.errors()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.rstrip("/") or "front page")
def test_wide_content_scrolls_inside_the_page(browser, address, page):
    open_page(browser, address + page)
    assert browser.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0


def pages_with_diagrams(site):
    """Yield each page with diagrams, and their number."""
    for file in sorted(site.rglob("*.html")):
        diagrams = file.read_text(encoding="utf-8").count('<pre class="mermaid">')
        if diagrams:
            yield f"{file.parent.relative_to(site)}/", diagrams


def test_every_diagram_is_an_svg_image(browser, address, site):
    """The theme replaces a diagram's text by an SVG image in a closed shadow root; only the protocol sees inside."""

    def images(node):
        inside = [*node.get("shadowRoots", []), *node.get("children", [])]
        if "mermaid" in node.get("attributes", []):
            return [name for root in node.get("shadowRoots", []) for name in find_names(root) if name == "svg"]
        return [image for child in inside for image in images(child)]

    def find_names(node):
        return [child["nodeName"].lower() for child in node.get("children", [])]

    pages = dict(pages_with_diagrams(site))
    assert pages
    for page, diagrams in pages.items():
        open_page(browser, address + page)
        wait_until(lambda: not browser.find("pre.mermaid"), 60)
        document = browser.run_command("DOM.getDocument", depth=-1, pierce=True)
        assert images(document["root"]) == ["svg"] * diagrams, page


def test_a_page_without_diagrams_does_not_load_their_script(browser, address):
    open_page(browser, address + "tutorials/laptop/")
    requests = browser.requests()
    assert any(url.endswith("mermaid_loader.js") for url in requests)
    assert not any(url.endswith("mermaid.min.js") for url in requests)


def test_the_copy_button_copies_commands_only(browser, address):
    """The theme copies the text that is displayed while the block has the attribute `data-md-copying`."""
    open_page(browser, address + "tutorials/laptop/")
    copied = browser.evaluate(
        "(() => { const blocks = [...document.querySelectorAll('pre code')];"
        "const block = blocks.find((code) => /Complete/.test(code.innerText));"
        "block.setAttribute('data-md-copying', ''); return block.innerText; })()"
    )
    assert copied.strip() == "trainjob demo --framework trl"


SEARCH = "[...document.querySelectorAll('*')].find((host) => host.shadowRoot?.querySelector('input'))?.shadowRoot"


def test_the_comparison_fits_a_desktop(browser, address):
    open_page(browser, address + "explanation/comparison/")
    frame = wait_until(lambda: browser.find("article .md-typeset__scrollwrap"), 10)[0]
    width, inside = (frame.get_property(name) for name in ("clientWidth", "scrollWidth"))
    if width < 500:
        pytest.skip("on a phone, the table scrolls inside its frame")
    assert inside <= width


@pytest.fixture(scope="module")
def search(address, tmp_path_factory):
    """Return a function that searches for words and returns the pages of the results."""
    from selenium.webdriver.common.keys import Keys

    with open_browser(tmp_path_factory.mktemp("search") / "profile", (1280, 900)) as browser:
        open_page(browser, address)
        browser.find(".md-search__button")[0].click()
        field = wait_until(lambda: browser.evaluate(f"{SEARCH}?.querySelector('input')"))

        def find(words):
            # The list keeps earlier results until there are others, so a query without any result comes first.
            shown = f"[...{SEARCH}.querySelectorAll('a')].map((link) => link.href)"
            field.send_keys(Keys.CONTROL, "a")
            browser.run_command("Input.insertText", text="zzzz")
            wait_until(lambda: browser.evaluate(shown) == [], 10)
            field.send_keys(Keys.CONTROL, "a")
            browser.run_command("Input.insertText", text=words)
            results = wait_until(lambda: browser.evaluate(shown), 10)
            return [result.removeprefix(address).partition("?")[0] for result in results]

        yield find


@pytest.mark.parametrize("words", SEARCHES)
def test_the_search_shows_the_page_for_users_among_the_first_three(search, site, words):
    assert all((site / page).exists() for page in SEARCHES[words])
    found = search(words)[:3]
    assert set(found) & set(SEARCHES[words]), found


def test_the_search_omits_evidence_and_internal_packages(site):
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    pages = {item["location"].partition("#")[0] for item in items}
    assert {page for page in pages if page.startswith(("evidence/", "reference/python/packages"))} == set()


def test_each_page_has_a_description_of_its_own(site):
    pages = {
        item["location"].partition("#")[0] for item in json.loads((site / "search.json").read_text("utf-8"))["items"]
    }
    texts = {page: (site / page / "index.html").read_text(encoding="utf-8") for page in pages}
    found = {page: re.search(r'<meta name="description" content="([^"]+)"', text)[1] for page, text in texts.items()}
    assert len(set(found.values())) == len(found)
    assert [
        page for page, text in found.items() if f'<meta property="og:description" content="{text}"' not in texts[page]
    ] == []


def test_pages_for_new_users_are_two_clicks_from_the_front_page(site):
    def links(page: str) -> set[str]:
        text = (site / page / "index.html").read_text(encoding="utf-8")
        content = text[text.index("<article") : text.index("</article>")]
        base = f"http://site/{page}"
        targets = {urldefrag(urljoin(base, target)).url for target in re.findall(r'<a [^>]*?href="([^"]+)"', content)}
        return {t.removeprefix("http://site/") for t in targets if t.startswith("http://site/")}

    first = links("")
    second = {target for page in first if (site / page / "index.html").exists() for target in links(page)}
    assert set(TASKS) - first - second == set()


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Build the site of a repository with releases, and return its folder."""
    site = build_site("versioned-site-of-the-test", "VERSIONED=1")
    clone, folder = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("site") / "versions"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    for tag in ("v0.1.0", "v0.1.1", "not-a-release"):
        subprocess.run(["git", "tag", tag], cwd=clone, check=True)
    program = [sys.executable, clone / "tools/docs/assemble_versions.py", site, folder]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_a_reader_selects_a_version(browser, versions):
    with serve(versions) as address:
        browser.driver.get(address)
        wait_until(lambda: browser.driver.current_url == f"{address}0.1/", 30)
        names = (
            "[...document.querySelectorAll('.md-version__link')].map((link) => [link.textContent.trim(), link.href])"
        )
        wait_until(lambda: browser.evaluate(names), 30)
        assert [[name, urlparse(link).path] for name, link in browser.evaluate(names)] == [
            ["0.1.1", "/0.1/"],
            ["dev (not released)", "/dev/"],
        ]
        browser.driver.get(f"{address}dev/faq/")
        assert browser.find("h1")
