/*
 * AF_MCTP sockets on kernels without MCTP: turns them into connections to a switch that speaks MCTP over TCP.
 *
 * socket(AF_MCTP, SOCK_DGRAM), bind, sendto, sendmsg, recvfrom, recvmsg, recv, poll, close of a program are
 *   carried out over TCP to WEFT_MCTP=HOST:PORT, in packets of 68 bytes. All other sockets are left as they are.
 * Units: bytes.
 * Source: DMTF DSP0236 section 8 (packets); linux/mctp.h (addresses); docs/mctp.md "Programs with AF_MCTP sockets".
 *
 * Build: cc -shared -fPIC -O2 -o mctp_preload.so mctp_preload.c -ldl -lpthread
 * Use:   WEFT_MCTP=127.0.0.1:2508 LD_PRELOAD=./mctp_preload.so PROGRAM
 *
 * A socket connects when it first sends. The networks and EIDs of a program name nothing here: whoever is at the other end of
 * the connection answers. The length of a message in padded packets is that of its CCI header; of other types the padding is
 * left. A message is read packet by packet and never beyond its end, so that poll and select see what is left.
 */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* the checked variants are defined below */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/mctp.h>

#ifndef AF_MCTP
#define AF_MCTP 45
#endif
#ifndef SOL_MCTP
#define SOL_MCTP 285
#endif

enum {
    UNIT = 64,
    PACKET = 68,
    MESSAGE_MAX = 65536,
    FDS_MAX = 1024,
    TAGS = 8,
    OWN_EID = 8,
    SOM = 0x80,
    EOM = 0x40,
    TO = 0x08,
    CCI_HEADER = 12,
};

/* A message on its way in: one of each tag and tag owner. */
struct part {
    uint8_t *bytes; /* its type first; MESSAGE_MAX of them, or none */
    size_t len;
    uint8_t next;
};

struct mctp_socket {
    int is_connected;
    unsigned int network;
    uint8_t tag;             /* of the last request */
    uint8_t packet[PACKET];  /* what has come of one that is not whole */
    size_t had;
    struct part parts[2 * TAGS];
    uint8_t *whole;          /* a message that nobody has taken yet */
    size_t whole_len;
    struct sockaddr_mctp from;
};

