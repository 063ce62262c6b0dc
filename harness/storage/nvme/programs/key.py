"""Puts the key of a TLS session into the kernel's keyring `.nvme`, and takes it out again.

One request on standard input (JSON); the key comes that way because others may read a command line. It runs
by itself under the distribution's Python, perhaps on another machine. libkeyutils is a library that tlshd
itself needs. Removal of what is absent succeeds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import Any

from harness.hosts.programs.answering import answer

KIND = b"psk"
"""The type that the kernel registers for such keys (drivers/nvme/common/keyring.c)."""

SESSION = -3
"""KEY_SPEC_SESSION_KEYRING (linux/keyctl.h): what is in there, this process possesses."""

try:
    LIBRARY = ctypes.CDLL("libkeyutils.so.1", use_errno=True)
except OSError:
    sys.exit("expected libkeyutils, found none: it is installed with ktls-utils")
LIBRARY.keyctl_search.restype = ctypes.c_long


def keyring() -> int:
    """The serial number of the kernel's keyring. Everything else that lists it needs its name as well."""
    number = int(LIBRARY.find_key_by_type_and_desc(b"keyring", b".nvme", 0))
    if number < 0:
        raise OSError(errno.ENOKEY, "this kernel has no keyring .nvme: is nvme_keyring loaded?")
    return number


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def insert(request: dict[str, Any]) -> None:
    secret = bytes.fromhex(request["secret"])
    name = request["identity"].encode()
    checked(LIBRARY.add_key(KIND, name, secret, ctypes.c_size_t(len(secret)), keyring()))


def remove(request: dict[str, Any]) -> None:
    try:
        ring = keyring()
        # Only who possesses a key finds it (keyrings(7)). This session ends with the process.
        checked(LIBRARY.keyctl_join_session_keyring(None))
        checked(LIBRARY.keyctl_link(ring, SESSION))
        found = checked(LIBRARY.keyctl_search(ring, KIND, request["identity"].encode(), 0))
        checked(LIBRARY.keyctl_unlink(found, ring))
    except OSError as error:
        if error.errno not in (errno.ENOKEY, errno.ENOENT):
            raise


if __name__ == "__main__":
    answer({"insert": insert, "remove": remove})
