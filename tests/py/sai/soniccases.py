"""SONiC's QoS test classes: what each one is given, from thresholds that a running switch tells of itself.

CASES, one for each row of the table: Case.given(facts) -> ({parameter: value}, what is asserted); Facts is one switch.
REVISION and DIGESTS say which classes the parameters were run with.

Units: frames of 64 octets, one cell each; cells; octets where the name says so.
Source: test parameters as the classes of sonic-mgmt read them; `weft conform params` (docs/conform.md); saioracle.py for what
several groups, and marks, have as thresholds.
"""

from dataclasses import dataclass, field
from typing import Callable

PORTS = 4
SRC, DST, DST_2, DST_3 = range(PORTS)
LOSSLESS, LOSSLESS_TOO, LOSSY = 3, 4, 0
DSCP_LOSSY = 8
# DSCP and PCP to priority, and priority to group, as SONiC configures them: its tests have these in their text.
DSCP_TO_QUEUE = {8: 0, 0: 1, 5: 2, 3: 3, 4: 4, 46: 5, 48: 6}
DSCP_TO_PRI = [DSCP_TO_QUEUE.get(dscp, 1) for dscp in range(64)]
PCP_TO_PRI = [1, 0, 2, 3, 4, 5, 6, 7]
PRI_TO_PG = [0, 0, 0, 3, 4, 0, 0, 7]
# For classes that ask for groups alone, and for frames in the order in which they were sent, which several queues do not
# keep: each group has one queue.
QUEUE_OF_PG = {
    "classify": {
        "dscp_to_pri": [dscp if dscp in (LOSSLESS, LOSSLESS_TOO) else LOSSY for dscp in range(64)],
        "pcp_to_pri": PRI_TO_PG,
    }
}
# A test's socket holds some 200 KB: an output whose frames it counts is slow enough for Python.
SLOW_GBPS = 0.02
SLOW = {"port_defaults": {"max_rate_gbps": SLOW_GBPS}}
# Where a test lets a port send while its last frames may be on their way: 82 frames of LONG_OCTETS in a second.
CRAWL = {"port_defaults": {"max_rate_gbps": 0.001}}
WEIGHTS = [14, 14, 14, 15, 15, 14, 14, 14]
WRR_FRAMES = {f"q{queue}_num_of_pkts": 10 * WEIGHTS[queue] for queue in range(7)}
WRR_LIMIT = 80
ECN_FRAMES, ECN_PERCENT = 200, 50
# DscpEcnSend's own bounds: the least and the most that may be marked, as shares of its limit.
ECN_LEAST, ECN_MOST = 0.03, 0.07
# Frames leave all depths of the ramp from 0 to 10 %, so 5 % of them are marked; with so many, both bounds are more than
# five standard deviations away.
ECN_RAMP_FRAMES, ECN_RAMP_PERCENT = 4000, 10
# In the middle between both bounds, and its 95 % below what is not marked.
ECN_RAMP_LIMIT = ECN_RAMP_FRAMES * 39 // 40
# All leave in 0.7 s, as the class reads counters after 2 s; and a socket of 200 KB holds what comes in 90 ms.
ECN_RAMP_GBPS = 0.004
# A variable of DscpEcnSend's revisions that compare cells and have those bounds.
COUNTS_CELLS = "cell_occupancy"
ALL_PORTS_FRAMES = 500
LONG_OCTETS = 1500  # one cell, too
PROBER_STEPS = 10  # the prober looks for the frame itself in a range of so many
READS_AT_ONCE = 32  # frames that may be on their way where a test reads or lets a port send, right after it has sent


def mac(port):
    """Address of the tester's station at a port."""
    return f"02:00:00:00:0a:{port:02x}"


def address(port):
    """Its IPv4 address."""
    return f"10.0.0.{port + 1}"


def stations(*ports):
    """IPv4 addresses by port."""
    return {port: address(port) for port in ports}


