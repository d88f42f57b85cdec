"""Captures that DPDK's net_pcap plays in a loop.

Load(size, flows, stations).write(path); Load.sources(), Load.targets() -> MACs as text.

Units: bytes without FCS.
Source: libpcap's file format (pcap-savefile(5)); RFC 791, RFC 768.
"""

import dataclasses
import struct


def mac(side, number):
    """Station `number` of a side (1 sends, 2 receives) as six bytes, as weft-kit numbers them too."""
    return bytes([2, 0, 0, side, number >> 8, number & 255])


def text(data):
    """A MAC as it is written."""
    return ":".join(f"{byte:02x}" for byte in data)


def checksum(header):
    """Of an IPv4 header whose own field is 0."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclasses.dataclass(frozen=True)
class Load:
    """Frames of one size: `flows` of them, no two alike, between two halves of `stations`."""

    size: int
    flows: int
    stations: int

    def sources(self):
        """Stations that send."""
        return [text(mac(1, number)) for number in range(self.stations // 2)]

    def targets(self):
        """Stations that are sent to."""
        return [text(mac(2, number)) for number in range(self.stations // 2)]

    def frame(self, number):
        """Frame `number`: each station sends in turn, and in each turn to another one."""
        half = self.stations // 2
        source, target = number % half, (number * 7 + number // half) % half
        length = self.size - 14
        addresses = bytes([10, 0, number >> 8 & 255, number & 255, 10, 1, 0, 2])
        head = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, 17, 0) + addresses
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        udp = struct.pack("!HHHH", 1024 + number % self.flows, 2000, length - 20, 0)
        data = mac(2, target) + mac(1, source) + b"\x08\x00" + head + udp
        return data + bytes(self.size - len(data))

    def write(self, path):
        """Writes the capture."""
        with open(path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
            for number in range(self.flows):
                data = self.frame(number)
                file.write(struct.pack("<IIII", 0, 0, len(data), len(data)) + data)
        return path
