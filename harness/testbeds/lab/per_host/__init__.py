"""Kernels per host: the lab as several machines, a kernel for the target and one for each initiator."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.hosts.journal import Journal
from harness.model.errors import TestbedError
from harness.testbeds.lab import boot
from harness.testbeds.lab.boot import Kernel, Lab
from harness.testbeds.lab.per_host import management, wiring

BEGIN_MARK = b"harness-lab-begins\n"
"""What the first of several kernels prints on its console when it has reached the others."""

PEERS_DEADLINE_S = 60.0


@contextlib.contextmanager
def booted(
    command: Sequence[str],
    *,
    initiators: int,
    journal: Journal,
    console: Path,
    results: Path | None = None,
    storage_bytes: int = 0,
    mtu_bytes: int = 1500,
    kernel: Kernel | None = None,
) -> Iterator[Lab]:
    """Boot a kernel for the target and one for each initiator, and run ``command`` in the first initiator's.

    The command starts once ``ssh target``, ``ssh initiator2`` and so on work there. When it ends, everything
    ends. The first initiator's ``trunk_name(0)`` is connected to the target's ``trunk_name(0)``, the second's
    to the target's ``trunk_name(1)``, and so on, with packets of up to ``mtu_bytes``. ``results`` and
    ``console`` are the first initiator's; next to ``console.log`` there is a ``console-target.log`` for the
    target's, and so on. The storage's memory is the target's; ``kernel`` is as for ``boot.booted``.
    TestbedError if a kernel does not come up.
    """
    management.require_ssh()
    target_core, *cores = sorted(os.sched_getaffinity(0), reverse=True)
    if kernel is not None and kernel.has_virtual_time:
        cores = [target_core]  # one of them runs at a time
    # For `ssh` in the first one's kernel.
    names = [f"initiator{number}" for number in range(1, initiators + 1)]
    peers = [management.TARGET, *names[1:]]
    memory = {management.TARGET: boot.memory_for(storage_bytes), **dict.fromkeys(names, boot.memory_for(0))}
    core = {management.TARGET: target_core, **dict(zip(names, itertools.cycle(cores or [target_core])))}
    with contextlib.ExitStack() as stack:
        making = boot.workshop_for(journal, kernel or boot.debian_kernel(), sum(memory.values()))
        workshop = stack.enter_context(making)
        folders = {name: workshop.make_folder(name) for name in memory}
        client = folders[names[0]] / "ssh"
        management.make_client(client)
        servers = {peer: folders[peer] / "sshd" for peer in peers}
        for peer, folder in servers.items():
            boot.write_settings(folders[peer], workshop.kernel, management.serve(folder, client))
        management.introduce(client, servers)
        boot.write_settings(folders[names[0]], workshop.kernel, command, results=results, peers=peers)
        wires = stack.enter_context(
            wiring.in_one_time(names, mtu_bytes, core=target_core, console=console)
            if workshop.kernel.has_virtual_time
            else wiring.in_real_time(names, mtu_bytes)
        )
        networks = [management.target_network(initiators)]
        networks += [management.initiator_network(number) for number in range(1, initiators + 1)]
        for name, network in zip((management.TARGET, *names), networks, strict=True):
            (folders[name] / "network").write_text(wires[name].naming + network, encoding="utf-8")
        kernels = {}
        for name in (*peers, names[0]):
            log = console if name == names[0] else console.with_name(f"{console.stem}-{name}.log")
            kernels[name] = stack.enter_context(
                workshop.start(
                    folders[name],
                    log,
                    memory_bytes=memory[name],
                    core=core[name],
                    results=results if name == names[0] else None,
                    wires=wires[name],
                )
            )
            wires[name].hand_over()
        yield _await_peers(kernels, names[0])


def _await_peers(kernels: dict[str, Lab], first: str) -> Lab:
    """The first initiator's kernel, once it has reached the others; TestbedError if it cannot."""
    lab = kernels[first]
    end = time.monotonic() + PEERS_DEADLINE_S
    while BEGIN_MARK not in (said := lab.said()):
        ended = [name for name, kernel in kernels.items() if kernel.process.poll() is not None]
        if ended or time.monotonic() > end:
            what = f"the kernel of {ended[0]} ended" if ended else f"{PEERS_DEADLINE_S:g} s passed"
            words = "; ".join(f"{name}: {kernel.last_words()}" for name, kernel in kernels.items())
            raise TestbedError(
                f"{what} before all kernels could be reached over ssh; their consoles end with: {words}"
            )
        time.sleep(0.05)
    return replace(lab, begin=lab.begin + said.index(BEGIN_MARK) + len(BEGIN_MARK))