@dataclass
class Facts:
    """What is known of a running switch: its own parameters, and its configuration in closed form."""

    params: dict
    oracle: object
    config: dict
    names: frozenset = frozenset()  # variables of the class that is run, by which revisions differ

    def row(self, pri):
        """Thresholds of a priority at the source."""
        rows = self.params["rows"]
        return next(row for row in rows if (row["port"], row["pri"]) == (f"p{SRC}", pri))

    @property
    def cell(self):
        """Octets of a cell."""
        return self.params["cell_size"]

    def common(self):
        """What all classes read."""
        return {
            "router_mac": "",  # frames are for the station at the destination: a bridge has no address of its own
            "sonic_version": "master",
            "sonic_asic_type": "weft",
            "platform_asic": "weft",
            "dut_asic": "weft",
            "hwsku": "weft",
            "testbed_type": "weft",
            "topo": "weft",
            "src_dut_index": 0,
            "dst_dut_index": 0,
            "src_asic_index": 0,
            "dst_asic_index": 0,
            "src_dst_asic_diff": False,
            "src_port_id": SRC,
            "src_port_ip": address(SRC),
            "src_port_vlan": None,
            "dst_port_id": DST,
            "dst_port_ip": address(DST),
            "dst_port_2_id": DST_2,
            "dst_port_2_ip": address(DST_2),
            "dst_port_3_id": DST_3,
            "dst_port_3_ip": address(DST_3),
            "ecn": 1,
            "packet_size": self.params["packet_size"],
            "cell_size": self.cell,
            "pkts_num_leak_out": 0,
        }

    def lossless(self, margin=0):
        """Of a lossless group: its thresholds, with a margin beside that of several workers."""
        row = self.row(LOSSLESS)
        return {
            "dscp": LOSSLESS,
            "pg": LOSSLESS,
            "queue": LOSSLESS,
            "pkts_num_trig_pfc": row["trig_pfc"],
            "pkts_num_trig_ingr_drp": row["trig_ingr_drp"],
            "pkts_num_margin": row["margin"] + margin,
        }

    def lossy(self, margin=0):
        """Of a lossy queue."""
        row = self.row(LOSSY)
        return {"dscp": DSCP_LOSSY, "pg": 0, "queue": LOSSY, "pkts_num_margin": row["margin"] + margin}


def dscp_to_queue(_facts):
    counts = {queue: DSCP_TO_PRI.count(queue) for queue in range(8)}
    given = {"dual_tor_scenario": False, "tc_to_dscp_count_map": counts}
    return given, "frames by queue " + "/".join(map(str, counts.values()))


def dot1p(_facts):
    return {"vlan_id": 1}, "each PCP"


def dscp_to_group(_facts):
    return {"dscp": LOSSLESS}, "each DSCP"


def pfc(facts):
    given = facts.lossless()
    return given, f"PFC at {given['pkts_num_trig_pfc']}, drop at {given['pkts_num_trig_ingr_drp']}"


def xon(facts):
    row = facts.row(LOSSLESS)
    given = {"pkts_num_dismiss_pfc": row["dismiss_pfc"], "pkts_num_hysteresis": 0}
    return facts.lossless() | given, f"PFC at {row['trig_pfc']}, release {row['dismiss_pfc']} below"


def lossy_queue(facts):
    point = facts.row(LOSSY)["trig_egr_drp"]
    return facts.lossy() | {"pkts_num_trig_egr_drp": point}, f"egress drop at {point}"


def group_drop(facts):
    given = facts.lossless(margin=READS_AT_ONCE)
    return given | {"iterations": 3}, f"drop at {given['pkts_num_trig_ingr_drp']}, 3 times"


def group_headroom(facts):
    # "Not into the headroom" is one frame before the one that asks for PFC.
    return facts.lossless(margin=1), f"headroom of {facts.row(LOSSLESS)['headroom']} cells"


def group_shared(facts):
    # The watermark counts the reserve, too, so for this test there is none.
    shared = facts.row(LOSSLESS)["trig_pfc"] - 1
    given = {"pkts_num_fill_min": 0, "pkts_num_fill_shared": shared}
    return facts.lossless() | given, f"{shared} cells"


def queue_shared(facts):
    point = facts.row(LOSSY)["trig_egr_drp"]
    given = {"pkts_num_fill_min": 0, "pkts_num_trig_drp": point}
    return facts.lossy(margin=1) | given, f"{point - 1} cells"


def pool(facts):
    row = facts.row(LOSSY)
    shared = row["trig_egr_drp"] - 1
    given = {
        "buf_pool_roid": facts.params["buf_pool_roid"],
        "pkts_num_fill_min": row["fill_min"],
        "pkts_num_fill_shared": shared,
        "packet_size": LONG_OCTETS,
    }
    return facts.lossy() | given, f"{shared - row['fill_min']} cells"


def all_ports(facts):
    ports = [DST, DST_2, DST_3]
    given = {
        "dst_port_ids": ports,
        "dst_port_ips": [address(port) for port in ports],
        "dscp_to_q_map": DSCP_TO_QUEUE,
        "pkt_count": ALL_PORTS_FRAMES,
        "packet_size": LONG_OCTETS,
    }
    return facts.lossy(margin=READS_AT_ONCE) | given, f"{ALL_PORTS_FRAMES} cells in {len(ports) * len(DSCP_TO_QUEUE)} queues"


def shares(_facts):
    frames = "/".join(str(count) for count in WRR_FRAMES.values())
    given = WRR_FRAMES | {"limit": WRR_LIMIT, "packet_size": 1500}
    return given, f"{frames} frames end within {WRR_LIMIT} of each other"


