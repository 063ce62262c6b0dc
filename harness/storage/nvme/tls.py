"""TLS within the connections of NVMe/TCP (NVMe/TCP Transport Specification 1.0c, section 3.6.1.1; Linux 6.7).

Both ends find a pre-shared key in their kernel's keyring `.nvme`, by an identity that is made of the names of
host and subsystem. The kernel hands each new connection to `tlshd` of ktls-utils, which negotiates TLS 1.3;
from then on the kernel itself encrypts (kTLS).
"""

from __future__ import annotations

import secrets

import msgspec

from harness.hosts import Host
from harness.hosts.undo import UndoStep
from harness.storage.nvme import step
from harness.storage.requests import ask

SECRET_BYTES = 32
"""As long as the output of SHA-256, to which the identity commits the key."""


def identity(host_nqn: str, nqn: str) -> str:
    """By which both ends find the key: version 0, a retained key (R), SHA-256 (01); the same source."""
    return f"NVMe0R01 {host_nqn} {nqn}"


class SessionKey(msgspec.Struct, frozen=True):
    """The key of one session, in one kernel's keyring. Both ends may have the same kernel: it is the same
    key."""

    identity: str
    secret: str

    def __repr__(self) -> str:
        return f"SessionKey(identity={self.identity!r})"

    def acquire(self, host: Host) -> None:
        request = step("key", "insert", identity=self.identity, secret=self.secret)
        ask(host, request, "the key of a TLS session could not be put into the keyring")

    def undo(self) -> tuple[UndoStep, ...]:
        return (step("key", "remove", identity=self.identity),)


def make_key(host_nqn: str, nqn: str) -> SessionKey:
    return SessionKey(identity=identity(host_nqn, nqn), secret=secrets.token_hex(SECRET_BYTES))
