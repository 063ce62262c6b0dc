"""As `against_theory`, through WireGuard, MACsec and stacks, over each transport.

`python -m tests.lab.inside.protections_against_theory TAG`, with --virtual-time; prints a `Measured` as JSON.
A framing's ``proposal`` is the stack as it is typed, with the transport behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from harness.analysis.wire import framing_of
from harness.model import BackingKind, IpsecMode, LabKernel, Proposal
from harness.model.protections import split_stack
from harness.network.links import LinkPath
from harness.planning.plan import make_plan
from harness.planning.request import RunRequest
from harness.protection import kinds, overlay, xfrm_listener
from harness.protection.kind import ProtectionContext, ProtectionDriver, Underlay
from tests.lab.inside import exports
from tests.lab.inside.against_theory import FOLDER, Framing, Lab, Up, measure

STACKS = ("wireguard", "macsec", "macsec+aes128gcm16", "macsec+wireguard", "wireguard+aes128gcm16")
COLUMNS = (
    *((1500, name, "iscsi") for name in STACKS),
    *((9000, name, "iscsi") for name in STACKS[:2]),
    *((1500, name, "nvme-tcp") for name in STACKS[:2]),
)
FRAMINGS = tuple(Framing(mtu_bytes=mtu, proposal=f"{name}.{carrier}") for mtu, name, carrier in COLUMNS)


def split(framing: Framing) -> tuple[tuple[str, ...], str]:
    """The protections of a framing, the outermost first, and its transport."""
    name, _, carrier = framing.proposal.partition(".")
    return split_stack(name), carrier


def protect(
    lab: Lab,
    known: dict[str, ProtectionDriver],
    proposals: Mapping[str, Proposal],
    framing: Framing,
    link: LinkPath,
) -> LinkPath:
    path, mtu_bytes = link, framing.mtu_bytes
    for level, name in enumerate(split(framing)[0]):
        raw = Path(FOLDER, f"{link.index}-{level}")
        raw.mkdir()
        listeners = lab.stack.enter_context(xfrm_listener.listeners(path, raw))
        underlay = Underlay(below=path, level=level, mtu_bytes=mtu_bytes, listeners=listeners, raw=raw)
        layer = lab.stack.enter_context(known[name].protect(underlay))
        made = framing_of([name], proposals, IpsecMode.TRANSPORT, mtu_bytes, link.ip)
        assert made is not None
        path, is_overlay = layer.within, layer.within is not path
        mtu_bytes = made.inner_mtu_bytes(mtu_bytes)
    if is_overlay:
        lab.stack.enter_context(overlay.passing(lab.journal, path))
    lab.keep_steady(path)
    return path


def bring_up(lab: Lab) -> list[Up]:
    carriers = {carrier for _, _, carrier in COLUMNS} - {"iscsi"}
    exports.load("iscsi", {BackingKind.BLOCK})
    loaded = {name: exports.load(name, {BackingKind.BLOCK}) for name in carriers}
    plan = make_plan(RunRequest(links=("wired",), protect=STACKS, lab_kernel=LabKernel.DEBIAN))
    known = kinds.of_run(
        ProtectionContext(
            plan=plan,
            initiator=lab.near,
            journal=lab.journal,
            private=FOLDER,
            folder=FOLDER,
            shared=lab.stack,
            paths=len(FRAMINGS),
        )
    )
    shared = {name: lab.stack.enter_context(each.shared(lab.sides)) for name, each in loaded.items()}
    shared["iscsi"] = lab.iscsi
    ups = []
    for index, framing in enumerate(FRAMINGS):
        link = lab.link(Framing(mtu_bytes=framing.mtu_bytes), index)
        path = protect(lab, known, plan.proposals, framing, link)
        up = lab.log_in(framing, path, shared[split(framing)[1]])
        # Its frames are counted where they are protected.
        ups.append(msgspec.structs.replace(up, path=link))
    return ups


if __name__ == "__main__":
    measure(sys.argv[1], bring_up)
