"""The house's files in the documentation: notebooks, labs' tasks, one reference page per room, links by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

LABS = "labs"  # the page that lists the labs, and the folder with one page for each
ERRATA = "errata"  # the page whose headings begin with numbers such as 000.3


def replace_folder(folder: Path, files: dict[str, str]) -> None:
    """Make `folder` hold exactly `files`; a file that has not changed keeps its time, so Sphinx skips it."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        if old.name not in files:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def copy_notebooks(source: Path, target: Path) -> None:
    """The committed notebooks, as they are."""
    replace_folder(
        target,
        {path.name: path.read_text(encoding="utf-8") for path in sorted(source.glob("*.ipynb"))},
    )


def copy_labs(source: Path, target: Path) -> None:
    """Copy each lab's task, its README, to a page with the lab's name."""
    tasks = sorted(source.glob("*/README.md"))
    replace_folder(target, {f"{path.parent.name}.md": path.read_text(encoding="utf-8") for path in tasks})


def room_page(room: str, modules: list[str], members: bool = True) -> str:
    """A page titled `room` that documents `modules` (dotted names, the room's own first).

    Args:
        members: also the functions and classes of each module.
    """
    parts = [f"# {room}\n"]
    option = "" if members else "\n   :no-members:"
    for number, module in enumerate(modules):
        title = f"## `{module.removeprefix('farandole.').replace('.', '/')}.py`\n\n" if number else ""
        parts.append(f"{title}```{{eval-rst}}\n.. automodule:: {module}{option}\n```\n")
    return "\n".join(parts)


def write_reference(packages: Sequence[Path], target: Path) -> None:
    """One page per folder of each package, one section per module, public names only.

    The first package's pages are called by the room alone, and another package's as `farandole_tools.bench`: they say
    what each module is for, and leave its functions to the source.
    """
    rooms: dict[str, list[str]] = {}
    for number, package in enumerate(packages):
        rooms[package.name] = [package.name]
        for path in sorted(package.rglob("*.py")):
            parts = list(path.relative_to(package).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            if not parts or any(part.startswith("_") for part in parts):
                continue
            room = f"{package.name}." * (number > 0) + parts[0] if (package / parts[0]).is_dir() else package.name
            rooms.setdefault(room, []).append(".".join([package.name, *parts]))
    first = packages[0].name
    pages = {
        f"{room}.md": room_page(room, modules, members=modules[-1].partition(".")[0] == first)
        for room, modules in rooms.items()
    }
    replace_folder(target, pages)


class LinkNames(SphinxPostTransform):
    """Turns `data/shares.py`, `03_synchronous_sgd` and "erratum 000.3" into links where there is a target.

    The pages stay plain Markdown that reads well anywhere; only the built site has the links.
    """

    default_priority = 5

    def run(self, **kwargs: object) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            if literal.parent is not None and not isinstance(literal.parent, nodes.reference | nodes.title):
                target = self.page_of(literal.astext(), before(literal))
                if target is not None and target[0] != self.env.docname:
                    literal.replace_self(self.link(literal.deepcopy(), *target))
        if self.env.docname != ERRATA and ERRATA in self.env.found_docs:
            self.link_errata()

    def link(self, content: nodes.Node, page: str, anchor: str) -> nodes.reference:
        return make_refnode(self.app.builder, self.env.docname, page, anchor, [content])

    def page_of(self, name: str, text_before: str) -> tuple[str, str] | None:
        """The page and the anchor (or "") that `name` stands for."""
        # A lab and a notebook may share a name. The labs page writes "notebook" before a notebook's name, other pages
        # write "lab" before a lab's.
        is_lab = not text_before.endswith("notebook ") if self.env.docname == LABS else text_before.endswith("lab ")
        if is_lab and f"{LABS}/{name}" in self.env.found_docs:
            return f"{LABS}/{name}", ""
        if f"notebooks/{name}" in self.env.found_docs:
            return f"notebooks/{name}", ""
        if name.endswith("/") and f"reference/{name[:-1]}" in self.env.found_docs:
            return f"reference/{name[:-1]}", ""
        file = re.fullmatch(r"(?:(farandole|farandole_tools)/)?([\w/]+)\.py", name)
        dotted = f"{file[1] or 'farandole'}.{file[2].replace('/', '.')}" if file else f"farandole.scenarios.{name}"
        module = self.env.domains.python_domain.modules.get(dotted)
        return (module.docname, module.node_id) if module else None

    def link_errata(self) -> None:
        anchors = anchors_of_errata(self.env)
        for text in list(self.document.findall(nodes.Text)):
            pieces = re.split(r"(?<![\w.])(00\d\.\d+)(?![\w.])", text)
            if len(pieces) == 1 or isinstance(text.parent, nodes.literal | nodes.literal_block | nodes.reference):
                continue
            parts = [
                self.link(nodes.inline(text=piece), ERRATA, anchors[piece]) if piece in anchors else nodes.Text(piece)
                for piece in pieces
            ]
            text.parent.replace(text, parts)


@cache
def anchors_of_errata(env: BuildEnvironment) -> dict[str, str]:
    """Return each erratum's number → its section's anchor. Every page asks, and reading the page takes 0.1 s."""
    sections = env.get_doctree(ERRATA).findall(nodes.section)
    return {section.next_node(nodes.title).astext().split(" ")[0]: section["ids"][0] for section in sections}


def before(node: nodes.Node) -> str:
    """The text just before `node` in its paragraph."""
    siblings = node.parent.children
    index = siblings.index(node)
    return siblings[index - 1].astext() if index else ""


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
