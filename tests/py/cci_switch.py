"""Commands of a switch: physical 51xx and C510, virtual 52xx, ports 53xx, PBR 57xx.

Entries are dicts with the names of ENTRY layouts; decode_vcs_info() needs what was asked for.

Units: bytes, little-endian; PIDs of 12 bits; a vector's PID p is bit p mod 8 of byte p / 8.
Source: docs/spec/wire-formats.md §4.1 (5300), §4.3, §4.5.

What the page leaves open: one row for Get and Set (570E/0F, 5710/11, 5712/13) does not say whether Set answers
anything: both are taken. Operations of 5706 have no values: 0 binds, 1 unbinds. 5707 has no total, so a list ends
where the component sends fewer than asked. 5105 to 5107 and 5104: a slash separates Set and Get of each column.
"""

from ccilayout import NOTHING, CciError, Layout, command

PORT_STATE = Layout(
    "port:1 config_state:1 device_version:1 -:1 device_type:1 port_versions:1 width_max:1 width:1"
    " speeds:1 speed_max:1 speed:1 ltssm:1 first_lane:1 link_state:2 ld_count:1"
)
TRAFFIC = Layout("port:1 -:7 rx:8 tx:8")
VPPB_STATE = Layout("status:1 port:1 ld:1 -:1")
PARTNER = Layout(
    "port:1 far_port:1 (pid=0+12,type=12+4):2 uuid:x16 standard_vcs:1 uio_vcs:1 primary_uuid:x16 secondary_uuid:x16"
)
PID_TARGET = Layout("target:2 type:1.3 instance:1 vcs:1 port:1 pid:2.12")
ASSIGNMENT = Layout("pid:2.12 target:2 instance:1")
DESCRIPTOR = Layout("type:1.2 index:1 -:1 ports:x32 -:4")
DRT_ENTRY = Layout("type:1.2 value:1")
RGT_ENTRY = Layout("ports:x8 (valid_max=0+3,primary_max=3+3):1 (mode=0+3,mix=3+3):1 -:2")
LDST_ENTRY = Layout("(valid=0+1,segment=1+1):1 interleave:1.4 granularity:1.4 -:1 dpid:2.12 -:2")
REROUTER = Layout("(dpid=0+12,segment_enable=12+1):2 segment:1 bus:1 (function=0+3,device=3+5):1")
CONFIG_FLAGS = "(reg=0+8,ext_reg=8+4,first_be=12+4,write=23+1):3"
MEMORY_FLAGS = "(first_be=12+4,last_be=16+4,write=23+1):3"

DRT_INVALID, DRT_PORT, DRT_RGT = 0, 1, 2
PID_COUNT = 4096
TABLE = "idx:1 -:1 num:2 start:2"
WINDOW = "vppb:1 -:1 count:2 start:2"

command(
    0x5100,
    "Identify Switch Device",
    "",
    "ingress_port:1 -:1 ports:1 vcs:1 active_ports:x32 active_vcs:x32 vppbs:2 active_vppbs:2 hdm_decoders:1",
)
command(
    0x5101,
    "Get Physical Port State",
    "n:1 ports[n]:1",
    "n:1 -:3 blocks[n]:block",
    {"block": PORT_STATE},
)
command(
    0xC510,
    "Get Port Traffic",
    "n:1 ports[n]:1",
    "at_ns:8 n:1 -:7 blocks[n]:block",
    {"block": TRAFFIC},
)
command(0x5102, "Physical Port Control", "port:1 op:1")
command(0x5103, "Send PPB Cfg", f"port:1 {CONFIG_FLAGS} data:4", "data:4")
command(0x5104, "Get SV State", "", "state:1")
command(0x5105, "Set SV", "uuid:x16", "")
command(0x5106, "Get VCS SV State", "vcs:1", "state:1")
command(0x5107, "Get SV", "vcs:1", "uuid:x16")
command(0x5200, "Get VCS Info", "start:1 limit:1 n:1 ids[n]:1", "n:1 -:3 blocks[]:x")
command(0x5201, "Bind vPPB", "vcs:1 vppb:1 port:1 -:1 ld:2", "", background=True)
command(0x5202, "Unbind vPPB", "vcs:1 vppb:1 option:1", "", background=True)
command(0x5300, "Tunnel", "id:1 type:1 size:2 message[size]:x", "size:2 -:2 message[size]:x")
command(0x5301, "Send LD Cfg", f"port:1 {CONFIG_FLAGS} ld:2 -:2 data:4", "data:4")
command(
    0x5302,
    "Send LD Mem",
    f"port:1 {MEMORY_FLAGS} ld:2 size:2 offset:8 data[]:x",
    "size:2 -:2 data[size]:x",
)