def headroom_pool(facts):
    """Three groups to one output: each one's PFC comes earlier, by what those before it have of the shared part."""
    oracle, used, points = facts.oracle, 0, []
    groups = [(SRC, LOSSLESS), (SRC, LOSSLESS_TOO), (DST_2, LOSSLESS)]
    for _, pri in groups:
        points.append(oracle.xoff(pri, shared_used=used))
        used += oracle.shared(pri, points[-1])
    margin = facts.row(LOSSLESS)["margin"] + 1
    room = facts.row(LOSSLESS)["headroom"]
    # Each group may have one frame there already, the one that asked for PFC; the last one is filled up.
    full = room - 2
    given = {
        "src_port_ids": [SRC, DST_2],
        "src_port_ips": [address(SRC), address(DST_2)],
        "dscps": [LOSSLESS, LOSSLESS_TOO],
        "pgs": [LOSSLESS, LOSSLESS_TOO],
        "pgs_num": len(groups),
        "pkts_num_trig_pfc": points[0],
        "pkts_num_trig_pfc_multi": points,
        "pkts_num_hdrm_full": full,
        "pkts_num_hdrm_partial": room - 1,
        "margin": margin,
        "hdrm_pool_wm_multiplier": 1,
        "buf_pool_roid": facts.params["buf_pool_roid"],
        "max_headroom": len(groups) * oracle.headroom_cells * facts.cell,
    }
    return given, "PFC after " + "/".join(map(str, points)) + f", {full} cells of headroom each"


def full_mesh(_facts):
    given = {}
    for way, ports in (("src", (SRC, DST_2)), ("dst", (DST, DST_3))):
        given[f"all_{way}_port_id_to_ip"] = stations(*ports)
        given[f"all_{way}_port_id_to_name"] = {port: f"p{port}" for port in ports}
    return given | {"dscp_to_q_map": DSCP_TO_QUEUE}, "2 sources x 2 destinations x 7 queues"


def ecn_given(facts, ecn, frames, limit, min_limit):
    return {
        "router_mac": mac(DST),
        "dscp": DSCP_LOSSY,
        "ecn": ecn,
        "num_of_pkts": frames,
        "ecn_queue_status": "on",
        "limit": limit,
        "min_limit": min_limit,
    }


def marks(facts, ecn):
    frames = ECN_FRAMES
    unmarked = sum(facts.oracle.mark_probability(depth * facts.cell) == 0 for depth in range(1, frames + 1))
    if COUNTS_CELLS in facts.names:
        # Cells that are sent, or not marked. With as many frames as the least, it does not ask for 3 to 7 %.
        cells = facts.params["packet_cells"]
        limit = (unmarked if ecn else frames) * cells
        least = frames if ecn else limit
    else:
        # Octets at two cells a frame; of frames that are not ECT the most is what is sent.
        limit = unmarked * 2 * facts.cell if ecn else frames * facts.params["packet_size"]
        least = 0 if ecn else frames * 2 * facts.cell
    given = ecn_given(facts, ecn, frames, limit, least)
    return given, f"{unmarked} of {frames} unmarked" if ecn else f"0 of {frames} marked"


def ramp(facts):
    """Some of the frames are marked, by chance."""
    limit = ECN_RAMP_LIMIT * facts.params["packet_cells"]
    least, most = (round(limit * share) for share in (ECN_LEAST, ECN_MOST))
    mean, _ = facts.oracle.marks(facts.cell, ECN_RAMP_FRAMES)
    given = ecn_given(facts, 1, ECN_RAMP_FRAMES, limit, 0)
    return given, f"{least} to {most} of {ECN_RAMP_FRAMES} marked, {float(mean):.0f} on average"


def ecn_settings():
    """Marks from half of a queue on, always; below never."""
    keys = {
        "ecn_enabled": True,
        "ecn_threshold_low": ECN_PERCENT // 2,
        "ecn_threshold_high": ECN_PERCENT,
        "max_percent": 0,
    }
    return SLOW | {"ecn": keys, "buffer": {"queue_capacity_bytes": ECN_FRAMES * 2048}}


def ramp_settings():
    """Marks more and more frames up to a queue that no frame leaves full."""
    keys = {
        "ecn_enabled": True,
        "ecn_threshold_low": 0,
        "ecn_threshold_high": 100,
        "max_percent": ECN_RAMP_PERCENT,
    }
    buffer = {"buffer_size_mb": 32, "queue_capacity_bytes": (ECN_RAMP_FRAMES + 1) * 2048}
    return {"port_defaults": {"max_rate_gbps": ECN_RAMP_GBPS}, "ecn": keys, "buffer": buffer}


