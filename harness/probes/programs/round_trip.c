/* UDP round trips. "echo ADDRESS PORT" sends back what comes, for ever.
 * "measure ADDRESS PORT OWN-ADDRESS BYTES COUNT kept|reopened SECONDS" sends COUNT datagrams, each after the one
 * before has come back, and prints their times as JSON. OWN-ADDRESS may be "-": then the kernel chooses.
 *
 * kept: one socket for all. reopened: one socket for each; its opening and closing are part of the time.
 * A datagram that has not come back after a second is lost. Times are by CLOCK_MONOTONIC. Those of the histogram
 * are the middles of fio's bins (64 for each power of two, stat.h), as the harness reads them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 65507, LOST_IN_A_ROW = 5, HALF = 64, GROUPS = 59 };

static char out[LARGEST], in[LARGEST];
static uint64_t bins[GROUPS][2 * HALF];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "round_trip: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* An address of either version of IP, and its port. */
union place {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

static union place place(const char *address, const char *port)
{
    union place there;
    int found;
    memset(&there, 0, sizeof there);
    if (strchr(address, ':')) {
        there.six.sin6_family = AF_INET6;
        there.six.sin6_port = htons((uint16_t)atoi(port));
        found = inet_pton(AF_INET6, address, &there.six.sin6_addr);
    } else {
        there.four.sin_family = AF_INET;
        there.four.sin_port = htons((uint16_t)atoi(port));
        found = inet_pton(AF_INET, address, &there.four.sin_addr);
    }
    if (found != 1) {
        errno = EINVAL;
        fail(address);
    }
    return there;
}

static socklen_t length_of(const union place *there)
{
    return there->any.sa_family == AF_INET6 ? sizeof there->six : sizeof there->four;
}

static int open_socket(const union place *there, const union place *own)
{
    static const struct timeval PATIENCE = {1, 0};
    int s = socket(there->any.sa_family, SOCK_DGRAM, 0);
    if (s < 0)
        fail("socket");
    if (own && bind(s, &own->any, length_of(own)))
        fail("bind");
    if (setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &PATIENCE, sizeof PATIENCE))
        fail("setsockopt");
    return s;
}

static void echo(const union place *own)
{
    union place from;
    int s = socket(own->any.sa_family, SOCK_DGRAM, 0);
    if (s < 0 || bind(s, &own->any, length_of(own)))
        fail("bind");
    for (;;) {
        socklen_t length = sizeof from;
        ssize_t got = recvfrom(s, in, sizeof in, 0, &from.any, &length);
        if (got >= 0)
            sendto(s, in, (size_t)got, 0, &from.any, length);
    }
}

static void count(uint64_t ns)
{
    unsigned group = 0;
    while (ns >> group >= 2 * HALF)
        group++;
    bins[group][ns >> group]++;
}

/* 1 if the datagram with this number came back. */
static int go_and_return(int s, const union place *there, size_t bytes, uint64_t number)
{
    uint64_t found;
    memcpy(out, &number, sizeof number);
    if (sendto(s, out, bytes, 0, &there->any, length_of(there)) != (ssize_t)bytes)
        fail("sendto");
    do {
        if (recv(s, in, sizeof in, 0) != (ssize_t)bytes) {
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                return 0;
            fail("recv");
        }
        memcpy(&found, in, sizeof found); /* not a late answer to an earlier one */
    } while (found != number);
    return 1;
}

static int measure(const union place *there, const union place *own, size_t bytes, uint64_t wanted,
                   int reopened, uint64_t most_ns)
{
    uint64_t returned = 0, lost = 0, total = 0, least = UINT64_MAX, most = 0, number, begin = now_ns();
    unsigned lost_in_a_row = 0;
    int s = reopened ? -1 : open_socket(there, own);
    const char *comma = "";

    for (number = 1; number <= wanted && lost_in_a_row < LOST_IN_A_ROW; number++) {
        uint64_t from = now_ns(), took;
        int back;
        if (from - begin > most_ns)
            break;
        if (reopened)
            s = open_socket(there, own);
        back = go_and_return(s, there, bytes, number);
        if (reopened)
            close(s);
        took = now_ns() - from;
        if (!back) {
            lost++, lost_in_a_row++;
            continue;
        }
        lost_in_a_row = 0;
        returned++;
        total += took;
        least = took < least ? took : least;
        most = took > most ? took : most;
        count(took);
    }
    printf("{\"round_trips\": %llu, \"lost\": %llu, \"total_ns\": %llu", (unsigned long long)returned,
           (unsigned long long)lost, (unsigned long long)total);
    if (returned)
        printf(", \"min_ns\": %llu, \"max_ns\": %llu", (unsigned long long)least, (unsigned long long)most);
    printf(", \"bins\": {");
    for (unsigned group = 0; group < GROUPS; group++)
        for (unsigned i = 0; i < 2 * HALF; i++)
            if (bins[group][i]) {
                printf("%s\"%llu\": %llu", comma,
                       ((unsigned long long)i << group) + (group ? 1ull << (group - 1) : 0ull),
                       (unsigned long long)bins[group][i]);
                comma = ", ";
            }
    printf("}}\n");
    return 0;
}

int main(int argc, char **argv)
{
    union place there, own;
    if (argc == 4 && !strcmp(argv[1], "echo")) {
        own = place(argv[2], argv[3]);
        echo(&own);
    }
    if (argc != 9 || strcmp(argv[1], "measure") || atoi(argv[5]) < 8 || atoi(argv[5]) > LARGEST) {
        fprintf(stderr, "round_trip: wrong arguments\n");
        return 2;
    }
    there = place(argv[2], argv[3]);
    if (strcmp(argv[4], "-"))
        own = place(argv[4], "0");
    return measure(&there, strcmp(argv[4], "-") ? &own : 0, (size_t)atoi(argv[5]), strtoull(argv[6], 0, 10),
                   !strcmp(argv[7], "reopened"), strtoull(argv[8], 0, 10) * 1000000000u);
}
