"""Where the card for tests is built and kept; where this is impossible, its tests are skipped with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.card import build


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; nothing has been built yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_a_compiler_it_says_what_to_install(compilers: Path) -> None:
    with pytest.raises(build.CannotBuild, match="apt-get install g"):
        build.folder()


def test_a_compiler_that_cannot_build_it_is_quoted_and_leaves_nothing(compilers: Path) -> None:
    (compilers / "c++").write_text("#!/bin/sh\necho 'card.cpp:3: fatal error: no such header' >&2\nexit 1\n")
    (compilers / "c++").chmod(0o755)
    with pytest.raises(build.CannotBuild, match=r"fatal error: no such header$"):
        build.folder()
    assert [each.name for each in build.cache_folder().iterdir()] == ["lock"]


def test_where_the_users_cache_cannot_be_written_it_is_kept_in_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build.cache_folder() == Path(__file__).parents[2] / ".pytest_cache" / "card"


def test_what_it_is_made_of_is_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {build.name()}
    monkeypatch.setattr(build, "SOURCES", build.SOURCES[1:])
    names.add(build.name())
    monkeypatch.setattr(build.metadata, "version", lambda package: "another torch")
    names.add(build.name())
    assert len(names) == 3
