"""`make docs`: README.md and the pages of docs/ as HTML, as they stand on a code host, links checked."""

import re

project = "Motley"
root_doc = "docs/README"
include_patterns = ["README.md", "docs/**.md", "python/README.md", "examples/README.md", "tests/README.md",
                    "bench/README.md", "tools/README.md"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "Motley"
html_copy_source = False
html_extra_path = ["index.html"]
html_theme_options = {"navigation_with_keys": True}


def tree(text):
    """A hidden tree of contents below each list of docs/README.md, of the pages that the list links to."""
    trees = []
    for heading, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", text, re.M):
        pages = re.findall(r"^[*|] \[[^]]*\]\(([^)]*)\.md\)", body, re.M)
        trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```"]))
    return "\n".join([text, *trees, ""])


def add_tree(app, name, source):
    if name == root_doc:
        source[0] = tree(source[0])


def setup(app):
    app.connect("source-read", add_tree)
    return {"parallel_read_safe": True}
