"""Cases of what the service names and counts: ports, queues, groups, counters, stations, attributes.

CASES, name -> function(bench); each leaves the outputs to Bench.fresh.

Units: frames, octets without FCS.
Source: docs/spec/pipeline.md §10; docs/sai.md.
"""

from saibench import connect
from saicommon import LOSSLESS, LOSSY, OUT_DROPS
from switch_sai_thrift import sai_headers as sai
from switch_sai_thrift.ttypes import (
    sai_thrift_attribute_t,
    sai_thrift_attribute_value_t,
    sai_thrift_fdb_entry_t,
)

UNICAST = (sai.SAI_PORT_STAT_IF_IN_UCAST_PKTS, sai.SAI_PORT_STAT_IF_OUT_UCAST_PKTS)
OTHERS = (sai.SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS, sai.SAI_PORT_STAT_IF_OUT_NON_UCAST_PKTS)
CASES = {}


def case(function):
    """Makes a function one of the cases."""
    CASES[function.__name__] = function
    return function


@case
def unicast_and_other_frames_are_counted_apart(bench):
    """At the input once each, at the outputs one of each copy."""
    before = {
        port: bench.port(port, *UNICAST, *OTHERS, sai.SAI_PORT_STAT_IF_OUT_OCTETS) for port in bench.ports
    }
    bench.send(0, [bench.frame(0, 2)] * 11)
    bench.send(
        0, [bench.frame(0, 0, to="ff:ff:ff:ff:ff:ff")] * 7 + [bench.frame(0, 0, to="01:00:5e:01:02:03")] * 5
    )
    for port in (1, 2, 3):
        bench.delivered(port, 12 + 11 * (port == 2))
    expected = {0: [11, 0, 12, 0], 1: [0, 0, 0, 12], 2: [0, 11, 0, 12], 3: [0, 0, 0, 12]}
    for port in bench.ports:

        def grown(port=port):
            now = bench.port(port, *UNICAST, *OTHERS, sai.SAI_PORT_STAT_IF_OUT_OCTETS)
            return [new - old for new, old in zip(now, before[port])]

        out = (expected[port][1] + expected[port][3]) * 64
        bench.wait(f"counters of port {port}", grown, [*expected[port], out])


@case
def cleared_counters_begin_at_nothing_for_all_testers(bench):
    """Of the port or queue that is named, and of no other."""
    sent = sai.SAI_PORT_STAT_IF_OUT_UCAST_PKTS
    for dst in (2, 3):
        bench.send(0, [bench.frame(0, dst)] * 5)
        bench.delivered(dst, 5)
        bench.wait("frames sent", lambda dst=dst: bench.port(dst, sent), lambda count: count >= 5)
    kept, queue_kept = bench.port(2, sent), bench.queue(2, LOSSY, sai.SAI_QUEUE_STAT_PACKETS)
    assert bench.client.sai_thrift_clear_port_all_stats(bench.port_ids[3]) == sai.SAI_STATUS_SUCCESS
    bench.clear_queue(3, LOSSY, sai.SAI_QUEUE_STAT_PACKETS)
    other, transport = connect(bench.address)
    assert other.sai_thrift_get_port_stats(bench.port_ids[3], [sent, *OUT_DROPS], 3) == [0, 0, 0]
    assert other.sai_thrift_get_queue_stats(bench.queue_ids[3][LOSSY], [sai.SAI_QUEUE_STAT_PACKETS], 1) == [0]
    transport.close()
    assert (bench.port(2, sent), bench.queue(2, LOSSY, sai.SAI_QUEUE_STAT_PACKETS)) == (kept, queue_kept)
    bench.send(0, [bench.frame(0, 3)] * 3)
    bench.delivered(3, 3)
    bench.wait("frames counted since", lambda: bench.port(3, sent), 3)


@case
def a_station_is_where_a_tester_puts_it(bench):
    """Frames to it leave by one port; before and after by all, as those to any station that is not known."""
    there = "02:00:00:00:0b:01"
    entry = sai_thrift_fdb_entry_t(mac_address=there, bv_id=0)
    port = sai_thrift_attribute_t(
        id=sai.SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID, value=sai_thrift_attribute_value_t(oid=bench.port_ids[2])
    )

    def comes_to(*ports):
        bench.send(0, [bench.frame(0, 0, to=there)])
        for dst in ports:
            bench.delivered(dst, 1)

    comes_to(1, 2, 3)
    assert bench.client.sai_thrift_create_fdb_entry(entry, [port]) == sai.SAI_STATUS_SUCCESS
    bench.wait("the entry in force", lambda: out_by(bench, there), {2})
    assert bench.client.sai_thrift_flush_fdb_entries([]) == sai.SAI_STATUS_SUCCESS
    assert out_by(bench, there) == {2}, "a flush is of what was learned"
    assert bench.client.sai_thrift_delete_fdb_entry(entry) == sai.SAI_STATUS_SUCCESS
    bench.wait("the entry gone", lambda: out_by(bench, there), {1, 2, 3})


