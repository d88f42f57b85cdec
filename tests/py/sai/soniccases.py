"""SONiC's QoS test classes: what each one is given, from thresholds that a running switch tells of itself.

Shape: CASES, one for each row of the table: Case.given(facts) -> ({parameter: value}, what is asserted); Facts is one switch.
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
# A test's socket holds some 200 KB: an output whose frames it counts is slow enough for Python.
SLOW_GBPS = 0.02
SLOW = {"port_defaults": {"port_bandwidth_gbps": SLOW_GBPS}}
CRAWL_GBPS = 0.001
WEIGHTS = [14, 14, 14, 15, 15, 14, 14, 14]
WRR_FRAMES = {f"q{queue}_num_of_pkts": 10 * WEIGHTS[queue] for queue in range(7)}
WRR_LIMIT = 80
ECN_FRAMES, ECN_PERCENT = 200, 50
ALL_PORTS_FRAMES = 500
PROBER_STEPS = 10  # the prober looks for the frame itself in a range of so many
READS_AT_ONCE = 32  # frames that may be on their way where a test reads, or lets a port send, right after it has sent


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
    }
    return facts.lossy() | given, f"{shared - row['fill_min']} cells"


def all_ports(facts):
    ports = [DST, DST_2, DST_3]
    given = {
        "dst_port_ids": ports,
        "dst_port_ips": [address(port) for port in ports],
        "dscp_to_q_map": DSCP_TO_QUEUE,
        "pkt_count": ALL_PORTS_FRAMES,
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


def marks(facts, ecn):
    frames = ECN_FRAMES
    unmarked = sum(facts.oracle.mark_probability(depth * facts.cell) == 0 for depth in range(1, frames + 1))
    given = {
        "router_mac": mac(DST),
        "dscp": DSCP_LOSSY,
        "ecn": ecn,
        "num_of_pkts": frames,
        "ecn_queue_status": "on",
        # Of frames that are not ECT: the octets that are sent, and what they take at two cells each.
        "limit": unmarked * 2 * facts.cell if ecn else frames * facts.params["packet_size"],
        "min_limit": 0 if ecn else frames * 2 * facts.cell,
    }
    return given, f"{unmarked} of {frames} unmarked" if ecn else f"0 of {frames} marked"


def ecn_settings():
    """Marks from half of a queue on, always; below never."""
    keys = {
        "ecn_enabled": True,
        "ecn_threshold_low": ECN_PERCENT // 2,
        "ecn_threshold_high": ECN_PERCENT,
        "max_percent": 0,
    }
    return SLOW | {"ecn": keys, "buffer": {"queue_capacity_bytes": ECN_FRAMES * 2048}}


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

    @property
    def title(self):
        """Its name in the table."""
        return self.name or self.test.rsplit(".", 1)[-1]


def qos(name, given, settings=None, title=""):
    """A class of sai_qos_tests.py."""
    return Case(f"sai_qos_tests.{name}", given, settings or {}, title)


CASES = [
    qos("DscpMappingPB", dscp_to_queue),
    qos("Dot1pToQueueMapping", dot1p),
    qos("DscpToPgMapping", dscp_to_group),
    qos("Dot1pToPgMapping", dot1p),
    qos("PFCtest", pfc),
    qos("PFCXonTest", xon),
    qos("LossyQueueTest", lossy_queue),
    qos("PGDropTest", group_drop),
    qos("PGHeadroomWatermarkTest", group_headroom),
    qos("PGSharedWatermarkTest", group_shared),
    qos("QSharedWatermarkTest", queue_shared),
    # It lets a port send while its last frames may be on their way: at this rate the first one leaves after those have come.
    qos("BufferPoolWatermarkTest", pool, {"port_defaults": {"port_bandwidth_gbps": CRAWL_GBPS}}),
    qos("QWatermarkAllPortTest", all_ports),
    qos("WRRtest", shares, {"port_defaults": {"port_bandwidth_gbps": SLOW_GBPS, "weights": WEIGHTS}}),
    qos("HdrmPoolSizeTest", headroom_pool),
    qos("FullMeshTrafficSanity", full_mesh),
    qos("DscpEcnSend", lambda facts: marks(facts, 0), ecn_settings(), "DscpEcnSend, ecn=0"),
    qos("DscpEcnSend", lambda facts: marks(facts, 1), ecn_settings(), "DscpEcnSend, ecn=1"),
    Case(
        "pfc_xoff_probing.PfcXoffProbing",
        prober,
        folder="probe",
        environment={"POINT_PROBING_LIMIT": str(PROBER_STEPS)},
    ),
]
