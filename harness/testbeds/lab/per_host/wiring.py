"""How kernels per host are wired: a trunk from the target's to each initiator's, in real or in virtual time.

In real time a trunk is a pair of sockets, with the kernels' vector interfaces at its ends
(arch/um/drivers/vector_kern.c). These are no part of ``time-travel=ext:``, so in virtual time each end is a
virtio interface that ``timekeeper`` serves.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.hosts import runner
from harness.testbeds import entry_points
from harness.testbeds.lab.boot import CLOCK, Wires
from harness.testbeds.lab.per_host import management, timekeeper

NO_INTERRUPTS_FOR_SENT = "virtio_net.napi_tx=0"
"""Frames are taken at once, so the driver need not hear of it: it frees them as it sends the next one."""


@contextlib.contextmanager
def in_real_time(initiators: Sequence[str], mtu_bytes: int) -> Iterator[dict[str, Wires]]:
    """A wire from the target to each initiator; yields what each kernel has of them, by its name."""
    with contextlib.ExitStack() as stack:
        # Kept open here as well: a kernel whose peer hangs up does nothing any more except notice that.
        trunks = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in initiators]
        for end in itertools.chain(*trunks):
            stack.enter_context(end)
        wires = {
            name: _vectors([trunk[1]], mtu_bytes) for name, trunk in zip(initiators, trunks, strict=True)
        }
        yield {**wires, management.TARGET: _vectors([trunk[0] for trunk in trunks], mtu_bytes)}


def _vectors(ends: Sequence[socket.socket], mtu_bytes: int) -> Wires:
    fds = tuple(end.fileno() for end in ends)
    wire = f"transport=fd,depth=128,mtu={mtu_bytes}"
    return Wires(
        words=tuple(f"{management.trunk_name(number)}:{wire},fd={fd}" for number, fd in enumerate(fds)),
        fds=fds,
    )


@contextlib.contextmanager
def in_one_time(
    initiators: Sequence[str], mtu_bytes: int, *, core: int, console: Path
) -> Iterator[dict[str, Wires]]:
    """The same for kernels that share a virtual time. When the first initiator's ends, all stand still.

    On ``console`` the timekeeper says why it ended, if it was for another one. It runs on the
    processor ``core``, as they all do: one of them runs at a time, and waking another processor takes longer
    than changing over on one.
    """
    names = (initiators[0], management.TARGET, *initiators[1:])
    with contextlib.ExitStack() as stack:
        far_ends: list[socket.socket] = []
        ends: dict[str, list[socket.socket]] = {name: [] for name in names}

        def connect(name: str) -> int:
            """Connect a kernel; returns the timekeeper's end."""
            near, far = (stack.enter_context(end) for end in socket.socketpair())
            ends[name].append(near)
            far_ends.append(far)
            return far.fileno()

        clock_fds = tuple(connect(name) for name in names)
        trunks = tuple(
            timekeeper.Trunk(
                kernels=(names.index(management.TARGET), names.index(name)),
                fds=(connect(management.TARGET), connect(name)),
            )
            for name in initiators
        )
        served = timekeeper.Wiring(names=names, clock_fds=clock_fds, trunks=trunks)
        stack.enter_context(_timekeeper(served, console, core))
        for end in far_ends:
            end.close()
        yield {name: _virtio(number, ends[name], mtu_bytes) for number, name in enumerate(names)}


def _virtio(number: int, ends: Sequence[socket.socket], mtu_bytes: int) -> Wires:
    """What the ``number``-th kernel has: its clock, and its interfaces."""
    clock, *interfaces = ends
    return Wires(
        words=(NO_INTERRUPTS_FOR_SENT, *(f"virtio_uml.device=fd={end.fileno()}:1" for end in interfaces)),
        fds=tuple(end.fileno() for end in ends),
        naming="".join(
            f"link set dev eth{vec} name {management.trunk_name(vec)} mtu {mtu_bytes}\n"
            for vec in range(len(interfaces))
        ),
        clock=f"{CLOCK}ext:{number}:fd={clock.fileno()}",
        its_own=tuple(ends),
    )


def _timekeeper(
    served: timekeeper.Wiring, console: Path, core: int
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    program = f"from {timekeeper.__name__} import main; main()"
    argv = entry_points.running(program, msgspec.json.encode(served).decode())
    fds = [*served.clock_fds, *itertools.chain.from_iterable(trunk.fds for trunk in served.trunks)]
    wrapper = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(core)]
    return runner.piped([*wrapper, *argv], output=console, pass_fds=fds)
