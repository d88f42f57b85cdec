#!/usr/bin/env python3
"""Makes the inputs of the golden captures: small conformance sets, and frames that are malformed.

OUTDIR/<name>/<port>.pcap for each of p0..p3; what must come out is in pcaps/want.

Units: frames without FCS, bytes; time stamps in nanoseconds from 0.
Source: docs/spec/wire-formats.md §1.1 to §1.5, §1.8, §2.3; docs/spec/pipeline.md §1.
"""

import argparse
import os
import shutil
import sys
import tempfile

import make_conformance as conformance
import weftbuild as w
from weftpcap import write_pcap

COUNT = 24  # frames of a set: each port's first, then all sizes and many classes
SETS = ("standard", "standard_vlan", "gen1", "gen2", "gen2_doc", "lite")
GAP_NS = 1_000_000


def malformed():
    """(bytes, port) of frames at the edge of what each layer needs, the last good one beside it."""
    rh = w.build_rh(opcode=0, fack=0, ts=None, p_key=0, len_syn=8, psn=1, dest_qp=1)
    to, of = "02:00:00:00:00:02", "02:00:00:00:00:01"
    standard = w.build_standard(to, of, b"", rh, dscp=0, ecn=1, src_ip="10.0.0.1", dst_ip="10.0.0.2")
    gen1 = w.build_gen1("02:5a:00:00:01:02", "02:5a:00:00:01:01", 0x20, b"", rh)
    tag = w.build_vlan(3, 100, 0)
    front = bytes.fromhex("0180c2000001 020000000001 8808")
    control = [
        front + bytes.fromhex("0101 0008") + b"\x00" * 42,  # PFC of class 3
        front + bytes.fromhex("0101 0108") + b"\x00" * 42,  # reserved bits of the vector set
        front + bytes.fromhex("0101 0008") + b"\x00" * 14,  # PFC cut short
        front + bytes.fromhex("0001 1234") + b"\x00" * 42,  # PAUSE
        front + bytes.fromhex("7777") + b"\x00" * 44,  # unknown opcode
        front + b"\x01",  # no opcode
    ]
    six = w.build_rocev2(to, of, w.build_bth(4, 1, 2), src_ip=bytes(16), dst_ip=bytes(16), ipv6=True)
    cut = [standard[:n] for n in (14, 33, 34, 41, 42, 49, 50)] + [gen1[:n] for n in (13, 14, 21, 22)]
    cut += [six[:n] for n in (53, 54, 61, 62)]
    tagged = [standard[:12] + tag + standard[12:n] for n in (14, 49, 50)]
    reserved = [bytes.fromhex(f"0180c20000{n:02x}") + standard[6:] for n in (0, 0x0E)]
    return control + cut + tagged + reserved


def main(argv=None):
    """Command line; see --help."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outdir")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        flags = ["--count", str(COUNT), "--multicast", "--sets", ",".join(SETS)]
        if conformance.main([scratch, *flags]):
            return 1
        for name in SETS:
            os.makedirs(os.path.join(args.outdir, name), exist_ok=True)
            for port in conformance.PORTS:
                made = os.path.join(scratch, f"{name}.in.{port}.pcap")
                shutil.copyfile(made, os.path.join(args.outdir, name, f"{port}.pcap"))
    folder = os.path.join(args.outdir, "malformed")
    os.makedirs(folder, exist_ok=True)
    frames = [(number * GAP_NS, data) for number, data in enumerate(malformed(), 1)]
    write_pcap(os.path.join(folder, "p0.pcap"), frames)
    return 0


if __name__ == "__main__":
    sys.exit(main())
