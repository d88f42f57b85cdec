#!/usr/bin/env python3
"""Makes the conformance captures: each format over all priorities and sizes, and what must come out.

OUTDIR/<set>.pcap (all frames), <set>.in.<port>.pcap (per input port), <set>.expect.json.

Units: frames without FCS, bytes; time stamps in nanoseconds from 0; priorities by docs/spec/pipeline.md §2.
Source: docs/spec/wire-formats.md §1.1 to §1.5; docs/spec/pipeline.md §2, §3.
"""

import argparse
import json
import os
import random
import sys
from collections import Counter

import weftbuild as w
from weftpcap import write_pcap
from weftpri import pri_of_dscp, pri_of_pcp, pri_of_tc

PORTS = ("p0", "p1", "p2", "p3")
LEARN_GAP_NS = 1_000_000  # between learning frames, so that each is learnt before the next
GROUP = 5
LITE_BAITS = (
    0x8808,
    0x8100,
    0x0800,
    0x88B5,
    0x0101,
    0x0000,
)  # what a Lite payload may look like at bytes 12-13

# name, format, tagged, gen2_order, code in the identifier byte
SETS = (
    ("standard", "standard", False, "slap", 0xA1),
    ("standard_vlan", "standard", True, "slap", 0xA2),
    ("gen1", "gen1", False, "slap", 0xA3),
    ("gen1_vlan", "gen1", True, "slap", 0xA4),
    ("gen2", "gen2", False, "slap", 0xA5),
    ("gen2_vlan", "gen2", True, "slap", 0xA6),
    ("gen2_doc", "gen2", False, "as_documented", 0xA7),
    ("lite", "lite", False, "slap", 0xA8),
    ("lite_doc", "lite", False, "as_documented", 0xA9),
)


