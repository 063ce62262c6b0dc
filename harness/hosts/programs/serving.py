"""One request, or request after request, for programs that may stay (``harness/hosts/kept.py``)."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable


def serve(act: Callable[[str, str | None], None], *, enters: bool = False) -> None:
    """Carry out what standard input asks for; with the word ``serve`` one request after another.

    ``act`` is given the request and, if it ``enters`` them, the name of a network namespace to act in. It
    exits with the reason why it failed.
    """
    if sys.argv[1:] != ["serve"]:
        act(sys.stdin.read(), None)
        return
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["netns"] is not None and not enters:
            sys.exit("expected no network namespace")
        status, why = 1, ""
        try:
            act(asked["input"], asked["netns"])
            status = 0
        except SystemExit as reason:
            why = str(reason)
        except Exception:
            why = traceback.format_exc()
        sys.stdout.write(json.dumps({"status": status, "stderr": why}) + "\n")
        sys.stdout.flush()
