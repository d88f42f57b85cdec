"""A naive model of a coherent G-FAM device, from docs/spec/cxl-fabric.md "Back-invalidate" alone.

Model().take(is_out, frame) for each frame of the device's link, in order; `Wrong` says what the page does not
allow, finish() what is left open.

Units: bytes; lines of 64 bytes.
Source: docs/spec/cxl-fabric.md "CXL.mem", "Back-invalidate"; docs/spec/wire-formats.md §3.7, §3.9.

What comes in takes effect between its arrival and its answer: the order of what goes out is the device's own. All hosts
know the memory by the same addresses.
"""

from collections import Counter

from cxl_mem import CODEC
from cxl_message import DATA_LEN, decode_pth

STATE, ANY, SHARED, INVALID = 0b00, 0b10, 0b11, 0b00
SNP_DATA, SNP_INV = 1, 3
NOTHING, SHARES, OWNS = range(3)
GRANTED = {"Cmp": NOTHING, "Cmp-S": SHARES, "Cmp-E": OWNS}
KEPT = {"BIRspI": NOTHING, "BIRspS": SHARES, "BIRspE": OWNS}
LEAVES = {"BISnpCur": OWNS, "BISnpData": SHARES, "BISnpInv": NOTHING}
OF_META = {INVALID: NOTHING, SHARED: SHARES, ANY: OWNS}
WRITES = ("MemWr", "MemWrPtl")


class Wrong(Exception):
    """A frame that the page does not allow."""


def wants(message):
    """What a request needs of its line: `only` copy, a `copy`, the `value`, that `nobody` has one, or `leave`."""
    kind, has_state = message["kind"], message["meta_field"] == STATE
    snoop, value = message["snp_type"], message["meta_value"]
    if kind == "MemClnEvct" or kind in WRITES and has_state and snoop not in (1, 2, 3):
        return "leave"
    if kind in WRITES:
        return "nobody"
    if not has_state:
        return "value"
    if kind == "MemRdData" or kind == "MemRd" and snoop == SNP_DATA:
        return "copy"
    if snoop == SNP_INV and value in (ANY, INVALID):
        return "only" if value == ANY else "nobody"
    return "value"


def in_the_way(want, hold):
    """The snoop of a host that holds a line so, or None."""
    if hold == NOTHING or want == "leave":
        return None
    if want in ("only", "nobody"):
        return "BISnpInv"
    if hold == SHARES:
        return None
    return "BISnpData" if want == "copy" else "BISnpCur"


