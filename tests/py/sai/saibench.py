"""A tester at a switch: the SAI service by Thrift's stubs, PTF's dataplane at the far ends of its ports.

Bench(...) sends, holds outputs, reads counters and waits for what must come; nothing of it is weft's own but
`reload`. Ports are numbered from 0, as PTF's.

Units: frames; octets without FCS; seconds.
Source: public interface of SAI; PTF's DataPlane.
"""

import contextlib
import socket
import struct
import threading
import time

import ptf.testutils
from ptf.dataplane import DataPlane
from switch_sai_thrift import sai_headers as sai
from switch_sai_thrift import switch_sai_rpc
from switch_sai_thrift.ttypes import sai_thrift_attribute_t, sai_thrift_attribute_value_t
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23  # packet(7)
SO_RCVBUFFORCE = 33  # socket(7): beyond net.core.rmem_max, for root
RECEIVE_BYTES = 64 << 20
TIMEOUT_S = 20
CHUNK = 256  # frames that are sent before the switch must have counted them: no ring overflows
PFC_DESTINATION = bytes.fromhex("0180c2000001")
PFC_TX = [getattr(sai, f"SAI_PORT_STAT_PFC_{klass}_TX_PKTS") for klass in range(8)]
PRIORITIES = 8
POOL_ID = 0x18000000000001  # docs/sai.md
POOL_WATERMARKS = (
    sai.SAI_BUFFER_POOL_STAT_WATERMARK_BYTES,
    sai.SAI_BUFFER_POOL_STAT_XOFF_ROOM_WATERMARK_BYTES,
)


def connect(address):
    """A client of the service and its transport, as any tester opens them."""
    host, port = address.rsplit(":", 1)
    plain = TSocket(host, int(port))
    plain.setTimeout(TIMEOUT_S * 1000)
    transport = TBufferedTransport(plain)
    client = switch_sai_rpc.Client(TBinaryProtocol(transport))
    transport.open()
    return client, transport


def tx_enable(enabled):
    """The attribute that has a port send, or hold."""
    value = sai_thrift_attribute_value_t(booldata=enabled)
    return sai_thrift_attribute_t(id=sai.SAI_PORT_ATTR_PKT_TX_ENABLE, value=value)


def mac(port):
    """Address of the tester's station at a port."""
    return f"02:00:00:00:0a:{port:02x}"


def received_by_kernel(interface):
    """Frames that an interface has received, by its own count."""
    with open("/proc/net/dev", encoding="ascii") as table:
        line = next(line for line in table if line.strip().startswith(f"{interface}:"))
    return int(line.split(":", 1)[1].split()[1])


def is_pfc(data):
    """Whether a frame is PFC (IEEE 802.3, Annex 31D)."""
    return data[:6] == PFC_DESTINATION and data[12:16] == b"\x88\x08\x01\x01"


def pfc_quanta(data):
    """The classes that a PFC frame changes, with their quanta."""
    enabled = struct.unpack_from(">H", data, 16)[0]
    quanta = struct.unpack_from(">8H", data, 18)
    return {klass: quanta[klass] for klass in range(8) if enabled >> klass & 1}


class Tester(DataPlane):
    """PTF's dataplane, whose thread keeps no process from ending."""

    def start(self):
        """Starts its thread."""
        self.daemon = True
        super().start()


