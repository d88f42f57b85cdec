/*
 * A kernel with MCTP, for tests on kernels without: AF_MCTP sockets of a program become Unix sockets in a directory.
 *
 * socket(AF_MCTP), bind, recvfrom and sendto of a program that is started with LD_PRELOAD and WEFT_TEST_BUS=DIRECTORY.
 *   Messages of type TT to any EID of this machine go to DIRECTORY/type-TT; endpoint E of network N is DIRECTORY/end-N-E.
 *   A datagram is the type of its message, its tag with the tag owner, and the message.
 * Units: bytes.
 * Source: linux/mctp.h; Linux, Documentation/networking/mctp.rst.
 *
 * Build: cc -shared -fPIC -o mctp_bus.so mctp_bus.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <linux/mctp.h>

#ifndef AF_MCTP
#define AF_MCTP 45
#endif

enum { FDS_MAX = 1024, HEAD = 2 };

static unsigned char is_mctp[FDS_MAX];

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_MCTP(fd) ((fd) >= 0 && (fd) < FDS_MAX && is_mctp[fd])

static struct sockaddr_un path(const char *format, unsigned int one, unsigned int two)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char name[32];
    const char *bus = getenv("WEFT_TEST_BUS");

    snprintf(name, sizeof(name), format, one, two);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", bus ? bus : "/nonexistent", name);
    return addr;
}

int socket(int domain, int type, int protocol)
{
    if (domain != AF_MCTP)
        return NEXT(socket)(domain, type, protocol);
    if ((type & ~SOCK_CLOEXEC) != SOCK_DGRAM || protocol) {
        errno = EINVAL;
        return -1;
    }
    int fd = NEXT(socket)(AF_UNIX, type, 0);
    if (fd >= 0 && fd < FDS_MAX)
        is_mctp[fd] = 1;
    return fd;
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    if (!IS_MCTP(fd))
        return NEXT(bind)(fd, addr, len);
    const struct sockaddr_mctp *own = (const struct sockaddr_mctp *)addr;
    if (len < sizeof(*own) || own->smctp_family != AF_MCTP || own->smctp_addr.s_addr != MCTP_ADDR_ANY) {
        errno = EINVAL;
        return -1;
    }
    struct sockaddr_un at = path("type-%02x", own->smctp_type, 0);
    return NEXT(bind)(fd, (struct sockaddr *)&at, sizeof(at));
}

ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *addr_len)
{
    if (!IS_MCTP(fd))
        return NEXT(recvfrom)(fd, buf, len, flags, addr, addr_len);
    unsigned char head[HEAD] = {0};
    struct sockaddr_un from = {0};
    struct iovec parts[] = {{head, HEAD}, {buf, len}};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = parts, .msg_iovlen = 2};
    ssize_t got = NEXT(recvmsg)(fd, &message, flags);
    if (got < 0)
        return got;
    struct sockaddr_mctp source = {.smctp_family = AF_MCTP, .smctp_type = head[0], .smctp_tag = head[1]};
    unsigned int network = 0, eid = 0;
    const char *name = strrchr(from.sun_path, '/');
    sscanf(name ? name : "", "/end-%u-%u", &network, &eid);
    source.smctp_network = network;
    source.smctp_addr.s_addr = (unsigned char)eid;
    if (addr && addr_len && *addr_len >= sizeof(source))
        memcpy(addr, &source, sizeof(source));
    return got < HEAD ? 0 : got - HEAD;
}

ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr, socklen_t addr_len)
{
    if (!IS_MCTP(fd))
        return NEXT(sendto)(fd, buf, len, flags, addr, addr_len);
    const struct sockaddr_mctp *dest = (const struct sockaddr_mctp *)addr;
    if (!dest || addr_len < sizeof(*dest) || dest->smctp_family != AF_MCTP) {
        errno = EINVAL;
        return -1;
    }
    struct sockaddr_un to = path("end-%u-%u", dest->smctp_network, dest->smctp_addr.s_addr);
    unsigned char head[HEAD] = {dest->smctp_type, dest->smctp_tag};
    struct iovec parts[] = {{head, HEAD}, {(void *)buf, len}};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof(to), .msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent = NEXT(sendmsg)(fd, &message, flags);
    return sent < HEAD ? sent : sent - HEAD;
}
