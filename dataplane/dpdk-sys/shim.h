/* What weft uses of DPDK, and functions over what DPDK has inline only.
 *
 * One function a call; nothing here is state but the text of DPDK's messages.
 * Units: frames, bytes.
 * Source: DPDK 22.11 API.
 */
#ifndef WEFT_DPDK_SHIM_H
#define WEFT_DPDK_SHIM_H

#include <stdint.h>
#include <stdbool.h>
#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* Flags that are macros of expressions. */
static const uint64_t WEFT_DPDK_VLAN_STRIPPED = RTE_MBUF_F_RX_VLAN_STRIPPED;
static const uint64_t WEFT_DPDK_NOT_DIRECT = RTE_MBUF_F_EXTERNAL | RTE_MBUF_F_INDIRECT;
static const uint64_t WEFT_DPDK_RX_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t WEFT_DPDK_RSS = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP;
static const uint32_t WEFT_DPDK_LINK_INTERRUPT = RTE_ETH_DEV_INTR_LSC;

/* rte_errno of this thread. */
int weft_dpdk_errno(void);

/* From now on keeps DPDK's messages (and, with `all`, what its libraries print); false if that cannot
 * be done. Until weft_dpdk_quote, which writes the last of them to `text` and lets later ones go to
 * standard error again. */
bool weft_dpdk_listen(bool all);
void weft_dpdk_quote(char *text, size_t size);

uint16_t weft_dpdk_rx(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count);
uint16_t weft_dpdk_tx(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count);

struct rte_mbuf *weft_dpdk_alloc(struct rte_mempool *pool);
void weft_dpdk_free(struct rte_mbuf *frame);

/* Has `carrier`, which is fresh, point at `size` bytes from `at`; `freed(at, opaque)` is called when it
 * is freed. Its private area holds an rte_mbuf_ext_shared_info. */
void weft_dpdk_carry(struct rte_mbuf *carrier, void *at, rte_iova_t iova, uint16_t size,
                     rte_mbuf_extbuf_free_callback_t freed, void *opaque);
/* Frees a carrier that was not sent, without calling `freed`. */
void weft_dpdk_uncarry(struct rte_mbuf *carrier);

#endif