class Model:
    """Memory and holders of one device."""

    def __init__(self):
        self.memory, self.holds = {}, {}
        self.asked = {}  # (host, tag) -> request, with `left`: what is still to be answered
        self.snooped = {}  # (host, BITag) -> (line, snoop)
        self.counts = Counter()

    def take(self, is_out, data):
        """One frame, out of the device or into it. Frames of other protocols are not looked at."""
        link = CODEC.link_of(data)
        if link is None:
            return
        if link[0] != CODEC.pbr:
            raise Wrong("a message without PTH on a link with PTHs")
        pth = decode_pth(data[link[1] :])
        message, _ = CODEC.decode(data[link[1] + 4 :])
        self.counts[message["kind"]] += 1
        if is_out:
            self.out(pth["dpid"], message)
        else:
            self.come(pth["spid"], message)

    def hold(self, line, host):
        """How a host holds a line."""
        return self.holds.get((line, host), NOTHING)

    def keep(self, line, host, hold):
        """Sets that."""
        if hold == NOTHING:
            self.holds.pop((line, host), None)
        else:
            self.holds[line, host] = hold

    def others(self, line, host):
        """(host, hold) of all others of a line."""
        return [(who, hold) for (at, who), hold in self.holds.items() if at == line and who != host]

    def come(self, host, message):
        """What a host says."""
        kind = message["kind"]
        if kind in KEPT:
            line, snoop = self.snooped.pop((host, message["bi_tag"]), (None, None))
            if line is None:
                raise Wrong(f"{host}: {kind} {message['bi_tag']} answers nothing")
            if KEPT[kind] > LEAVES[snoop]:
                raise Wrong(f"{host}: {kind} to {snoop}")
            self.keep(line, host, min(KEPT[kind], self.hold(line, host)))
            return
        key = host, message["tag"]
        if key in self.asked:
            raise Wrong(f"{host}: tag {message['tag']} is under way")
        if kind == "BIConflict":
            left = {"BI-ConflictAck"}
        elif kind in ("MemRd", "MemRdData"):
            left = {"Cmp", "MemData"} if message["meta_field"] == STATE else {"MemData"}
        else:
            left = {"Cmp"}
        self.asked[key] = {"message": message, "left": left, "since": self.memory.get(message["line"])}

    def out(self, host, message):
        """What the device says."""
        kind = message["kind"]
        if kind in LEAVES:
            return self.snoop(host, message)
        asked = self.asked.get((host, message["tag"]))
        need = "Cmp" if kind in GRANTED else kind
        if asked is None or need not in asked["left"]:
            raise Wrong(f"{kind} {message['tag']} to {host} answers nothing")
        asked["left"].remove(need)
        if not asked["left"]:
            del self.asked[host, message["tag"]]
        if kind in GRANTED:
            self.done(host, asked["message"], GRANTED[kind])
        elif kind == "MemData":
            self.line(host, asked, message)

    def done(self, host, request, grant):
        """A request was carried out, and something was granted."""
        line, want = request["line"], wants(request)
        if want == "leave":
            if request["kind"] in WRITES:
                if self.hold(line, host) != OWNS:
                    self.counts["stale"] += 1
                    return
                self.write(line, request)
            kept = OF_META.get(request["meta_value"], NOTHING) if request["kind"] in WRITES else NOTHING
            self.keep(line, host, min(kept, self.hold(line, host)))
            return
        self.free_for(line, host, want)
        if want == "nobody":
            self.keep(line, host, NOTHING)
            if request["kind"] in WRITES:
                self.write(line, request)
        expected = {"only": (OWNS,), "copy": (SHARES, OWNS)}.get(want, (NOTHING,))
        if grant not in expected:
            raise Wrong(f"{host}: granted {grant} to {request}")
        if grant == OWNS and self.others(line, host):
            raise Wrong(f"{host} owns {line:#x} beside {self.others(line, host)}")
        if want in ("only", "copy"):
            self.keep(line, host, grant)

    def free_for(self, line, host, want):
        """Nobody's copy may be in the way."""
        for who, hold in self.others(line, host):
            # Whoever was asked for the value may have kept the line.
            if in_the_way(want, hold) and want != "value":
                raise Wrong(f"{want} of {line:#x} for {host}, which {who} holds ({hold})")
        for (who, _), (at, snoop) in self.snooped.items():
            if at == line:
                raise Wrong(f"{want} of {line:#x} for {host} before {who} has answered {snoop}")

    def write(self, line, request):
        """Memory gets a line, or a part of one."""
        data, mask = request["data"], request.get("byte_mask", (1 << 64) - 1)
        old = self.memory.get(line, bytes(DATA_LEN))
        self.memory[line] = bytes(data[n] if mask >> n & 1 else old[n] for n in range(DATA_LEN))
        self.counts["written"] += 1

    def line(self, host, asked, message):
        """The data of a line."""
        line = asked["message"]["line"]
        if message["poison"]:
            raise Wrong(f"{host}: {line:#x} is poisoned")
        if message["data"] != self.memory.get(line, bytes(DATA_LEN)):
            raise Wrong(f"{host}: {line:#x} is stale")
        if asked["message"]["meta_field"] == STATE:
            granted = OF_META.get(message["meta_value"], NOTHING)
            if wants(asked["message"]) != "value" and granted != self.hold(line, host):
                # It may have given up a part of it by now, and never has more.
                self.counts["overtaken"] += 1
        self.counts["lines"] += 1

    def snoop(self, host, message):
        """A snoop is of a host that holds the line, and for somebody's sake: a request, or room."""
        kind, line = message["kind"], message["line"]
        if (host, message["bi_tag"]) in self.snooped:
            raise Wrong(f"{host}: BITag {message['bi_tag']} is under way")
        hold = self.hold(line, host)
        if hold == NOTHING:
            raise Wrong(f"{host}: {kind} of {line:#x}, which it does not hold")
        wanting = [one["message"] for (who, _), one in self.asked.items() if who != host and self.is_of(one, line)]
        if kind != "BISnpInv" and not any(in_the_way(wants(one), hold) == kind for one in wanting):
            raise Wrong(f"{host}: {kind} of {line:#x} for nobody's sake")
        self.counts["for room"] += not wanting
        self.snooped[host, message["bi_tag"]] = line, kind

    @staticmethod
    def is_of(asked, line):
        """Whether a request is of a line."""
        return asked["message"].get("line") == line

    def finish(self):
        """Nothing is left open.

        Raises `Wrong`.
        """
        if self.asked or self.snooped:
            raise Wrong(f"left open: {list(self.asked)[:5]}, {list(self.snooped.items())[:5]}")
