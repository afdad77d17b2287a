"""Signs in a submission that a person should look at: imports, names of the checker's parts, and very similar code.

None of it costs points, and none of it proves anything. The sandbox makes most of these tricks useless; the column says
that they were tried.
"""

from __future__ import annotations

import ast
import hashlib
import io
import keyword
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from farandole_tools.lab.contained import kit
from farandole_tools.lab.entries import writable
from farandole_tools.lab.labs import Lab

IMPORTS = {
    "builtins", "ctypes", "faulthandler", "gc", "importlib", "inspect", "marshal", "mmap", "mpi4py", "multiprocessing",
    "os", "pickle", "ptrace", "requests", "resource", "signal", "socket", "subprocess", "sys", "threading", "urllib",
}  # fmt: skip
CALLS = {"__import__", "compile", "eval", "exec", "globals", "vars"}
NAMES = {
    "LAB", "Wrong", "__subclasses__", "_getframe", "_peer", "bytes_sent", "everybodys", "expect",
    "farandole_submission",    "get_objects", "messages_sent", "partners", "settrace", "tracemalloc",
}  # fmt: skip
KGRAM, WINDOW = 12, 8  # tokens
SIMILAR = 0.8  # share of the smaller one's fingerprints that the other one has
MOST_BYTES = 2**21  # of all Python files of one submission
FEWEST = 12  # fingerprints beyond those of the handed-out file: less says nothing


@dataclass(frozen=True)
class Pair:
    """Two submissions, and the share of the smaller one's fingerprints that the other one has."""

    first: str
    second: str
    share: float

    def __str__(self) -> str:
        return f"{self.share:.0%} as {self.second}"


def texts(submission: Path, helpers: bool) -> dict[str, str | None]:
    """Return the text of each Python file of a submission, the one to judge first, by its path in the submission.

    None stands for a file that cannot be read, and for one with which all would exceed `MOST_BYTES`.
    """
    found: dict[str, str | None] = {}
    left = MOST_BYTES
    with suppress(OSError):
        for path in kit.files(submission, helpers):
            if path.suffix == ".py":
                name = writable(str(path.relative_to(submission.parent)))
                found[name] = None
                if (size := path.stat().st_size) <= left:
                    left -= size
                    found[name] = path.read_text("utf-8", errors="replace")
    return found


def look_at_all(texts: Mapping[str, str | None], lab: Lab) -> list[str]:
    """Return what is worth a look in a submission's files: as `look_at`, after the first one with the file's name."""
    found: list[str] = []
    for number, (name, text) in enumerate(texts.items()):
        here = ["too long to be looked at"] if text is None else look_at(text, lab)
        found += [f"{name}: {each}" if number else each for each in here]
    return found


def look_at(text: str, lab: Lab) -> list[str]:
    """Return what is worth a look in a submission's text, each in a few words, without those that the lab hands out."""
    try:
        tree = ast.parse(text)
        given = set(_found(ast.parse((lab.folder / lab.file).read_text(encoding="utf-8")), lab))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: expressions nested too deeply
        return []
    return [each for each in dict.fromkeys(_found(tree, lab)) if each not in given]


def _found(tree: ast.AST, lab: Lab) -> Iterator[str]:
    allowed = {*kit.given(lab), *kit.NAMES_ONLY}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            for module in modules:
                top = module.partition(".")[0]
                if module not in allowed and (top in IMPORTS or top in kit.PROJECT):
                    yield f"imports {module}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield f"calls {node.func.id}"
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield f"names {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield f"names .{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES | IMPORTS:
            yield f"names {node.value!r}"


def fingerprints(text: str) -> frozenset[int]:
    """Return fingerprints of a program that survive renaming, comments and another layout.

    Winnowing (Schleimer, Wilkerson and Aiken 2003, "Winnowing: local algorithms for document fingerprinting"): the
    smallest hash in each window of WINDOW neighbouring sequences of KGRAM tokens. Two programs that have KGRAM + WINDOW
    − 1 tokens in a row in common have a fingerprint in common. All names count as equal.
    """
    tokens = list(_tokens(text))
    hashes = [
        int.from_bytes(hashlib.blake2b(" ".join(tokens[start : start + KGRAM]).encode(), digest_size=8).digest(), "big")
        for start in range(len(tokens) - KGRAM + 1)
    ]
    return frozenset(min(hashes[start : start + WINDOW]) for start in range(max(1, len(hashes) - WINDOW + 1)) if hashes)


def _tokens(text: str) -> Iterator[str]:
    before = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER):
                continue
            is_docstring = token.type == tokenize.STRING and before in ("", "\n", "indent")
            before = {tokenize.NEWLINE: "\n", tokenize.INDENT: "indent", tokenize.DEDENT: "\n"}.get(token.type, "x")
            if is_docstring or token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                continue
            is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            yield "n" if is_name else token.string
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError):
        return


def similar(
    submissions: Mapping[str, Mapping[str, str | None]], known: Mapping[str, str], handed_out: str
) -> list[Pair]:
    """Return the pairs of submissions, and of a submission and known code, that have most of their code in common.

    Args:
        submissions: by name, the texts of each one's files.
        known: other code by what it is called in the report, for instance "the reference".
        handed_out: the file with which all begin; what is in it does not count.

    Cost: one comparison of two sets for each pair.
    """
    common = fingerprints(handed_out)
    prints = {
        name: frozenset().union(*(fingerprints(text) for text in texts.values() if text)) - common
        for name, texts in submissions.items()
    }
    others = {name: fingerprints(text) - common for name, text in known.items()}
    found = []
    for first, second in [*combinations(prints, 2), *((one, other) for one in prints for other in others)]:
        one, other = prints[first], prints[second] if second in prints else others[second]
        fewer = min(len(one), len(other))
        if fewer >= FEWEST and (share := len(one & other) / fewer) >= SIMILAR:
            found.append(Pair(first, second, share))
    return sorted(found, key=lambda pair: (-pair.share, pair.first, pair.second))