def out_by(bench, station):
    """The ports by which a frame from port 0 to a station leaves: what left before a broadcast did."""
    bench.send(0, [bench.frame(0, 0, to=station), bench.frame(0, 0, to="ff:ff:ff:ff:ff:ff")])
    found = set()
    for dst in (1, 2, 3):
        got = []

        def last(dst=dst, got=got):
            got.extend(bench.taken(dst))
            return bool(got) and got[-1][0] == 0xFF

        bench.wait(f"the broadcast at port {dst}", last, True)
        found |= {dst} if len(got) == 2 else set()
    return found


@case
def the_switch_names_its_ports(bench):
    """Number and list of ports, lists of queues and groups of eight, every object once; what is not there is refused."""
    got = {one.id: one.value for one in bench.client.sai_thrift_get_switch_attribute().attr_list}
    assert got[sai.SAI_SWITCH_ATTR_PORT_NUMBER].u32 == len(bench.ports)
    listed = got[sai.SAI_SWITCH_ATTR_PORT_LIST].objlist
    front = bench.client.sai_thrift_get_port_list_by_front_port()
    assert front.id == sai.SAI_SWITCH_ATTR_PORT_LIST
    assert listed.object_id_list == front.value.objlist.object_id_list == bench.port_ids
    assert listed.count == front.value.objlist.count == len(bench.ports)
    assert bench.client.sai_thrift_get_port_id_by_front_port("p9") == 0
    systems = [bench.client.sai_thrift_get_sys_port_obj_id_by_port_id(port) for port in bench.ports]
    bench.hold(3)
    bench.fill(0, 3, LOSSY, 4)
    voqs = bench.client.sai_thrift_get_system_port_attribute(systems[3]).attr_list
    assert [one.id for one in voqs] == [sai.SAI_SYSTEM_PORT_ATTR_QOS_VOQ_LIST]
    queue = voqs[0].value.objlist.object_id_list[LOSSY]
    occupied = bench.client.sai_thrift_get_queue_stats(queue, [sai.SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES], 1)
    assert occupied == [4 * bench.oracle.cell]
    bench.free(3)
    bench.delivered(3, 4)
    objects = [*bench.port_ids, *sum(bench.queue_ids, []), *sum(bench.group_ids, []), bench.pool_id()]
    assert len(set(objects)) == len(objects) == 4 + 32 + 32 + 1
    assert len(set(systems)) == len(systems) == 4


@case
def what_a_tester_sets_besides_is_accepted_or_refused(bench):
    """Attributes that change nothing here succeed where testers set them; others are refused, never ignored."""
    on = sai_thrift_attribute_value_t(booldata=True)
    for name, value, status in (
        (sai.SAI_SWITCH_ATTR_SRC_MAC_ADDRESS, sai_thrift_attribute_value_t(mac="02:00:00:00:00:01"), 0),
        (sai.SAI_SWITCH_ATTR_CREDIT_WD, on, 0),
        (sai.SAI_SWITCH_ATTR_PORT_NUMBER, sai_thrift_attribute_value_t(u32=9), sai.SAI_STATUS_NOT_SUPPORTED),
    ):
        attribute = sai_thrift_attribute_t(id=name, value=value)
        assert bench.client.sai_thrift_set_switch_attribute(attribute) == status, name
    admin = sai_thrift_attribute_t(id=sai.SAI_PORT_ATTR_ADMIN_STATE, value=on)
    assert bench.client.sai_thrift_set_port_attribute(bench.port_ids[0], admin) == sai.SAI_STATUS_SUCCESS
    assert bench.client.sai_thrift_set_port_attribute(0x1234, admin) == sai.SAI_STATUS_ITEM_NOT_FOUND


@case
def a_port_is_held_by_a_scheduler_profile(bench):
    """By one whose rate is next to nothing; a profile without a limit, or none, lets the port send."""

    def profile(rate):
        attribute = sai_thrift_attribute_t(
            id=sai.SAI_SCHEDULER_ATTR_MAX_BANDWIDTH_RATE, value=sai_thrift_attribute_value_t(u64=rate)
        )
        return bench.client.sai_thrift_create_scheduler_profile([attribute])

    def shape(port, oid):
        attribute = sai_thrift_attribute_t(
            id=sai.SAI_PORT_ATTR_QOS_SCHEDULER_PROFILE_ID, value=sai_thrift_attribute_value_t(oid=oid)
        )
        return bench.client.sai_thrift_set_port_attribute(bench.port_ids[port], attribute)

    assert profile(1_000_000) == 0, "rates are those of the configuration"
    assert shape(3, 1) == shape(3, bench.port_ids[0]) == sai.SAI_STATUS_INVALID_PARAMETER
    bench.held.add(3)  # so that it is let go whatever happens
    for free in (profile(0), 0):
        assert shape(3, profile(1)) == sai.SAI_STATUS_SUCCESS
        bench.fill(0, 3, LOSSY, 4)
        bench.fill(0, 3, LOSSLESS, 4)
        assert shape(3, free) == sai.SAI_STATUS_SUCCESS
        bench.delivered(3, 8)
