/*
 * Asks a component what it is, over an AF_MCTP socket as the kernel has them.
 *
 * Identify EID -> a line for each of Identify (0001h, type 8), Identify Switch Device (5100h, type 7) and a bind of a
 *   vPPB that cannot be bound; exit 1 where an answer is missing or is not one.
 * Units: bytes.
 * Source: linux/mctp.h; docs/spec/wire-formats.md sections 4.1 and 4.3.
 *
 * It knows nothing of mctp_preload.c: on a kernel with MCTP it would ask whom the EID names there.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/mctp.h>

#ifndef AF_MCTP
#define AF_MCTP 45
#endif

enum { FM_API = 7, CCI = 8, HEADER = 12, TIMEOUT_MS = 2000 };

static int ask(int fd, uint8_t eid, uint8_t type, uint8_t tag, unsigned opcode, const void *payload, size_t len)
{
    uint8_t request[256] = {0, tag, 0, opcode & 0xff, opcode >> 8, len & 0xff, len >> 8 & 0xff};
    uint8_t answer[4096];
    struct sockaddr_mctp to = {.smctp_family = AF_MCTP, .smctp_network = 1};
    struct sockaddr_mctp from;
    socklen_t from_len = sizeof(from);
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    to.smctp_addr.s_addr = eid;
    to.smctp_type = type;
    to.smctp_tag = MCTP_TAG_OWNER;
    memcpy(request + HEADER, payload, len);
    if (sendto(fd, request, HEADER + len, 0, (struct sockaddr *)&to, sizeof(to)) != (ssize_t)(HEADER + len)) {
        perror("sendto");
        return 1;
    }
    if (poll(&wait, 1, TIMEOUT_MS) != 1) {
        fprintf(stderr, "%04x: no answer\n", opcode);
        return 1;
    }
    /* Its length first, without taking it. */
    ssize_t told = recv(fd, answer, 0, MSG_PEEK | MSG_TRUNC);
    if (poll(&wait, 1, TIMEOUT_MS) != 1 || told < HEADER) {
        fprintf(stderr, "%04x: %zd bytes\n", opcode, told);
        return 1;
    }
    ssize_t got = recvfrom(fd, answer, sizeof(answer), 0, (struct sockaddr *)&from, &from_len);
    size_t length = answer[5] | (size_t)answer[6] << 8;
    if (got != told || got != (ssize_t)(HEADER + length) || answer[0] != 1 || answer[1] != tag) {
        fprintf(stderr, "%04x: not an answer of %zd bytes\n", opcode, got);
        return 1;
    }
    if (from_len != sizeof(from) || from.smctp_addr.s_addr != eid || from.smctp_type != type ||
        from.smctp_tag & MCTP_TAG_OWNER) {
        fprintf(stderr, "%04x: from somebody else\n", opcode);
        return 1;
    }
    printf("%04x type %u: code %u, %zu bytes:", opcode, type, answer[8] | answer[9] << 8, length);
    for (size_t at = 0; at < length && at < 8; at++)
        printf(" %02x", answer[HEADER + at]);
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t bind_to_nothing[6] = {0, 0, 99, 0, 0xff, 0xff};
    uint8_t eid = argc > 1 ? (uint8_t)strtoul(argv[1], NULL, 0) : 0;
    int one = socket(AF_MCTP, SOCK_DGRAM, 0), other = socket(AF_MCTP, SOCK_DGRAM, 0);

    if (one < 0 || other < 0) {
        perror("socket");
        return 1;
    }
    struct sockaddr_mctp own = {.smctp_family = AF_MCTP, .smctp_network = MCTP_NET_ANY, .smctp_type = CCI};
    own.smctp_addr.s_addr = MCTP_ADDR_ANY;
    if (bind(one, (struct sockaddr *)&own, sizeof(own))) {
        perror("bind");
        return 1;
    }
    int failed = ask(one, eid, CCI, 1, 0x0001, "", 0) || ask(other, eid, FM_API, 2, 0x5100, "", 0) ||
                 ask(other, eid, FM_API, 3, 0x5201, bind_to_nothing, sizeof(bind_to_nothing));
    if (close(one) || close(other)) {
        perror("close");
        return 1;
    }
    return failed;
}
