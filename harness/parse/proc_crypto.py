"""/proc/crypto: the kernel's ciphers, and which driver each takes."""

from __future__ import annotations


def drivers(proc_crypto: str, algorithms: tuple[str, ...]) -> list[str]:
    """The kernel's driver of highest priority for each algorithm, as listed in /proc/crypto."""
    best: dict[str, tuple[int, str]] = {}
    for block in proc_crypto.split("\n\n"):
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in block.splitlines())
        }
        name, priority = fields.get("name", ""), int(fields.get("priority", "0") or 0)
        # Of equals the first, like __crypto_alg_lookup() (crypto/api.c).
        if name in algorithms and priority > best.get(name, (-1, ""))[0]:
            best[name] = (priority, fields.get("driver", ""))
    return [best[name][1] for name in algorithms if name in best]