command(
    0x5700,
    "Identify PBR Switch",
    "",
    "gae_map:8 drts:1 rgts:1 -:1 (random=0+1,ca=1+1,advanced_ca=2+1,vendor=6+2):1",
)
command(
    0x5701,
    "Fabric Crawl Out",
    "target:2 type:1.4 -:1 size:2 message[size]:x",
    "size:2 -:2 message[size]:x",
)
command(
    0x5702,
    "Get PBR Link Partner Info",
    "n:1 ports[n]:1",
    "n:1 -:3 blocks[n]:block",
    {"block": PARTNER},
)
command(
    0x5703,
    "Get PID Target List",
    "start:2 count:2",
    "total:2 num:2 list[num]:entry",
    {"entry": PID_TARGET},
)
command(
    0x5704,
    "Configure PID Assignment",
    "op:1.3 -:1 num:2 list[num]:entry",
    "",
    {"entry": ASSIGNMENT},
)
command(
    0x5705,
    "Get PID Binding",
    "vcs:1 vppb:1",
    "pid:2.12 host_es_pid:2.12 latency_base:8 latency:2 bandwidth_base:8 bandwidth:2",
)
command(
    0x5706,
    "Configure PID Binding",
    "op:1 vcs:1 vppb:1 -:1 pid:2.12 -:2 latency_base:8 latency:2 bandwidth_base:8 bandwidth:2",
    "",
    background=True,
)
command(
    0x5707,
    "Get Table Descriptors",
    "start:2 num:2",
    "start:2 num:2 list[num]:entry",
    {"entry": DESCRIPTOR},
)
command(0x5708, "Get DRT", TABLE, f"{TABLE} rgt:1 -:1 list[num]:entry", {"entry": DRT_ENTRY})
command(0x5709, "Set DRT", f"{TABLE} list[num]:entry", "", {"entry": DRT_ENTRY})
command(0x570A, "Get RGT", TABLE, f"{TABLE} list[num]:entry", {"entry": RGT_ENTRY})
command(0x570B, "Set RGT", f"{TABLE} list[num]:entry", "", {"entry": RGT_ENTRY})
command(
    0x570C,
    "Get LDST/IDT Capabilities",
    "vppb:1",
    "vppb:1 segments:2 segment_size:1 idt:2 rerouters:2 pid:2.12 base:8 limit:8",
)
command(0x570D, "Set LDST/IDT Configuration", "vppb:1 segment_size:1 base:8 limit:8", "")
for get, name, item, lead in (
    (0x570E, "LDST Segment", LDST_ENTRY, ""),
    (0x5710, "LDST IDT DPID", 2, "-:2"),
    (0x5712, "Completer ID Re-router", REROUTER, ""),
):
    kind, items = (str(item), {}) if isinstance(item, int) else ("entry", {"entry": item})
    answer = Layout(f"count:2 start:2 list[count]:{kind}", **items)
    command(get, f"Get {name}", WINDOW, answer)
    command(get + 1, f"Set {name}", f"{WINDOW} {lead} list[count]:{kind}", answer, items, may_be_empty=True)
command(0x5714, "Get LAV", "start:4 num:4", "num:4 data[num]:x")
command(0x5715, "Get VCS LAV", "vcs:1 -:3 start:4 num:4", "num:4 data[num]:x")
command(0x5716, "Configure VCS LDST Access", "vcs:1 -:1 (pid=0+12,op=12+3):2", NOTHING)


def decode_vcs_info(blocks, start, limit):
    """Rows of a Get VCS Info response: each VCS has its vPPBs from `start` on, at most `limit`."""
    rows = []
    while blocks:
        if len(blocks) < 4:
            raise CciError(f"{len(blocks)} bytes are left, a VCS has at least 4")
        vcs, state, usp, vppbs = blocks[:4]
        count = max(0, min(limit, vppbs - start))
        if len(blocks) < 4 + 4 * count:
            raise CciError(f"VCS {vcs} has {vppbs} vPPBs, {count} were to come, there are {len(blocks) - 4} bytes")
        parts = [blocks[4 + 4 * i : 8 + 4 * i] for i in range(count)]
        bindings = [VPPB_STATE.decode(part) for part in parts]
        rows.append({"vcs": vcs, "state": state, "usp": usp, "vppbs": vppbs, "bindings": bindings})
        blocks = blocks[4 + 4 * count :]
    return rows


def bits_of(mask):
    """Numbers whose bit is set in a mask or a vector of bytes."""
    return [8 * at + bit for at, byte in enumerate(mask) for bit in range(8) if byte >> bit & 1]
