"""The UDP round trips' program against the plainest loop there is, in turn, on the loopback.

    python bench/round_trip.py [ROUNDS]

Prints the median round trip of both for each round, and the ratio; 1.25 is what is allowed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.model.probing import UdpLatency, UdpLatencyFigures
from harness.probes import datagrams

COUNT = 20_000
BYTES = 1024
PORT = "47410"

PLAINEST = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
static int order(const void *a, const void *b)
{
    long x = *(long *)a, y = *(long *)b;
    return (x > y) - (x < y);
}
int main(int argc, char **argv)
{
    static char buffer[65536];
    struct timespec a, b;
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    int count = atoi(argv[2]), bytes = atoi(argv[3]), s = socket(AF_INET, SOCK_DGRAM, 0);
    long *took = malloc(count * sizeof *took);
    inet_pton(AF_INET, "127.0.0.1", &there.sin_addr);
    for (int i = 0; i < count; i++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        sendto(s, buffer, bytes, 0, (struct sockaddr *)&there, sizeof there);
        recv(s, buffer, sizeof buffer, 0);
        clock_gettime(CLOCK_MONOTONIC, &b);
        took[i] = (b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec;
    }
    qsort(took, count, sizeof *took, order);
    printf("%ld\n", took[count / 2]);
}
"""


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours, plain = str(Path(folder, "round_trip")), str(Path(folder, "plain"))
        subprocess.run(["cc", "-O2", "-o", ours, str(datagrams.SOURCE)], check=True)
        subprocess.run(["cc", "-O2", "-x", "c", "-o", plain, "-"], input=PLAINEST, text=True, check=True)
        echo = subprocess.Popen([ours, "echo", "127.0.0.1", PORT])
        try:
            time.sleep(0.2)
            ratios = [_round(ours, plain) for _ in range(rounds)]
        finally:
            echo.kill()
            echo.wait()
    print(f"median of the ratios: {statistics.median(ratios):.3f}")


def _round(ours: str, plain: str) -> float:
    argv = [ours, "measure", "127.0.0.1", PORT, "-", str(BYTES), str(COUNT), "kept", "60"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    figures = datagrams.understand(done.stdout, done.stderr, UdpLatency(count=COUNT)).figures
    if not isinstance(figures, UdpLatencyFigures) or figures.p50_ns is None:
        raise SystemExit(f"the program said: {done.stdout[:200]}")
    done = subprocess.run([plain, PORT, str(COUNT), str(BYTES)], capture_output=True, text=True, check=True)
    bare_ns = int(done.stdout)
    ratio = figures.p50_ns / bare_ns
    print(f"p50: ours {figures.p50_ns / 1e3:.1f} us, plainest {bare_ns / 1e3:.1f} us, ratio {ratio:.3f}")
    return ratio


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
