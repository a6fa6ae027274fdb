"""A folder that nobody else can change: every step of the way to it is judged, and it is used through its descriptor.

    / home u .cache neoflow kernels
    each belongs to root or to this user, and others cannot write to it, or cannot rename what is not theirs (sticky, as
    /tmp is); nor do symbolic links on the way belong to others

Whoever moves the folder afterwards, or puts another in its place, changes nothing for a process that has it open. Every
file is judged too: no link, nobody else's, written by nobody else.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from neoflow.errors import ConfigError

MARK_SECONDS = 3600.0
"""How old the mark of a file's last use may grow before it is renewed."""
LEFT_SECONDS = 3600.0
"""How old a temporary file is that nobody will rename any more."""
LINKS = 40
"""Symbolic links on the way to a folder, as many as Linux itself follows."""
NEW, OLD = ".new-", ".old-"
"""What names of temporary files begin with, and of what was in the way of a file."""

_WAY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, order=True)
class File:
    """When a file was used last (seconds since the epoch), its bytes, its name."""

    used: float
    nbytes: int
    name: str


class Folder:
    """An open folder of this user's own; what is missing of its path is made, for this user alone.

    Raises `ConfigError` when it is shared, or no folder; `OSError` when it cannot be made or opened, or when others
    could put another in its place.
    """

    def __init__(self, path: Path):
        self._descriptor = _descend(path)
        self._identity = _identity(os.fstat(self._descriptor))
        weakref.finalize(self, _close, self._descriptor, self._identity)

    def is_there(self) -> bool:
        """Whether the folder is still open, and still in the file system."""
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return _identity(status) == self._identity and status.st_nlink > 0

    def read(self, name: str, most: int) -> bytes:
        """What is in a file, which is marked as used.

        Raises `FileNotFoundError`; `ValueError` with the reason when it is no file, or not this user's alone, or has
        more than `most` bytes; `OSError`.
        """
        try:
            file = os.open(name, _READ, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                raise ValueError("is no file") from None
            raise
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("is no file")
            if not _is_own(status.st_uid) or status.st_mode & _OTHERS:
                raise ValueError(f"can be written by others ({_said(status)})")
            if status.st_size > most:
                raise ValueError(f"has {status.st_size} bytes, more than {most}")
            if time.time() - status.st_mtime > MARK_SECONDS:
                with suppress(OSError):  # the disk may be read-only
                    os.utime(file)
            return _content(file, status.st_size)
        finally:
            os.close(file)

    def write(self, name: str, data: bytes) -> None:
        """Put a file there whole, under a temporary name at first, in place of whatever had its name."""
        temporary = NEW + secrets.token_hex(8)
        file = os.open(temporary, _WRITE, 0o600, dir_fd=self._descriptor)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(file, view) :]
            finally:
                os.close(file)
            self._rename(temporary, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._descriptor)
            raise

    def _rename(self, name: str, to: str) -> None:
        try:
            os.rename(name, to, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except IsADirectoryError:
            self.remove(to)
            os.rename(name, to, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there; a folder of that name is moved aside, as it may hold anything."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            aside = OLD + secrets.token_hex(8)
            os.rename(name, aside, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def files(self) -> list[File]:
        """Everything in the folder, the least recently used first; nothing when it cannot be listed."""
        found = []
        with suppress(OSError), ExitStack() as opened:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._descriptor)
            opened.callback(os.close, folder)
            for entry in opened.enter_context(os.scandir(folder)):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(File(status.st_mtime, status.st_size, entry.name))
        return sorted(found)

    def sweep(self, files: Sequence[File]) -> None:
        """Remove, of these files, the temporary ones of processes that were killed."""
        for file in files:
            if file.name.startswith(NEW) and file.used < time.time() - LEFT_SECONDS:
                with suppress(OSError):
                    self.remove(file.name)


def _content(file: int, nbytes: int) -> bytes:
    data = os.read(file, nbytes)
    while len(data) < nbytes and (more := os.read(file, nbytes - len(data))):
        data += more
    return data


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _close(descriptor: int, identity: tuple[int, int]) -> None:
    """Close a descriptor, unless somebody has done so, and its number is another file's by now."""
    with suppress(OSError):
        if _identity(os.fstat(descriptor)) == identity:
            os.close(descriptor)


def _descend(path: Path) -> int:
    """The descriptor of a folder, after each step to it was judged; steps that are missing are made."""
    with suppress(OSError):
        os.stat(path)  # the system goes the way once, and mounts what is mounted on demand
    steps, here, place, links = list(reversed(path.absolute().parts)), -1, Path(), 0
    with ExitStack() as opened:
        while steps:
            name = steps.pop()
            inner = _enter(name, here)
            opened.callback(os.close, inner)
            status, shown = os.fstat(inner), Path(os.path.normpath(place / name))
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                _judge_owner(status, shown)
                steps += reversed(Path(os.readlink("", dir_fd=inner)).parts)
            else:
                if not stat.S_ISDIR(status.st_mode):
                    raise ConfigError(
                        f"the kernel cache cannot be in {shown}, which is no folder; set NEOFLOW_CACHE_DIR"
                    )
                (_judge_parent if steps else _judge_folder)(status, shown)
                here, place = inner, shown
        return os.dup(here)


def _enter(name: str, here: int) -> int:
    """A descriptor of what is called `name` in a folder; when there is nothing, of a new folder."""
    try:
        return os.open(name, _WAY, dir_fd=here)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=here)
        return os.open(name, _WAY, dir_fd=here)


def _judge_folder(status: os.stat_result, place: Path) -> None:
    """Code is loaded from here, so nobody else may write here."""
    if status.st_mode & _OTHERS or not _is_own(status.st_uid):
        raise ConfigError(
            f"the kernel cache {place} can be written by others ({_said(status)}); run `chmod 700 {place}` or set "
            f"NEOFLOW_CACHE_DIR to a folder of your own"
        )


def _judge_parent(status: os.stat_result, place: Path) -> None:
    """Who can rename what is in a parent can put another folder in place of one that is on the way."""
    _judge_owner(status, place)
    others = status.st_mode & _OTHERS
    if others and not status.st_mode & stat.S_ISVTX and not (others == stat.S_IWGRP and _is_alone(status.st_gid)):
        raise PermissionError(f"others can write to {place} ({_said(status)})")


def _judge_owner(status: os.stat_result, place: Path) -> None:
    if not _is_own(status.st_uid) and not _is_outside(status.st_uid):
        raise PermissionError(f"{place} belongs to somebody else ({_said(status)})")


def _said(status: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(status.st_mode):o}, owner {status.st_uid}"


def _is_own(owner: int) -> bool:
    """Whether an owner is this user, or root, who may do anything."""
    return owner in (0, os.geteuid())


def _is_outside(owner: int) -> bool:
    """Whether an owner is unknown to the user namespace of this process, as those are who made the container it is in.

    Source: user_namespaces(7), "Unmapped user and group IDs".
    """
    try:
        with open("/proc/sys/kernel/overflowuid") as unknown, open("/proc/self/uid_map") as known:
            return owner == int(unknown.read()) and sum(int(row.split()[2]) for row in known) < 2**32 - 1
    except OSError:
        return False


def _is_alone(group: int) -> bool:
    """Whether a group is this user's own, without other members, as many systems have one for each user."""
    import grp
    import pwd

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and found.gr_name == user.pw_name and {*found.gr_mem} <= {user.pw_name}
