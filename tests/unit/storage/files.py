"""Files as the kernel and the distribution have them, in a folder of a test's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def lines(folder: Path, texts: Mapping[str, object]) -> Path:
    """Files of a line each, by their paths below the folder."""
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")
    return folder


def scripts(folder: Path, texts: dict[str, str]) -> None:
    """Programs of sh, by their names."""
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
        (folder / name).chmod(0o755)
