/* Functions over what DPDK has inline only; see shim.h.
 *
 * Shape, Units, Source: as shim.h.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

int weft_dpdk_errno(void)
{
    return rte_errno;
}

/* Messages: the last KEPT bytes while somebody listens, else passed on. */
enum { KEPT = 16384 };
static pthread_mutex_t heard_lock = PTHREAD_MUTEX_INITIALIZER;
static char heard[KEPT];
static size_t heard_len;
static bool listening;
static FILE *ear;
static FILE *real_stdout;
static FILE *real_stderr;

static ssize_t hear(void *cookie, const char *text, size_t size)
{
    (void)cookie;
    pthread_mutex_lock(&heard_lock);
    if (listening) {
        size_t len = size < KEPT ? size : KEPT;
        size_t over = heard_len + len > KEPT ? heard_len + len - KEPT : 0;
        memmove(heard, heard + over, heard_len - over);
        heard_len -= over;
        memcpy(heard + heard_len, text + size - len, len);
        heard_len += len;
    } else {
        fwrite(text, 1, size, stderr);
    }
    pthread_mutex_unlock(&heard_lock);
    return (ssize_t)size;
}

bool weft_dpdk_listen(bool all)
{
    if (ear == NULL) {
        cookie_io_functions_t calls = { .write = hear };
        ear = fopencookie(NULL, "w", calls);
        if (ear == NULL)
            return false;
        setvbuf(ear, NULL, _IOLBF, BUFSIZ);
        rte_openlog_stream(ear);
    }
    pthread_mutex_lock(&heard_lock);
    heard_len = 0;
    listening = true;
    pthread_mutex_unlock(&heard_lock);
    if (all && real_stdout == NULL) {
        /* EAL prints its usage and getopt its complaint there. */
        real_stdout = stdout;
        real_stderr = stderr;
        stdout = ear;
        stderr = ear;
    }
    return true;
}

void weft_dpdk_quote(char *text, size_t size)
{
    fflush(ear);
    if (real_stdout != NULL) {
        stdout = real_stdout;
        stderr = real_stderr;
        real_stdout = NULL;
    }
    pthread_mutex_lock(&heard_lock);
    size_t len = heard_len < size - 1 ? heard_len : size - 1;
    memcpy(text, heard + heard_len - len, len);
    text[len] = 0;
    listening = false;
    pthread_mutex_unlock(&heard_lock);
}

uint16_t weft_dpdk_rx(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count)
{
    return rte_eth_rx_burst(port, queue, frames, count);
}

uint16_t weft_dpdk_tx(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count)
{
    return rte_eth_tx_burst(port, queue, frames, count);
}

struct rte_mbuf *weft_dpdk_alloc(struct rte_mempool *pool)
{
    return rte_pktmbuf_alloc(pool);
}

void weft_dpdk_free(struct rte_mbuf *frame)
{
    rte_pktmbuf_free(frame);
}

void weft_dpdk_carry(struct rte_mbuf *carrier, void *at, rte_iova_t iova, uint16_t size,
                     rte_mbuf_extbuf_free_callback_t freed, void *opaque)
{
    struct rte_mbuf_ext_shared_info *shared = rte_mbuf_to_priv(carrier);
    shared->free_cb = freed;
    shared->fcb_opaque = opaque;
    rte_mbuf_ext_refcnt_set(shared, 1);
    rte_pktmbuf_attach_extbuf(carrier, at, iova, size, shared);
}

static void ignore(void *at, void *opaque)
{
    (void)at;
    (void)opaque;
}

void weft_dpdk_uncarry(struct rte_mbuf *carrier)
{
    struct rte_mbuf_ext_shared_info *shared = rte_mbuf_to_priv(carrier);
    shared->free_cb = ignore;
    rte_pktmbuf_free(carrier);
}