class Maker:
    """Makes the frames of one set; each carries `code` and a 24-bit sequence number in its payload."""

    def __init__(self, name, fmt, tagged, order, code, seed, vid, multicast):
        self.name, self.fmt, self.order, self.code, self.tagged = name, fmt, order, code, tagged
        self.vid, self.multicast = vid, multicast
        self.rng = random.Random(f"{seed}/{name}")
        self.header = w.HEADER_LEN[fmt] + (4 if tagged else 0)
        # A Lite payload starts with a bait where other formats have their EtherType.
        self.seq_offset = self.header + (4 if fmt == "lite" else 0)
        self.has_icrc = fmt != "lite"

    def sizes(self):
        """(class, bytes without FCS, ICRC) in the order in which frames cycle through them."""
        largest = self.header + w.MAX_PAYLOAD + (4 if self.has_icrc else 0)
        least = self.seq_offset + 4
        rows = [
            ("least", least, False),
            ("short", (least + w.MIN_FRAME) // 2, False),
            ("60", w.MIN_FRAME, False),
            ("typical", self.header + 64, False),
            ("typical_icrc", self.header + 256 + 4, self.has_icrc),
            ("largest", largest, self.has_icrc),
            ("largest+1", largest + 1, self.has_icrc),
        ]
        return [row for row in rows if row[1] >= least]

    def station(self, number):
        """Address of station `number` in the format's own space, as the switch prints it."""
        if self.fmt == "standard":
            return f"02:00:00:00:00:{number + 1:02x}"
        if self.fmt == "gen1":
            return f"02:5a:00:00:01:{number + 1:02x}"
        return 0x0101 + number

    def classes(self):
        """Every (pcp, dscp, tc) that this set goes through; None for what the frame does not carry."""
        if self.fmt == "standard":
            return (
                [(pcp, None, None) for pcp in range(8)]
                if self.tagged
                else [(None, dscp, None) for dscp in range(64)]
            )
        tcs = [w.traffic_class(vc, flow) for vc in range(8) for flow in range(8)]
        return [(n % 8 if self.tagged else None, None, tc) for n, tc in enumerate(tcs)]

    def build(self, seq, src, dst, pcp, dscp, tc, size, icrc):
        """One frame from station `src` to station `dst` (None: to everybody) of `size` bytes."""
        payload_len = size - self.header - (4 if icrc else 0)
        ident = bytes([self.code]) + seq.to_bytes(3, "big")
        if self.fmt == "lite":
            ident = LITE_BAITS[seq % len(LITE_BAITS)].to_bytes(2, "big") + b"\x00\x00" + ident
        payload = ident + self.rng.randbytes(payload_len - len(ident))
        vlan = w.build_vlan(pcp, self.vid, seq // 7 % 2) if self.tagged else b""
        flow = w.FLOW_REQ if tc is None else w.split_traffic_class(tc)[1]
        rh = w.build_rh(
            opcode=0,
            fack=seq & 1,
            ts=seq & 0xFFFF if seq & 2 else None,
            p_key=0x5A,
            len_syn=w.rh_length(payload_len),
            psn=seq & 0xFFF,
            dest_qp=self.rng.randrange(1024),
        )
        ethertype = w.MAC_TYPE2 if flow == w.FLOW_TYPE2 or dst is None else w.MAC_TYPE1
        if self.fmt == "standard":
            dscp = self.rng.randrange(64) if dscp is None else dscp
            to = "ff:ff:ff:ff:ff:ff" if dst is None else self.station(dst)
            return w.build_standard(
                to,
                self.station(src),
                payload,
                rh,
                vlan=vlan,
                dscp=dscp,
                ecn=self.rng.randrange(4),
                src_ip=f"10.0.0.{src + 1}",
                dst_ip=f"10.0.0.{255 if dst is None else dst + 1}",
                sport=0xC000 + self.rng.randrange(1024),
                ident=seq & 0xFFFF,
                icrc=icrc,
            )
        if self.fmt == "gen1":
            to = "ff:ff:ff:ff:ff:ff" if dst is None else self.station(dst)
            return w.build_gen1(
                to, self.station(src), tc, payload, rh, vlan=vlan, ethertype=ethertype, icrc=icrc
            )
        to = w.multicast_id(GROUP) if dst is None else self.station(dst)
        key = w.KEY_MULTICAST if dst is None else w.KEY_UNICAST
        if self.fmt == "gen2":
            return w.build_gen2(
                to,
                self.station(src),
                tc,
                payload,
                rh,
                hi=self.rng.getrandbits(24),
                lo=self.rng.getrandbits(24),
                key_words=key,
                order=self.order,
                vlan=vlan,
                ethertype=ethertype,
                icrc=icrc,
            )
        return w.build_lite(
            to,
            self.station(src),
            tc,
            payload,
            xpu_id=self.rng.randrange(256),
            key_words=key,
            order=self.order,
        )

    def frames(self, count, gap_ns, burst):
        """Yields (ts_ns, bytes, expectation): learning frames first, `count` frames in all."""
        sizes, classes = self.sizes(), self.classes()
        start = (len(PORTS) + 1) * LEARN_GAP_NS
        for seq in range(count):
            learning = seq < len(PORTS)
            if learning:
                src, dst, ts = seq, None, (seq + 1) * LEARN_GAP_NS
                pcp, dscp, tc = (
                    (0 if self.tagged else None),
                    (0 if self.fmt == "standard" and not self.tagged else None),
                    (None if self.fmt == "standard" else w.traffic_class(0, w.FLOW_TYPE2)),
                )
                kind, size, icrc = "60", w.MIN_FRAME, False
            else:
                n = seq - len(PORTS)
                pcp, dscp, tc = classes[n % len(classes)]
                # Each class meets each size: the size moves on once a round of classes is through.
                kind, size, icrc = sizes[(n + n // len(classes)) % len(sizes)]
                src = self.rng.randrange(len(PORTS))
                dst = (src + 1 + self.rng.randrange(len(PORTS) - 1)) % len(PORTS)
                ts = start + n // burst * burst * gap_ns
                if self.multicast and tc is not None and w.split_traffic_class(tc)[1] == w.FLOW_TYPE2:
                    dst = None
            out = [
                port for number, port in enumerate(PORTS) if (number != src if dst is None else number == dst)
            ]
            data = self.build(seq, src, dst, pcp, dscp, tc, size, icrc)
            assert len(data) == size, f"{self.name} frame {seq}: built {len(data)} bytes, wanted {size}"
            pri4, pri8 = priorities_of(pcp, dscp, tc)
            yield (
                ts,
                data,
                {
                    "seq": seq,
                    "in": PORTS[src],
                    "out": out,
                    "pri4": pri4,
                    "pri8": pri8,
                    "len": size,
                    "size": kind,
                    "learning": learning,
                },
            )


def priorities_of(pcp, dscp, tc):
    """Priority of 4 and of 8 by the first of PCP, DSCP, Traffic Class that there is."""
    if pcp is not None:
        return [pri_of_pcp(pcp, count) for count in (4, 8)]
    if dscp is not None:
        return [pri_of_dscp(dscp, count) for count in (4, 8)]
    return [pri_of_tc(tc, count) for count in (4, 8)]


def counts_of(rows):
    """Counts per priority, for 4 and 8 priorities: frames in, copies out, and copies out per port."""
    result = {}
    for priorities in ("4", "8"):
        sent = Counter(str(row["pri" + priorities]) for row in rows)
        out = Counter((port, str(row["pri" + priorities])) for row in rows for port in row["out"])
        per_port = {port: {pri: n for (at, pri), n in sorted(out.items()) if at == port} for port in PORTS}
        total = Counter()
        for (_, pri), n in out.items():
            total[pri] += n
        result[priorities] = {
            "in": dict(sorted(sent.items())),
            "out": dict(sorted(total.items())),
            "out_per_port": per_port,
        }
    return result


def make_set(outdir, row, count, seed, vid, gap_ns, burst, multicast):
    """Writes the files of one set and returns its expectation."""
    name, fmt, tagged, order, code = row
    maker = Maker(name, fmt, tagged, order, code, seed, vid, multicast)
    made = list(maker.frames(count, gap_ns, burst))
    rows = [expect for _, _, expect in made]
    write_pcap(os.path.join(outdir, f"{name}.pcap"), [(ts, data) for ts, data, _ in made])
    for port in PORTS:
        mine = [(ts, data) for ts, data, expect in made if expect["in"] == port]
        write_pcap(os.path.join(outdir, f"{name}.in.{port}.pcap"), mine)
    expectation = {
        "set": name,
        "format": fmt,
        "port_mode": "ethernet" if fmt == "standard" else fmt,
        "gen2_order": order,
        "vid": vid if tagged else None,
        "seed": seed,
        "count": count,
        "capture": f"{name}.pcap",
        "ports": PORTS,
        "inputs": {port: f"{name}.in.{port}.pcap" for port in PORTS},
        "stations": {str(maker.station(n)): port for n, port in enumerate(PORTS)},
        "seq_offset": maker.seq_offset,
        "seq_code": code,
        "sizes": dict(sorted(Counter(str(expect["len"]) for expect in rows).items())),
        "counts": counts_of(rows),
        "frames": rows,
    }
    with open(os.path.join(outdir, f"{name}.expect.json"), "w", encoding="ascii") as file:
        json.dump(expectation, file, separators=(",", ":"))
        file.write("\n")
    return expectation


def main(argv=None):
    """Command line; see --help."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outdir")
    parser.add_argument("--count", type=int, default=10000, help="frames of each set (default 10000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vid", type=int, default=100, help="VID of the tagged sets (default 100)")
    parser.add_argument(
        "--sets", default=",".join(row[0] for row in SETS), help="comma-separated (default all)"
    )
    parser.add_argument("--gap-ns", type=int, default=15000, help="mean time between frames (default 15000)")
    parser.add_argument("--burst", type=int, default=8, help="frames with one time stamp (default 8)")
    parser.add_argument(
        "--multicast", action="store_true", help="TYPE2 flows go to a group (flooded) instead of a station"
    )
    args = parser.parse_args(argv)
    wanted = args.sets.split(",")
    unknown = set(wanted) - {row[0] for row in SETS}
    if unknown or not len(PORTS) < args.count < 1 << 24 or args.burst < 1 or not 0 < args.vid < 4095:
        parser.error(f"unknown sets {sorted(unknown)}, or count, burst or vid out of range")
    os.makedirs(args.outdir, exist_ok=True)
    for row in SETS:
        if row[0] in wanted:
            made = make_set(
                args.outdir, row, args.count, args.seed, args.vid, args.gap_ns, args.burst, args.multicast
            )
            counts = made["counts"]["4"]["in"]
            print(
                f"{row[0]}: {args.count} frames, sizes {' '.join(made['sizes'])}, per priority of 4 {counts}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
