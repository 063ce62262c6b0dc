"""Closed queueing networks: how long a request takes when several of them wait for each other.

Exact mean value analysis (Reiser and Lavenberg, Journal of the ACM 27(2), 1980; Lazowska and others,
Quantitative System Performance, 1984, chapter 6) is for services that vary as if by chance; the asymptotic
bound (chapter 5) is for services that never do. What is measured lies between the two.
"""

from __future__ import annotations

from collections.abc import Sequence


def mean_value_ns(alone_ns: float, servers: Sequence[float], depth: int) -> float:
    """The time between two completions of ``depth`` requests, each of which takes ``alone_ns`` by itself.
    ``servers`` are what it takes of each; what is not a server's delays all requests alike."""
    think_ns = max(0.0, alone_ns - sum(servers))
    queues = [0.0] * len(servers)
    each_ns = alone_ns
    for requests in range(1, depth + 1):
        times = [server * (1 + queue) for server, queue in zip(servers, queues, strict=True)]
        each_ns = (think_ns + sum(times)) / requests
        queues = [time_ns / each_ns for time_ns in times]
    return each_ns
