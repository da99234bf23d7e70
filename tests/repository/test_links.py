"""The Markdown pages can be read in the repository: what they link to and show is there, at the place that is named."""

import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
from site_pages import as_on_site

from project import ROOT

FOLDERS = ("", "docs/**/", "benchmarks/", "notebooks/")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINKS = (r"\]\(([^)\s]+)\)", r'(?:src|href)="([^"]+)"', r"^\[[^\]]+\]: (\S+)")


def pages(root):
    """Every page in the repository, with its text."""
    for path in (path for folder in FOLDERS for path in sorted(root.glob(f"{folder}*.md"))):
        yield path, path.read_text(encoding="utf-8")
    for path in sorted(root.glob("notebooks/*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        yield path, "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def dead_links(root):
    texts = dict(pages(root))
    found = []
    for path, text in texts.items():
        for pattern in LINKS:
            for link in re.findall(pattern, CODE.sub("", text), re.MULTILINE):
                file, _, place = link.partition("#")
                target = (path.parent / unquote(file)).resolve() if file else path
                if re.match(r"\w+:", link):
                    continue
                if not target.exists() or (place and target in texts and place not in places(texts[target])):
                    found.append(f"{path.relative_to(root)}: {link}")
    return found


def places(text):
    """The names that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*?)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


def test_every_link_leads_somewhere():
    assert len(list(pages(ROOT))) > 50
    assert dead_links(ROOT) == []


def test_a_dead_link_is_noticed(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        "# A *title*, `x`\n[a](docs/a.md#one-two) [b](docs/b.md) ![c](c.png) [d](https://x.y)"
    )
    (tmp_path / "docs" / "a.md").write_text(
        "## One, two\n[up](../README.md#a-title-x)\n[no](../README.md#other)\n`[e](f.md)`\n"
    )
    assert dead_links(tmp_path) == ["README.md: docs/b.md", "README.md: c.png", "docs/a.md: ../README.md#other"]


def test_on_the_site_links_lead_to_its_pages():
    moved = {
        ("docs/how-to/add-an-op.md", "../../CONTRIBUTING.md#adding-an-op"): "../contributing.md#adding-an-op",
        ("docs/notebooks/index.md", "../../notebooks/xor.ipynb"): "xor.md",
        ("docs/tutorial.md", "../notebooks/moons.ipynb"): "notebooks/moons.md",
        ("notebooks/finding_the_tensors.ipynb", "../docs/compiler.md"): "../compiler.md",
        ("CONTRIBUTING.md", "docs/design.md"): "design.md",
        ("docs/tutorial.md", "how-to/index.md"): "how-to/index.md",
        ("docs/tutorial.md", "https://example.org/docs/a.md"): "https://example.org/docs/a.md",
    }
    for (source, link), expected in moved.items():
        assert as_on_site(f"see [it]({link}).", source) == f"see [it]({expected})."
    assert all(Path(ROOT / source).exists() for source, _ in moved)
