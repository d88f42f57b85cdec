"""Commands of a GAE 58xx, of a VCS' GAE 59xx, the host's ring 0109/010A and the notifications 0107/0108.

Entries are dicts with the names of FAST_ENTRY; access vectors are bytes, PID p is bit p mod 8 of byte p / 8.

Units: bytes, little-endian; segment size code n is 64 GB << n; ring indices in entries of 32 bytes.
Source: docs/spec/wire-formats.md §4.6, §5.1.

What the page leaves open: "1: b0 ..., b1 ..." of 5903 is read as one byte of response, not as offset 1. Flags of the
notifications are numbered as bits, bit 0 unused. The address of 0109/010A is bits 51:5 of an address that is a
multiple of 32, not shifted. Get and Set in one row: a Set may answer nothing or like Get.
"""

from ccilayout import Layout, command

FAST_ENTRY = Layout("(valid=0+1,gim=1+1):1 interleave:1.4 granularity:1.4 -:1 dpid:2.12 -:2")
SEGMENTS = Layout("segments:2 -:2")
IDENTITY = Layout(
    "(pids_max=0+12,egress_prefix=12+1,ingress_prefix=13+1,gim=14+1):2"
    " threads:2 available:2 start:1 num:1 list[num]:vppb",
    vppb=SEGMENTS,
)
THREAD = "(pid=0+12,cmd_seq=12+3):2"
PREFIX_FLAGS = "(egress_prefix=0+1,ingress_prefix=1+1):1"
WINDOW = "vppb:1 -:1 count:2 start:2"
VECTOR_SIZE = 512  # bytes of GMV, VTV and the interrupt vector; VTV is at this offset
GMV_ENABLE, GMV_DISABLE, VTV_ENABLE, VTV_DISABLE, UPDATE_LATENCY = range(5)

NOTIFICATION_FM = Layout(
    "pbr_id:2 (info=0+1,warn=1+1,fail=2+1,fatal=3+1,dc=4+1,background_done=15+1):2 type:1 trigger:1 rpid:2.12"
    " dpa:8 hpa:8 grp_id:2 opcode:1.4 -:1"
    " (associated=1+1,dpa_valid=2+1,hpa_valid=3+1,grp_valid=4+1,opcode_valid=5+1):2 handle:2 timestamp:8"
)
NOTIFICATION_HOST = Layout(
    "pbr_id:2 type:1 opcode:1.4 (associated=1+1,dpa_valid=2+1,hpa_valid=3+1,opcode_valid=5+1):2 rpid:2.12"
    " dpa:8 hpa:8 timestamp:8"
)
command(0x0107, "GFD Enhanced Notification", NOTIFICATION_FM, "")
command(0x0108, "GFD to GAE Notification", NOTIFICATION_HOST, "")
command(0x0109, "Get GAM Buffer", "", "(valid=0+1,overflow=1+1,address_32=5+47,head=56+8):8")
command(0x010A, "Set GAM Buffer", "(valid=0+1,clear_overflow=1+1,address_32=5+47,tail=56+8):8", "")

command(0x5800, "Identify GAE", "start:1 num:1", IDENTITY)
command(0x5801, "Get PID Interrupt Vector", "start:4 num:4 clear:1.1", "num:4 data[num]:x")
command(0x5802, "Get PID Access Vectors", "start:4 num:4", "num:4 data[num]:x")
command(
    0x5803,
    "Get FAST/IDT Capabilities",
    "vppb:1 -:3",
    f"vppb:1 segments:2 segment_size:1 idt:2 pid_count:1 {PREFIX_FLAGS} -:2 base:8 limit:8 pids[pid_count]:2",
)
command(0x5804, "Set FAST/IDT Configuration", f"vppb:1 segment_size:1 {PREFIX_FLAGS} -:1 base:8 limit:8", "")
for get, name, item, lead in ((0x5805, "FAST Segment", FAST_ENTRY, ""), (0x5807, "IDT DPID", 2, "-:2")):
    kind, items = (str(item), {}) if isinstance(item, int) else ("entry", {"entry": item})
    answer = Layout(f"count:2 start:2 list[count]:{kind}", **items)
    command(get, f"Get {name}", WINDOW, answer)
    command(get + 1, f"Set {name}", f"{WINDOW} {lead} list[count]:{kind}", answer, items, may_be_empty=True)
command(
    0x5809,
    "Proxy GFD Management",
    "pid:2.12 request:8 size:2 response:8 response_max:2",
    "cmd_seq:1.3 available:2",
)
command(0x580A, "Get Proxy Thread Status", THREAD, "in_progress:1.1 -:1 available:2")
command(0x580B, "Cancel Proxy Thread", THREAD, "available:2")

command(0x5900, "Identify VCS GAE", "vcs:1 start:1 num:1", IDENTITY)
command(0x5901, "Get VCS PID Access", "vcs:1 -:3 start:4 num:4", "num:4 data[num]:x")
command(
    0x5902,
    "Configure VCS PID Access",
    "vcs:1 -:1 (pid=0+12,op=12+3):2 latency_base:8 latency:2 bandwidth_base:8 bandwidth:2",
    "",
)
command(0x5903, "Get VendPrefixL0 State", "vcs:1", PREFIX_FLAGS)
command(0x5904, "Set VendPrefixL0 State", f"vcs:1 -:1 {PREFIX_FLAGS}", "")
