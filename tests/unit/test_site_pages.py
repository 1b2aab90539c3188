"""Tests of tools/docs/stage.py, which checks the pages and prepares the documentation site."""

from __future__ import annotations

import json

import pytest

from tools.docs import llms_txt, page_metadata, search_index, stage

OWN = "https://github.com/trainjob/trainjob/blob/main"
NAMES = ["README.md", "docs/index.md", "docs/how-to/queues.md", "docs/images/page.png", "examples/airflow/queued.py"]
QUEUES = "# Queues: Kueue\n\n## Why `it` [waits](../index.md)\n"


def check(text, page="docs/how-to/page.md"):
    pages = {page: text, "docs/how-to/queues.md": QUEUES, "docs/index.md": "# Home\n"}
    return [(found.page, found.line, found.message) for found in stage.check_pages(pages, [*NAMES, page])]


@pytest.mark.parametrize(
    "target",
    [
        "queues.md",
        "queues.md#queues-kueue",
        "queues.md#why-it-waits",
        "#page",
        "../index.md#home",
        "../../examples/airflow",
        "../../examples/airflow/queued.py",
        f"{OWN}/docs/how-to/queues.md#why-it-waits",
        "https://example.org/docs/nowhere.md#nothing",
        "mailto:security@example.org",
    ],
)
def test_a_link_to_an_existing_file_or_heading_is_accepted(target):
    assert check(f"# Page\n\nSee [this]({target}).\n") == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("kueue.md", "kueue.md: the file docs/how-to/kueue.md does not exist"),
        ("queues.md#kueue", "queues.md#kueue: docs/how-to/queues.md has no heading with this anchor"),
        ("#nothing", "#nothing: docs/how-to/page.md has no heading with this anchor"),
        ("../../examples/lost.py", "../../examples/lost.py: the file examples/lost.py does not exist"),
        (f"{OWN}/docs/queues.md", f"{OWN}/docs/queues.md: the file docs/queues.md does not exist"),
    ],
)
def test_a_link_to_nothing_is_reported_with_its_line(target, message):
    assert check(f"# Page\n\nSee [this]({target}).\n") == [("docs/how-to/page.md", 3, message)]


def test_links_and_headings_in_code_do_not_count():
    text = "# Page\n\n```text\n[a](b.md)\n# Lost\n```\n\nA span `[a](b.md)`.\n\n[no](#lost)\n"
    assert check(text) == [("docs/how-to/page.md", 10, "#lost: docs/how-to/page.md has no heading with this anchor")]


def test_lists_that_python_markdown_would_not_render_are_reported():
    assert check("# Page\n\nText:\n* one\n") == [("docs/how-to/page.md", 4, "write a blank line before a list")]
    assert check("# Page\n\n* one\n  * two\n") == [("docs/how-to/page.md", 4, "indent a nested list by 4 spaces")]
    assert check("# Page\n\n* one\n  more\n* two\n    * three\n\n1. four\n") == []


def test_the_lists_of_pages_outside_the_site_are_not_checked():
    assert check("# Page\n\nText:\n* one\n", "README.md") == []


def test_links_out_of_docs_become_web_addresses():
    text = "[example](../../examples/airflow/sweep.py), [all](../../examples/airflow), [page](queues.md#a)\n"
    assert stage.with_web_addresses("docs/how-to/page.md", text) == (
        f"[example]({OWN}/examples/airflow/sweep.py), "
        "[all](https://github.com/trainjob/trainjob/tree/main/examples/airflow), [page](queues.md#a)\n"
    )


@pytest.mark.parametrize(
    "text, description",
    [
        ("# Cost\n\nSee what a training costs. More.\n", "See what a training costs."),
        (
            "# Queues\n\nShare [GPUs](a.md) between `teams`:\nwith Kueue. More.\n",
            "Share GPUs between teams: with Kueue.",
        ),
        ("# A\n\n| a | b |\n|---|---|\n\n**Bold** text with a_name\n", "Bold text with a_name"),
        ("# Only a heading\n", ""),
    ],
)
def test_the_description_is_the_first_sentence(text, description):
    assert page_metadata.describe(text) == description


def test_an_index_page_lists_the_pages_of_its_section():
    nav = [{"Home": "index.md"}, {"How-to guides": ["how-to/index.md", {"Train": [{"Sweeps": "how-to/sweeps.md"}]}]}]
    navigation = page_metadata.read_navigation({"project": {"nav": nav}})
    pages = page_metadata.index_pages(navigation, {"how-to/sweeps.md": "# Sweeps\n\nTry values. More."})
    assert list(pages) == ["how-to/index.md"]
    assert "## Train\n\n* [Sweeps](sweeps.md): Try values.\n" in pages["how-to/index.md"]


def test_llms_txt_lists_every_page_with_its_first_sentence():
    nav = [
        {"Home": "index.md"},
        {
            "Explanation": [
                "explanation/index.md",
                {"Security": "explanation/security.md"},
                {"Design decisions": [{"1: A": "a.md"}]},
            ]
        },
        {"Evidence": [{"Models": "evidence/models.md"}]},
    ]
    project = {"site_name": "trainjob", "site_description": "Jobs", "site_url": "https://x.io/t/", "nav": nav}
    text = "# Page\n\nSee [what](a.md) runs. More."
    pages = dict.fromkeys(("index.md", "explanation/security.md", "a.md", "evidence/models.md"), text)
    assert llms_txt.render({"project": project}, pages).split("\n") == [
        "# trainjob",
        "",
        "> Jobs",
        "",
        "## Start",
        "",
        "- [Home](https://x.io/t/): See what runs.",
        "",
        "## Explanation",
        "",
        "- [Security](https://x.io/t/explanation/security/): See what runs.",
        "",
        "## Optional",
        "",
        "- [1: A](https://x.io/t/a/): See what runs.",
        "- [Models](https://x.io/t/evidence/models/): See what runs.",
        "",
    ]


def test_the_search_leaves_out_evidence_only():
    assert "exclude: true" in page_metadata.front_matter("evidence/models.md", "# Models\n\nText.")
    assert "exclude" not in page_metadata.front_matter("how-to/cost.md", "# Cost\n\nText.")


def test_guides_come_before_objects_in_the_search_index(tmp_path, monkeypatch):
    def section(location, title, level=2):
        return {"location": location, "title": title, "level": level, "text": "<p>text</p>", "path": []}

    items = [
        section("reference/python/trainjob/#trainjob.CSV", "CSV <small>class</small>", 3),
        section("reference/python/trainjob/#trainjob.CSV.x", "x <small><code>class-attribute</code></small>", 4),
        section("explanation/decisions/0001/", "Decision"),
        section("how-to/resume/", "Resume", 1),
    ]
    (tmp_path / "search.json").write_text(json.dumps({"items": items}))
    monkeypatch.setattr("sys.argv", ["search_index.py", str(tmp_path)])
    assert search_index.main() == 0
    found = json.loads((tmp_path / "search.json").read_text())["items"]
    assert [item["location"].partition("#")[0] for item in found] == [
        "how-to/resume/",
        "explanation/decisions/0001/",
        "reference/python/trainjob/",
    ]
    assert "spot instances" in found[0]["path"][0]
    assert (found[2]["title"], found[2]["text"]) == ("\u2060CSV <small>class</small>", "<p>CSV</p> <p>text</p>")
