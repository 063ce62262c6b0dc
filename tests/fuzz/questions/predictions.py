"""What `harness predict` adds to the other doors: it reads what they damage."""

from __future__ import annotations

from tests.fuzz import words, written

COSTED = ("--link", "wired", "--workload", "rand-read-4k", "--workload", "seq-write-256k")

words.READING.append("predict")
written.OF_LISTS += [
    ("predict", "--cpu-costs", "own.toml", *COSTED),
    ("predict", "--cpu-costs", "own.toml", *COSTED, "--protect", "both", "--protect", "wireguard,macsec"),
    ("predict", "--cpu-costs", "own.toml", *COSTED, "--format", "json"),
    ("predict", "--cpu-costs", "own.toml", *COSTED, "--what-if", "2x"),
    ("predict", "--cpu-costs", "own.toml", *COSTED, "--transport", "nvme-tcp", "--block", "4K,1M"),
    ("predict", "--cpu-costs", "lab-debian", "--initiator-cpu-costs", "own.toml", *COSTED),
]
written.OF_SETTINGS["costs"] = (
    *("profiles/cpu-costs/*.toml", "costs"),
    (("predict", "--cpu-costs", "NAME", *COSTED),),
)
