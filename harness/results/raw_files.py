"""The raw outputs that records of a run list."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from harness.model import FIO_SOURCE, Record
from harness.parse.files import unreadable


def raw_file(record: Record, folders: Mapping[str, Path], name: str) -> Path | None:
    """The raw output of that name that a record of a run lists, if it is there.

    ``folders`` are those of the runs, by run id. A name that leads out of the run's folder is ignored.
    UsageError if it is not possible to look there.
    """
    folder = folders.get(record.run_id)
    listed = next((raw for raw in record.raw if raw.rpartition("/")[2] == name and "\0" not in raw), None)
    if folder is None or listed is None or record.setting.source == FIO_SOURCE:
        return None
    # Path.resolve raises RuntimeError for a loop of links, which is nothing there.
    file = Path(os.path.realpath(folder / listed))
    try:
        # Not Path.is_file, which since Python 3.14 says of what it may not look at that it is no file.
        is_there = file.is_relative_to(folder.resolve()) and stat.S_ISREG(file.stat().st_mode)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ELOOP:
            return None
        raise unreadable(file, error) from error
    return file if is_there else None
