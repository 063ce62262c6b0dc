"""Of a target that is only reached nothing can be asked, and no end is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.hosts import Host
from harness.hosts.unseen import Unseen
from harness.model.errors import CommandFailed


@pytest.mark.parametrize(
    "ask",
    [
        lambda host: host.run(["true"]),
        lambda host: host.run(["true"], check=False),
        lambda host: host.read_files(["/proc/version"]),
        lambda host: host.list_folder("/sys"),
        lambda host: host.in_netns("other", "netns"),
        lambda host: host.kernel_messages(),
        lambda host: host.clock_offset_ns(),
        lambda host: host.write_secret(Path("/run/secret"), "secret"),
        lambda host: host.reach(Path("/run/socket")),
        lambda host: host.daemon(["sleep"], log=Path("log"), ready=lambda: True, deadline_s=1).__enter__(),
    ],
)
def test_each_question_is_refused_with_what_to_try(ask: Callable[[Host], object]) -> None:
    with pytest.raises(CommandFailed, match="only reached") as refused:
        ask(Unseen())
    assert "--target ssh://" in (refused.value.hint or "") and "secret" not in refused.value.message.replace(
        "/run/secret", ""
    )


def test_it_shares_a_kernel_with_nobody() -> None:
    assert Unseen().kernel != Unseen().kernel
