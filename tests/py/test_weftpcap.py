"""Tests of the capture files against scapy's own readers and writers, both byte orders, FCS, cut files.

Write with one side, read with the other.

Units: nanoseconds, bytes.
Source: pcap and pcapng drafts; scapy.utils.
"""

import struct

import pytest
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapNgReader, RawPcapReader, wrpcap, wrpcapng

from weftpcap import CaptureError, Frame, PcapngWriter, find_capture, read_capture, write_pcap

FRAMES = [(0, bytes(60)), (1, bytes(range(61))), (1_500_000_000_123_456_789, b"\xff" * 1402)]


def test_pcap_round_trip_and_scapy_reads_it(tmp_path):
    path = tmp_path / "a.pcap"
    write_pcap(path, FRAMES)
    assert read_capture(path) == [Frame(ts, data) for ts, data in FRAMES]
    with RawPcapReader(str(path)) as reader:
        assert reader.nano and reader.linktype == 1
        assert [(meta.sec * 10**9 + meta.usec, data) for data, meta in reader] == FRAMES


def test_pcapng_round_trip_and_scapy_reads_it(tmp_path):
    path = tmp_path / "a.pcapng"
    with PcapngWriter(path, "p0") as writer:
        for ts, data in FRAMES:
            writer.write(ts, data)
    assert read_capture(path) == [Frame(ts, data) for ts, data in FRAMES]
    with RawPcapNgReader(str(path)) as reader:
        got = [((meta.tshigh << 32 | meta.tslow), meta.tsresol, data) for data, meta in reader]
    assert got == [(ts, 10**9, data) for ts, data in FRAMES]


@pytest.mark.parametrize(("write", "name"), [(wrpcap, "s.pcap"), (wrpcapng, "s.pcapng")])
def test_reads_what_scapy_wrote(tmp_path, write, name):
    packets = []
    for n, (_, data) in enumerate(FRAMES):
        packet = Ether(data)
        packet.time = 1000 + n / 2
        packets.append(packet)
    write(str(tmp_path / name), packets)
    got = read_capture(tmp_path / name)
    assert [frame.data for frame in got] == [data for _, data in FRAMES]
    assert [frame.ts_ns for frame in got] == [1000 * 10**9 + n * 500_000_000 for n in range(3)]


def test_big_endian_micro_pcap_with_fcs_and_cut_frame(tmp_path):
    path = tmp_path / "be.pcap"
    link = 1 | 1 << 26 | 2 << 28  # FCS of 2 words of 16 bits
    blob = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 100, link)
    blob += struct.pack(">IIII", 1, 2, 64, 64) + bytes(60) + b"FCS!"
    blob += struct.pack(">IIII", 1, 3, 50, 64) + bytes(50)
    path.write_bytes(blob)
    assert read_capture(path) == [Frame(1_000_002_000, bytes(60)), Frame(1_000_003_000, bytes(50), True)]


def test_pcapng_fcslen_and_big_endian(tmp_path):
    path = tmp_path / "f.pcapng"
    with PcapngWriter(path, fcs_len=4) as writer:
        writer.write(5, bytes(60) + b"FCS!")
    assert read_capture(path) == [Frame(5, bytes(60))]

    def block(kind, body):
        return struct.pack(">II", kind, 12 + len(body)) + body + struct.pack(">I", 12 + len(body))

    blob = block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(
        1, struct.pack(">HHI", 1, 0, 0)
    )
    blob += block(6, struct.pack(">IIIII", 0, 0, 7, 60, 60) + bytes(60))
    path.write_bytes(blob)
    assert read_capture(path) == [Frame(7000, bytes(60))]


def test_cut_and_strange_files_are_refused(tmp_path):
    path = tmp_path / "c.pcap"
    write_pcap(path, FRAMES)
    whole = path.read_bytes()
    ends = [24, 24 + 16 + 60, 24 + 16 + 60 + 16 + 61]
    for length in range(300):
        path.write_bytes(whole[:length])
        if length in ends:
            assert len(read_capture(path)) == ends.index(length)
        else:
            with pytest.raises(CaptureError):
                read_capture(path)
    with pytest.raises(CaptureError, match="No such file"):
        read_capture(tmp_path / "none.pcap")


def test_find_capture(tmp_path):
    assert find_capture(str(tmp_path / "p1")) is None
    write_pcap(tmp_path / "p1.pcap", [])
    write_pcap(tmp_path / "p10.pcap", [])
    assert find_capture(str(tmp_path / "p1")) == str(tmp_path / "p1.pcap")
    write_pcap(tmp_path / "p1.pcapng", [])
    with pytest.raises(CaptureError):
        find_capture(str(tmp_path / "p1"))
