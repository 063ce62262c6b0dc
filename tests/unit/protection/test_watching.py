"""Programs that watch an end of a path."""

from __future__ import annotations

import errno
import subprocess
import sys


def test_what_is_gone_is_one_line() -> None:
    gone = f"def look(): raise OSError({errno.ENODEV}, 'No such device', 'wg0')"
    text = f"from harness.protection.programs import watching\n{gone}\nwatching.watch(look)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "[Errno 19] No such device: 'wg0'\n"