def prober(facts):
    ips = {port: {"peer_addr": address(port)} for port in (SRC, DST)}
    given = {
        "probing_port_ids": [SRC, DST],
        "test_port_ips": {0: {0: ips}},
        "ingress_lossless_pool_size": facts.oracle.shared_cells * facts.cell,
        "executor_env": "physical",
        "probe_packet_length": facts.params["packet_size"],
        "probe_cells_per_packet": facts.params["packet_cells"],
    }
    return facts.lossless() | given, f"finds PFC at {facts.row(LOSSLESS)['trig_pfc']}"


@dataclass(frozen=True)
class Case:
    """A row of the table: a class of SONiC's, what it is given, and what the switch's configuration has for it."""

    test: str
    given: Callable
    settings: dict = field(default_factory=dict)
    name: str = ""
    folder: str = "py3"
    environment: dict = field(default_factory=dict)
    needs: str = ""  # a variable of the class, without which it does not check what this row is for

    @property
    def title(self):
        """Its name in the table."""
        return self.name or self.test.rsplit(".", 1)[-1]


def qos(name, given, settings=None, title="", needs=""):
    """A class of sai_qos_tests.py."""
    return Case(f"sai_qos_tests.{name}", given, settings or {}, title, needs=needs)


CASES = [
    qos("DscpMappingPB", dscp_to_queue),
    qos("Dot1pToQueueMapping", dot1p),
    qos("DscpToPgMapping", dscp_to_group, QUEUE_OF_PG),
    qos("Dot1pToPgMapping", dot1p, QUEUE_OF_PG),
    qos("PFCtest", pfc),
    qos("PFCXonTest", xon),
    qos("LossyQueueTest", lossy_queue),
    qos("PGDropTest", group_drop),
    qos("PGHeadroomWatermarkTest", group_headroom),
    qos("PGSharedWatermarkTest", group_shared),
    qos("QSharedWatermarkTest", queue_shared),
    # It wants all cells but one there, and all gone 8 s later: so few that this takes 3 s.
    qos("BufferPoolWatermarkTest", pool, CRAWL | {"buffer": {"buffer_size_mb": 2}}),
    # It leaves what is queued, for which the buffer has room.
    qos("QWatermarkAllPortTest", all_ports, CRAWL | {"buffer": {"buffer_size_mb": 64}}),
    qos("WRRtest", shares, {"port_defaults": {"max_rate_gbps": SLOW_GBPS, "weights": WEIGHTS}}),
    qos("HdrmPoolSizeTest", headroom_pool),
    qos("FullMeshTrafficSanity", full_mesh),
    qos("DscpEcnSend", lambda facts: marks(facts, 0), ecn_settings(), "DscpEcnSend, ecn=0"),
    qos("DscpEcnSend", lambda facts: marks(facts, 1), ecn_settings(), "DscpEcnSend, ecn=1"),
    qos("DscpEcnSend", ramp, ramp_settings(), "DscpEcnSend, 3 to 7 %", needs=COUNTS_CELLS),
    Case(
        "pfc_xoff_probing.PfcXoffProbing",
        prober,
        folder="probe",
        environment={"POINT_PROBING_LIMIT": str(PROBER_STEPS)},
    ),
]

# The revision of sonic-mgmt whose classes these parameters were run with, and what `sonicclone.digest` says of each.
REVISION = "b4ba9de3 (22 August 2026)"
DIGESTS = {
    "sai_qos_tests.DscpMappingPB": "97b4813194af",
    "sai_qos_tests.Dot1pToQueueMapping": "faf928e201f7",
    "sai_qos_tests.DscpToPgMapping": "31dc0d88f6ef",
    "sai_qos_tests.Dot1pToPgMapping": "8d411b04d0d5",
    "sai_qos_tests.PFCtest": "a53a9c060553",
    "sai_qos_tests.PFCXonTest": "cdf73be2483e",
    "sai_qos_tests.LossyQueueTest": "331f3faacef4",
    "sai_qos_tests.PGDropTest": "556fe1900be9",
    "sai_qos_tests.PGHeadroomWatermarkTest": "cd005f921d86",
    "sai_qos_tests.PGSharedWatermarkTest": "f411c88a4257",
    "sai_qos_tests.QSharedWatermarkTest": "cd48decf233a",
    "sai_qos_tests.BufferPoolWatermarkTest": "a6fb47ebe676",
    "sai_qos_tests.QWatermarkAllPortTest": "744a47fb4c4c",
    "sai_qos_tests.WRRtest": "c4d5616c1039",
    "sai_qos_tests.HdrmPoolSizeTest": "6b70b12f935a",
    "sai_qos_tests.FullMeshTrafficSanity": "cd89729147ef",
    "sai_qos_tests.DscpEcnSend": "97bb5fd5f33f",
    "pfc_xoff_probing.PfcXoffProbing": "9d2679debd44",
}