class Bench:
    """A switch, its service, and a tester at each of its ports."""

    def __init__(self, address, names, interfaces, oracle, reload, memory_kib):
        self.address, self.oracle, self.interfaces = address, oracle, interfaces
        self._reload, self.memory_kib = reload, memory_kib
        self.client, self.transport = connect(address)
        self.port_ids = [self.client.sai_thrift_get_port_id_by_front_port(name) for name in names]
        lists = [self._lists(oid) for oid in self.port_ids]
        self.queue_ids = [found[sai.SAI_PORT_ATTR_QOS_QUEUE_LIST] for found in lists]
        self.group_ids = [found[sai.SAI_PORT_ATTR_INGRESS_PRIORITY_GROUP_LIST] for found in lists]
        self.ports = range(len(names))
        self.dataplane = Tester({"platform": "eth", "qlen": 100_000, "socket_recv_size": 16_384})
        for port, interface in enumerate(interfaces):
            self.dataplane.port_add(interface, 0, port)
            sock = self.dataplane.ports[(0, port)].socket
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
            sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        self.before = [received_by_kernel(interface) for interface in interfaces]
        self.kept = {
            pfc: [[] for _ in names] for pfc in (False, True)
        }  # frames that came, by whether they are PFC
        self.templates, self.held, self.changed = {}, set(), False

    def close(self):
        """Leaves the switch."""
        self.dataplane.kill()
        self.transport.close()

    def _lists(self, port_id):
        got = self.client.sai_thrift_get_port_attribute(port_id)
        assert got.attr_count == len(got.attr_list)
        found = {}
        for attribute in got.attr_list:
            if attribute.value.objlist is not None:
                found[attribute.id] = attribute.value.objlist.object_id_list
                assert len(found[attribute.id]) == attribute.value.objlist.count
        return found

    # What the switch says.

    def port(self, port, *counters, client=None):
        """Counters of a port; one counter is a number."""
        got = (client or self.client).sai_thrift_get_port_stats(self.port_ids[port], list(counters), len(counters))
        assert len(got) == len(counters)
        return got[0] if len(got) == 1 else got

    def queue(self, port, pri, *counters):
        """Counters of an egress queue."""
        got = self.client.sai_thrift_get_queue_stats(self.queue_ids[port][pri], list(counters), len(counters))
        assert len(got) == len(counters)
        return got[0] if len(got) == 1 else got

    def group(self, port, group, *counters):
        """Counters of an ingress group; its watermarks restart by this."""
        got = self.client.sai_thrift_get_pg_stats(self.group_ids[port][group], list(counters), len(counters))
        assert len(got) == len(counters)
        return got[0] if len(got) == 1 else got

    def queues(self, port, counter):
        """A counter of all queues of a port."""
        return [self.queue(port, pri, counter) for pri in range(PRIORITIES)]

    def groups(self, port, counter):
        """A counter of all groups of a port."""
        return [self.group(port, group, counter) for group in range(PRIORITIES)]

    def pfc(self, port, klass):
        """PFC frames of a class that a port has sent."""
        return self.port(port, PFC_TX[klass])

    def arrived(self, port, client=None):
        """Frames that the switch has received at a port, as its service tells one client."""
        kinds = sai.SAI_PORT_STAT_IF_IN_UCAST_PKTS, sai.SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS
        return sum(self.port(port, *kinds, client=client))

    def depth(self, port, pri=None):
        """Frames that wait for an output, all of one cell; of one priority or of all."""
        if pri is None:
            return self.port(port, sai.SAI_PORT_STAT_IF_OUT_QLEN)
        return self.queue(port, pri, sai.SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES) // self.oracle.cell

    def out_of(self, port):
        """Frames that have come out of a port, by the count of the interface at its far end."""
        return received_by_kernel(self.interfaces[port]) - self.before[port]

    def pool_id(self):
        """The shared buffer, whose id a tester has to be told."""
        return POOL_ID

    def pool(self):
        """Watermarks of the shared buffer and of all headroom."""
        return self.client.sai_thrift_get_buffer_pool_stats(self.pool_id(), list(POOL_WATERMARKS))

    def clear_pool(self, *counters):
        """Restarts watermarks of the shared buffer, or both."""
        counters = list(counters or POOL_WATERMARKS)
        assert (
            self.client.sai_thrift_clear_buffer_pool_stats(self.pool_id(), counters) == sai.SAI_STATUS_SUCCESS
        )

    def clear_queue(self, port, pri, *counters):
        """Restarts counters of an egress queue."""
        queue = self.queue_ids[port][pri]
        status = self.client.sai_thrift_clear_queue_stats(queue, list(counters), len(counters))
        assert status == sai.SAI_STATUS_SUCCESS, status

    def forget_watermarks(self):
        """Restarts all watermarks."""
        self.clear_pool()
        for port in self.ports:
            for pri in range(PRIORITIES):
                self.clear_queue(port, pri, sai.SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES)
                self.group(
                    port,
                    pri,
                    sai.SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES,
                    sai.SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES,
                )

    # What the tester does.

    def set_tx(self, port, enabled):
        """Has an output send, or hold all that it has."""
        status = self.client.sai_thrift_set_port_attribute(self.port_ids[port], tx_enable(enabled))
        assert status == sai.SAI_STATUS_SUCCESS, status
        (self.held.discard if enabled else self.held.add)(port)

    def hold(self, *ports):
        """Holds outputs."""
        for port in ports:
            self.set_tx(port, False)

    def free(self, *ports):
        """Has outputs send again."""
        for port in ports:
            self.set_tx(port, True)

    def reload(self, **sections):
        """Changes keys of the configuration while the switch runs; without any, back to the first one. Its oracle."""
        self.changed = bool(sections)
        return self._reload(sections)

    def fresh(self):
        """All outputs open, nothing queued, the first configuration, nothing in PTF's queues."""
        for port in sorted(self.held):
            self.set_tx(port, True)
        if self.changed:
            self.reload()
        self.wait("empty queues", lambda: [self.depth(port) for port in self.ports], [0] * len(self.ports))
        for port in self.ports:
            self.taken(port)
            self.taken(port, pfc=True)

    def frame(self, src, dst, dscp=0, size=64, ecn=0, pcp=None, version=4, number=None, to=None):
        """A UDP frame from one tester's station to another; with a number, that is at its end (4 octets)."""
        key = (src, dst, dscp, size, ecn, pcp, version, to)
        if key not in self.templates:
            tag = {} if pcp is None else {"dl_vlan_enable": True, "vlan_vid": 1, "vlan_pcp": pcp}
            ends = {"pktlen": size, "eth_src": mac(src), "eth_dst": to or mac(dst), "with_udp_chksum": False}
            if version == 4:
                fields = {
                    "ip_tos": dscp << 2 | ecn,
                    "ip_src": f"10.0.0.{src + 1}",
                    "ip_dst": f"10.0.0.{dst + 1}",
                }
                made = ptf.testutils.simple_udp_packet(**ends, **fields, **tag)
            else:
                del ends["with_udp_chksum"]
                fields = {
                    "ipv6_tc": dscp << 2 | ecn,
                    "ipv6_src": f"fd00::{src + 1}",
                    "ipv6_dst": f"fd00::{dst + 1}",
                }
                made = ptf.testutils.simple_udpv6_packet(**ends, **fields, **tag)
            self.templates[key] = bytes(made)
            assert len(self.templates[key]) == size
        data = self.templates[key]
        return data if number is None else data[:-4] + struct.pack(">I", number)

    def send(self, src, frames):
        """Sends frames into a port and waits until the switch has counted each of them."""
        base, sent = self.arrived(src), 0
        while sent < len(frames):
            for data in frames[sent : sent + CHUNK]:
                assert self.dataplane.send(0, src, data) == len(data)
            sent = min(sent + CHUNK, len(frames))
            self.wait(f"{sent} frames received at port {src}", lambda: self.arrived(src) - base, sent)

    def fill(self, src, dst, pri, frames, **fields):
        """Sends frames of a priority to a held output and waits until all are queued there, by the output's count."""
        base = self.depth(dst, pri)
        self.send(src, [self.frame(src, dst, dscp_of(pri), **fields)] * frames)
        self.wait(f"{base + frames} queued for port {dst}", lambda: self.depth(dst, pri), base + frames)

    def settled(self, port):
        """Waits until PTF has taken what the kernel has received at its end of a port, and sorts that."""
        interface = self.interfaces[port]
        behind = (
            lambda: received_by_kernel(interface) - self.before[port] - self.dataplane.rx_counters[(0, port)]
        )  # noqa: E731
        self.wait(f"frames of {interface}", behind, 0)
        with self.dataplane.cvar:
            came = list(self.dataplane.packets(0, port))
        for _, data, _ in came:
            self.kept[is_pfc(data)][port].append(data)

    def taken(self, port, pfc=False):
        """The frames that came out of a port since the last call, in order: those of PFC or all others."""
        self.settled(port)
        got, self.kept[pfc][port] = self.kept[pfc][port], []
        return got

    def delivered(self, port, count, pfc=False):
        """Waits for exactly `count` frames out of a port and returns them."""
        got = []

        def more():
            got.extend(self.taken(port, pfc))
            return len(got)

        self.wait(f"{count} frames out of port {port}", more, count)
        return got

    @staticmethod
    def wait(what, read, want):
        """Waits until `read()` is `want`, or makes it true if it is a function; returns what was read."""
        good = want if callable(want) else lambda now: now == want
        end = time.monotonic() + TIMEOUT_S
        while True:
            now = read()
            if good(now):
                return now
            assert time.monotonic() < end, f"waited in vain for {what}: {now}" + (
                "" if callable(want) else f", not {want}"
            )
            time.sleep(0.002)

    @contextlib.contextmanager
    def stream(self, src, make, pause_s=0.001, batch=4):
        """Sends `make(number)` for 0, 1, ... in the background; yields a function that tells the next number.

        Like `send`, it never is more than CHUNK frames ahead of what the switch has counted.
        """
        state = {"next": 0, "stop": False, "failed": None}
        client, transport = connect(self.address)
        base = self.arrived(src)

        def behind():
            return state["next"] - (self.arrived(src, client) - base)

        def run():
            try:
                while not state["stop"]:
                    for _ in range(batch):
                        self.dataplane.send(0, src, make(state["next"]))
                        state["next"] += 1
                    if state["next"] % CHUNK < batch:
                        self.wait("frames received of a stream", behind, 0)
                    time.sleep(pause_s)
            except (OSError, AssertionError) as err:
                state["failed"] = err
            finally:
                transport.close()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield lambda: state["next"]
        finally:
            state["stop"] = True
            thread.join()
            assert state["failed"] is None, state["failed"]


# DSCPs that the tests' configuration maps to each priority (saiswitch.py).
DSCP_OF = (8, 0, 5, 3, 4, 46, 48, 56)


def dscp_of(pri):
    """A DSCP of a priority."""
    return DSCP_OF[pri]
