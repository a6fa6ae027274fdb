"""A folder of one's own: who else could change it, or put another in its place."""

import os
import stat

import pytest

from neoflow import ConfigError
from neoflow.runtime import folder as folders
from neoflow.runtime.cache import CacheWarning, KernelCache
from neoflow.runtime.folder import Folder
from tests.attack.damage import NOBODY, given_away


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_missing_is_made_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        Folder(tmp_path / "a" / "b" / "c").write("x", b"1")
    finally:
        os.umask(before)
    assert [mode(tmp_path / p) for p in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert mode(tmp_path / "a" / "b" / "c" / "x") == 0o600


@pytest.mark.parametrize("shared", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path, shared):
    tmp_path.chmod(shared)
    with pytest.raises(ConfigError, match=rf"can be written by others \(mode {shared:o}, owner \d+\); run `chmod 700"):
        KernelCache(tmp_path)


def test_a_folder_in_one_that_others_can_write_to_is_not_used(tmp_path):
    inner = tmp_path / "open" / "kernels"
    inner.mkdir(parents=True, mode=0o700)
    for shared in (0o777, 0o757):
        inner.parent.chmod(shared)
        with pytest.warns(
            CacheWarning, match=rf"cannot be used: others can write to .*/open \(mode {shared:o}"
        ) as found:
            cache = KernelCache(inner)
            cache.refresh()
        assert len(found) == 1
        cache.publish(b"library", {})
        assert not list(inner.iterdir()) and not any(cache.files().values())
    inner.parent.chmod(0o1777)  # as /tmp is
    KernelCache(inner).publish(b"library", {})
    assert len(list(inner.iterdir())) == 1


def test_a_folder_of_another_user_is_refused_and_so_is_what_lies_in_one(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / "kernels").mkdir(parents=True, mode=0o700)
    with given_away(tmp_path / "a" / "kernels", tmp_path / "b"):
        with pytest.raises(ConfigError, match=rf"can be written by others \(mode 700, owner {NOBODY}\)"):
            Folder(tmp_path / "a" / "kernels")
        with pytest.raises(PermissionError, match=rf"b belongs to somebody else \(mode 7\d\d, owner {NOBODY}\)"):
            Folder(tmp_path / "b" / "kernels")


def test_groups_without_others_may_write_to_parents(tmp_path, monkeypatch):
    inner = tmp_path / "open" / "kernels"
    inner.mkdir(parents=True, mode=0o700)
    inner.parent.chmod(0o770)
    monkeypatch.setattr(folders, "_is_alone", lambda group: group == inner.parent.stat().st_gid)
    Folder(inner)
    monkeypatch.setattr(folders, "_is_alone", lambda group: False)
    with pytest.raises(PermissionError, match="others can write to"):
        Folder(inner)


def test_links_on_the_way_are_followed_once(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("home")
    (tmp_path / "far").symlink_to(tmp_path / "link" / ".." / "link" / "not yet")
    Folder(tmp_path / "far" / "kernels").write("x", b"1")
    assert (tmp_path / "home" / "not yet" / "kernels" / "x").read_bytes() == b"1"
    folder = Folder(tmp_path / "link")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/")
    folder.write("y", b"2")
    assert (tmp_path / "home" / "y").read_bytes() == b"2"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels"):
        Folder(tmp_path / "loop")


def test_links_of_others_are_not_followed(tmp_path):
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("mine")
    with given_away(tmp_path / "link"), pytest.raises(PermissionError, match="link belongs to somebody else"):
        Folder(tmp_path / "link")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "kernels"):
        with pytest.raises(ConfigError, match=r"cannot be in .*/file, which is no folder; set NEOFLOW_CACHE_DIR"):
            Folder(path)


def test_a_folder_stays_the_one_that_was_opened(tmp_path):
    folder = Folder(tmp_path / "a")
    folder.write("x", b"mine")
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").mkdir(mode=0o700)
    (tmp_path / "a" / "x").write_bytes(b"theirs")
    assert folder.read("x", 100) == b"mine" and folder.is_there()
    folder.write("y", b"1")
    assert (tmp_path / "b" / "y").exists() and not (tmp_path / "a" / "y").exists()


def test_a_descriptor_that_was_closed_is_noticed(tmp_path):
    """As daemons do, which close all files."""
    folder = Folder(tmp_path)
    os.close(folder._descriptor)
    assert not folder.is_there()
    root = os.open("/", os.O_RDONLY)
    other = os.dup2(root, folder._descriptor)
    try:
        assert not folder.is_there()
        del folder
        os.fstat(other)  # it is not closed with the folder
    finally:
        os.close(other)
        os.close(root)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "writable", "large"])
def test_what_is_no_file_of_ones_own_is_not_read(tmp_path, kind):
    folder, path = Folder(tmp_path), tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "writable":
        path.write_bytes(b"1")
        path.chmod(0o620)
    else:
        path.write_bytes(b"1" * 101)
    with pytest.raises(
        ValueError, match=r"is no file|can be written by others \(mode 620|has 101 bytes, more than 100"
    ):
        folder.read("x", 100)
    folder.write("x", b"new")
    assert folder.read("x", 100) == b"new" and mode(path) == 0o600
    folder.remove("x")
    assert not path.exists()
    folder.remove("x")


def test_who_made_the_container_may_own_what_the_folder_lies_in(tmp_path, monkeypatch):
    """In a user namespace whoever is not mapped is shown as one user, without a name."""
    assert not folders._is_outside(12345)
    inner = tmp_path / "theirs" / "kernels"
    inner.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(folders, "_is_own", lambda owner: False)
    monkeypatch.setattr(folders, "_is_outside", lambda owner: True)
    with pytest.raises(ConfigError, match="can be written by others"):  # but not the folder itself
        Folder(inner)