static struct mctp_socket *sockets[FDS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The C library's own function of that name. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static struct mctp_socket *socket_of(int fd)
{
    if (fd < 0 || fd >= FDS_MAX)
        return NULL;
    pthread_mutex_lock(&lock);
    struct mctp_socket *it = sockets[fd];
    pthread_mutex_unlock(&lock);
    return it;
}

static void drop_parts(struct mctp_socket *it)
{
    for (int at = 0; at < 2 * TAGS; at++) {
        free(it->parts[at].bytes);
        it->parts[at].bytes = NULL;
    }
    it->had = 0;
}

static int fail(int error)
{
    errno = error;
    return -1;
}

int socket(int domain, int type, int protocol)
{
    const char *to = getenv("WEFT_MCTP");
    if (domain != AF_MCTP || !to)
        return NEXT(socket)(domain, type, protocol);
    if ((type & 0xf) != SOCK_DGRAM)
        return fail(ESOCKTNOSUPPORT);
    if (protocol != 0)
        return fail(EPROTONOSUPPORT);
    struct mctp_socket *it = calloc(1, sizeof(*it));
    if (!it)
        return fail(ENOMEM);
    int fd = NEXT(socket)(AF_INET, SOCK_STREAM | (type & ~0xf), 0);
    if (fd < 0 || fd >= FDS_MAX) {
        if (fd >= 0) {
            NEXT(close)(fd);
            errno = EMFILE;
        }
        free(it);
        return -1;
    }
    pthread_mutex_lock(&lock);
    sockets[fd] = it;
    pthread_mutex_unlock(&lock);
    return fd;
}

int close(int fd)
{
    if (fd >= 0 && fd < FDS_MAX) {
        pthread_mutex_lock(&lock);
        struct mctp_socket *it = sockets[fd];
        sockets[fd] = NULL;
        pthread_mutex_unlock(&lock);
        if (it) {
            drop_parts(it);
            free(it->whole);
            free(it);
        }
    }
    return NEXT(close)(fd);
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    if (!socket_of(fd))
        return NEXT(bind)(fd, addr, len);
    /* What a switch sends are answers: there are no requests to be told apart by type. */
    if (len < sizeof(struct sockaddr_mctp) || addr->sa_family != AF_MCTP)
        return fail(EINVAL);
    return 0;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    if (socket_of(fd) && level == SOL_MCTP)
        return fail(ENOPROTOOPT);
    return NEXT(setsockopt)(fd, level, name, value, len);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    if (socket_of(fd) && level == SOL_MCTP)
        return fail(ENOPROTOOPT);
    return NEXT(getsockopt)(fd, level, name, value, len);
}

/* Connects in the place of `fd`, with its flags and time limits. */
static int reconnect(struct mctp_socket *it, int fd)
{
    char text[256];
    const char *to = getenv("WEFT_MCTP");
    if (!to || strlen(to) >= sizeof(text))
        return fail(EADDRNOTAVAIL);
    strcpy(text, to);
    char *port = strrchr(text, ':');
    if (!port || port == text)
        return fail(EADDRNOTAVAIL);
    *port++ = '\0';
    char *host = text;
    if (host[0] == '[' && port[-2] == ']') { /* [::1]:2508 */
        host++;
        port[-2] = '\0';
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found;
    if (getaddrinfo(host, port, &hints, &found))
        return fail(EHOSTUNREACH);
    int made = NEXT(socket)(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int done = made < 0 ? -1 : connect(made, found->ai_addr, found->ai_addrlen);
    int error = errno, one = 1;
    freeaddrinfo(found);
    if (done < 0) {
        if (made >= 0)
            NEXT(close)(made);
        return fail(error);
    }
    NEXT(setsockopt)(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    static const int limits[] = {SO_RCVTIMEO, SO_SNDTIMEO};
    for (size_t at = 0; at < 2; at++) {
        struct timeval limit;
        socklen_t len = sizeof(limit);
        if (NEXT(getsockopt)(fd, SOL_SOCKET, limits[at], &limit, &len) == 0)
            NEXT(setsockopt)(made, SOL_SOCKET, limits[at], &limit, len);
    }
    int flags = fcntl(fd, F_GETFL), own = fcntl(fd, F_GETFD);
    fcntl(made, F_SETFL, flags);
    done = dup3(made, fd, own & FD_CLOEXEC ? O_CLOEXEC : 0);
    error = errno;
    NEXT(close)(made);
    if (done < 0)
        return fail(error);
    drop_parts(it);
    it->is_connected = 1;
    return 0;
}

/* Sends all; waits where the socket does not. */
static int send_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len) {
        ssize_t count = NEXT(send)(fd, bytes, len, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN) {
            struct pollfd one = {.fd = fd, .events = POLLOUT};
            if (NEXT(poll)(&one, 1, 2000) <= 0)
                return fail(EAGAIN);
            continue;
        }
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        bytes += count;
        len -= (size_t)count;
    }
    return 0;
}

static ssize_t send_message(struct mctp_socket *it, int fd, const uint8_t *body, size_t len,
                            const struct sockaddr *addr, socklen_t addr_len)
{
    if (!addr)
        return fail(EDESTADDRREQ);
    if (addr_len < sizeof(struct sockaddr_mctp) || addr->sa_family != AF_MCTP)
        return fail(EINVAL);
    if (len > MESSAGE_MAX - 1)
        return fail(EMSGSIZE);
    struct sockaddr_mctp to;
    memcpy(&to, addr, sizeof(to));
    int is_request = to.smctp_tag & MCTP_TAG_OWNER;
    uint8_t tag = to.smctp_tag & MCTP_TAG_MASK;
    if (is_request)
        tag = it->tag = (uint8_t)((it->tag + 1) % TAGS);
    it->network = to.smctp_network;
    size_t count = (len + 1 + UNIT - 1) / UNIT;
    uint8_t *all = calloc(count, PACKET);
    if (!all)
        return fail(ENOMEM);
    for (size_t at = 0, used = 0; at < count; at++) {
        uint8_t *packet = all + at * PACKET, *place = packet + 4;
        size_t room = UNIT;
        packet[0] = 1;
        packet[1] = to.smctp_addr.s_addr;
        packet[2] = OWN_EID;
        packet[3] = (uint8_t)((at == 0 ? SOM : 0) | (at + 1 == count ? EOM : 0) | (at & 3) << 4 |
                              (is_request ? TO : 0) | tag);
        if (at == 0) {
            *place++ = to.smctp_type;
            room--;
        }
        size_t part = len - used < room ? len - used : room;
        memcpy(place, body + used, part);
        used += part;
    }
    /* A connection that the switch has closed meanwhile is made anew, once. */
    int done = -1;
    for (int tries = 0; tries < 2 && done < 0; tries++) {
        char byte;
        if (it->is_connected && NEXT(recv)(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            it->is_connected = 0;
        if (!it->is_connected && reconnect(it, fd) < 0)
            break;
        done = send_all(fd, all, count * PACKET);
        if (done < 0 && (errno == EPIPE || errno == ECONNRESET))
            it->is_connected = 0;
        else
            break;
    }
    int error = errno;
    free(all);
    if (done < 0)
        return fail(error);
    return (ssize_t)len;
}

/* Takes a packet in: 1 where it completes a message. */
static int take_packet(struct mctp_socket *it)
{
    const uint8_t *packet = it->packet;
    uint8_t flags = packet[3], seq = flags >> 4 & 3;
    struct part *part = &it->parts[flags & 0xf];
    it->had = 0;
    if ((packet[0] & 0xf) != 1)
        return 0;
    if (flags & SOM) {
        if (!part->bytes)
            part->bytes = malloc(MESSAGE_MAX);
        part->len = 0;
        part->next = seq;
    }
    if (!part->bytes)
        return 0;
    if (part->next != seq || part->len + UNIT > MESSAGE_MAX) {
        free(part->bytes);
        part->bytes = NULL;
        return 0;
    }
    memcpy(part->bytes + part->len, packet + 4, UNIT);
    part->len += UNIT;
    part->next = (seq + 1) & 3;
    if (!(flags & EOM))
        return 0;
    uint8_t *message = part->bytes;
    size_t len = part->len;
    part->bytes = NULL;
    if ((message[0] == 7 || message[0] == 8) && len > CCI_HEADER) {
        size_t told = message[6] | (size_t)message[7] << 8 | (size_t)(message[8] & 0x1f) << 16;
        if (1 + CCI_HEADER + told < len)
            len = 1 + CCI_HEADER + told;
    }
    it->whole = message;
    it->whole_len = len;
    memset(&it->from, 0, sizeof(it->from));
    it->from.smctp_family = AF_MCTP;
    it->from.smctp_network = it->network;
    it->from.smctp_addr.s_addr = packet[2];
    it->from.smctp_type = message[0];
    it->from.smctp_tag = flags & 0xf;
    return 1;
}

static ssize_t receive_message(struct mctp_socket *it, int fd, const struct iovec *iov, size_t count,
                               int flags, int *truncated, struct sockaddr *addr, socklen_t *addr_len)
{
    while (!it->whole) {
        ssize_t got = NEXT(recv)(fd, it->packet + it->had, PACKET - it->had, flags & MSG_DONTWAIT);
        if (got < 0)
            return -1;
        if (got == 0) {
            it->is_connected = 0;
            return fail(ECONNRESET);
        }
        it->had += (size_t)got;
        if (it->had == PACKET)
            take_packet(it);
    }
    size_t len = it->whole_len - 1, used = 0;
    for (size_t at = 0; at < count && used < len; at++) {
        size_t part = len - used < iov[at].iov_len ? len - used : iov[at].iov_len;
        memcpy(iov[at].iov_base, it->whole + 1 + used, part);
        used += part;
    }
    *truncated = used < len;
    if (addr && addr_len) {
        memcpy(addr, &it->from, *addr_len < sizeof(it->from) ? *addr_len : sizeof(it->from));
        *addr_len = sizeof(it->from);
    }
    if (!(flags & MSG_PEEK)) {
        free(it->whole);
        it->whole = NULL;
    }
    return (ssize_t)(flags & MSG_TRUNC ? len : used);
}

ssize_t sendto(int fd, const void *bytes, size_t len, int flags, const struct sockaddr *addr,
               socklen_t addr_len)
{
    struct mctp_socket *it = socket_of(fd);
    if (!it)
        return NEXT(sendto)(fd, bytes, len, flags, addr, addr_len);
    return send_message(it, fd, bytes, len, addr, addr_len);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    if (!socket_of(fd))
        return NEXT(send)(fd, bytes, len, flags);
    return fail(EDESTADDRREQ);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct mctp_socket *it = socket_of(fd);
    if (!it)
        return NEXT(sendmsg)(fd, message, flags);
    size_t len = 0, used = 0;
    for (size_t at = 0; at < message->msg_iovlen; at++)
        len += message->msg_iov[at].iov_len;
    if (len > MESSAGE_MAX - 1)
        return fail(EMSGSIZE);
    uint8_t *all = malloc(len + 1);
    if (!all)
        return fail(ENOMEM);
    for (size_t at = 0; at < message->msg_iovlen; at++) {
        memcpy(all + used, message->msg_iov[at].iov_base, message->msg_iov[at].iov_len);
        used += message->msg_iov[at].iov_len;
    }
    ssize_t done = send_message(it, fd, all, len, message->msg_name, message->msg_namelen);
    int error = errno;
    free(all);
    errno = error;
    return done;
}

ssize_t recvfrom(int fd, void *bytes, size_t len, int flags, struct sockaddr *addr,
                 socklen_t *addr_len)
{
    struct mctp_socket *it = socket_of(fd);
    if (!it)
        return NEXT(recvfrom)(fd, bytes, len, flags, addr, addr_len);
    struct iovec one = {.iov_base = bytes, .iov_len = len};
    int truncated;
    return receive_message(it, fd, &one, 1, flags, &truncated, addr, addr_len);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    if (!socket_of(fd))
        return NEXT(recv)(fd, bytes, len, flags);
    return recvfrom(fd, bytes, len, flags, NULL, NULL);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    struct mctp_socket *it = socket_of(fd);
    if (!it)
        return NEXT(recvmsg)(fd, message, flags);
    int truncated;
    ssize_t got = receive_message(it, fd, message->msg_iov, message->msg_iovlen, flags, &truncated,
                                  message->msg_name, &message->msg_namelen);
    if (got >= 0) {
        message->msg_controllen = 0;
        message->msg_flags = truncated ? MSG_TRUNC : 0;
    }
    return got;
}

/* As poll(2); a message that was looked at and not taken (MSG_PEEK) is there. */
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    nfds_t kept = 0;
    for (nfds_t at = 0; at < count; at++) {
        struct mctp_socket *it = fds[at].events & POLLIN ? socket_of(fds[at].fd) : NULL;
        kept += it && it->whole;
    }
    int done = NEXT(poll)(fds, count, kept ? 0 : timeout);
    if (done < 0 || !kept)
        return done;
    for (nfds_t at = 0; at < count; at++) {
        struct mctp_socket *it = fds[at].events & POLLIN ? socket_of(fds[at].fd) : NULL;
        if (it && it->whole) {
            done += !fds[at].revents;
            fds[at].revents |= POLLIN;
        }
    }
    return done;
}

/* What programs that were built with _FORTIFY_SOURCE call instead. */
ssize_t __recvfrom_chk(int fd, void *bytes, size_t len, size_t room, int flags,
                       struct sockaddr *addr, socklen_t *addr_len)
{
    if (len > room)
        abort();
    return recvfrom(fd, bytes, len, flags, addr, addr_len);
}

ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t room, int flags)
{
    if (len > room)
        abort();
    return recv(fd, bytes, len, flags);
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    if (count > room / sizeof(*fds))
        abort();
    return poll(fds, count, timeout);
}
