"""Capture files: reads pcap and pcapng, writes nanosecond pcap and pcapng.

read_capture(path) -> list of Frame, iter_capture(path); write_pcap(path, [(ts_ns, bytes)]); PcapngWriter.

Units: time stamps in nanoseconds; frames without FCS (an FCS that if_fcslen announces is cut off).
Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng (SHB, IDB, SPB, EPB; if_tsresol, if_fcslen).
"""

import glob
import mmap
import os
import struct
from typing import NamedTuple

LINKTYPE_ETHERNET = 1
PCAP_NS, PCAP_US = 0xA1B23C4D, 0xA1B2C3D4
SHB, IDB, SPB, EPB = 0x0A0D0D0A, 1, 3, 6
BYTE_ORDER = 0x1A2B3C4D
OPT_COMMENT, OPT_TSRESOL, OPT_FCSLEN = 1, 9, 13


class CaptureError(Exception):
    """A capture file cannot be read; the text names file and place."""


class Frame(NamedTuple):
    """One captured frame."""

    ts_ns: int
    data: bytes
    truncated: bool = False
    interface: int = 0


def read_capture(path):
    """Reads every frame of a pcap or pcapng file, in file order."""
    return list(iter_capture(path))


def iter_capture(path):
    """Yields every frame of a pcap or pcapng file, in file order; keeps none of them."""
    try:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise CaptureError(f"{path}: neither pcap nor pcapng")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as blob:
                ng = len(blob) >= 4 and struct.unpack_from("<I", blob)[0] == SHB
                yield from (_read_pcapng if ng else _read_pcap)(path, blob)
    except OSError as err:
        raise CaptureError(f"{path}: {err.strerror}") from err
    except struct.error as err:
        raise CaptureError(f"{path}: cut off in the middle of a record") from err


def _read_pcap(path, blob):
    for order in "<>":
        magic = struct.unpack_from(order + "I", blob)[0] if len(blob) >= 24 else 0
        if magic in (PCAP_NS, PCAP_US):
            break
    else:
        raise CaptureError(f"{path}: neither pcap nor pcapng")
    scale = 1 if magic == PCAP_NS else 1000
    link = struct.unpack_from(order + "I", blob, 20)[0]
    if link & 0x03FFFFFF != LINKTYPE_ETHERNET:
        raise CaptureError(f"{path}: link type {link & 0x03FFFFFF}, not Ethernet")
    fcs_len = (link >> 28 & 15) * 2 if link >> 26 & 1 else 0
    record, count, at = struct.Struct(order + "IIII"), 0, 24
    while at < len(blob):
        seconds, part, size, whole = record.unpack_from(blob, at)
        at += 16
        if at + size > len(blob):
            raise CaptureError(f"{path}: frame {count} cut off at byte {at}")
        end = at + min(size, max(0, whole - fcs_len))
        yield Frame(seconds * 10**9 + part * scale, blob[at:end], size < whole - fcs_len)
        at += size
        count += 1


def _options(order, body):
    at, found = 0, {}
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        if code == 0:
            break
        found[code] = body[at + 4 : at + 4 + size]
        at += 4 + (size + 3) // 4 * 4
    return found


def _to_ns(raw, resol):
    if resol & 0x80:
        return raw * 10**9 >> (resol & 0x7F)
    return raw * 10 ** (9 - resol) if resol <= 9 else raw // 10 ** (resol - 9)


def _read_pcapng(path, blob):
    count, interfaces, at, order = 0, [], 0, "<"
    while at < len(blob):
        if struct.unpack_from("<I", blob, at)[0] == SHB:
            order = "<" if struct.unpack_from("<I", blob, at + 8)[0] == BYTE_ORDER else ">"
            interfaces = []
        kind, size = struct.unpack_from(order + "II", blob, at)
        if size < 12 or size % 4 or at + size > len(blob):
            raise CaptureError(f"{path}: block at byte {at} has length {size}")
        body = blob[at + 8 : at + size - 4]
        if kind == IDB:
            link, _, snap = struct.unpack_from(order + "HHI", body)
            if link != LINKTYPE_ETHERNET:
                raise CaptureError(f"{path}: link type {link}, not Ethernet")
            options = _options(order, body[8:])
            interfaces.append((options.get(OPT_TSRESOL, b"\x06")[0], options.get(OPT_FCSLEN, b"\0")[0], snap))
        elif kind in (EPB, SPB):
            if kind == EPB:
                number, high, low, kept, whole = struct.unpack_from(order + "IIIII", body)
                start, stamp = 20, high << 32 | low
            else:
                number, start, stamp, whole = 0, 4, 0, struct.unpack_from(order + "I", body)[0]
                kept = min(whole, interfaces[0][2] or whole) if interfaces else whole
            if number >= len(interfaces) or start + kept > len(body):
                raise CaptureError(f"{path}: frame {count} at byte {at} is malformed")
            resol, fcs_len, _ = interfaces[number]
            data = body[start : start + min(kept, max(0, whole - fcs_len))]
            yield Frame(_to_ns(stamp, resol), data, kept < whole - fcs_len, number)
            count += 1
        at += size


def write_pcap(path, frames):
    """Writes nanosecond pcap, link type Ethernet, from pairs (ts_ns, bytes)."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", PCAP_NS, 2, 4, 0, 0, 262144, LINKTYPE_ETHERNET))
        for ts_ns, data in frames:
            file.write(struct.pack("<IIII", ts_ns // 10**9, ts_ns % 10**9, len(data), len(data)) + data)


class PcapngWriter:
    """Writes one section with an Ethernet interface, and more that are added; time stamps in nanoseconds."""

    def __init__(self, path, interface="", fcs_len=0):
        self.file, self.interfaces = open(path, "wb"), 0
        self._block(SHB, struct.pack("<IHHq", BYTE_ORDER, 1, 0, -1))
        self.add_interface(interface, fcs_len)

    def add_interface(self, name, fcs_len=0):
        """Adds an interface; returns its number."""
        options = self._option(2, name.encode()) if name else b""
        options += self._option(OPT_TSRESOL, b"\x09")
        options += self._option(OPT_FCSLEN, bytes([fcs_len])) if fcs_len else b""
        self._block(IDB, struct.pack("<HHI", LINKTYPE_ETHERNET, 0, 0) + options + bytes(4))
        self.interfaces += 1
        return self.interfaces - 1

    @staticmethod
    def _option(code, value):
        return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)

    def _block(self, kind, body):
        size = struct.pack("<I", 12 + len(body))
        self.file.write(struct.pack("<I", kind) + size + body + size)

    def write(self, ts_ns, data, whole=None, comment="", interface=0):
        """Appends a frame; `whole` is its length on the wire if it was cut."""
        head = struct.pack(
            "<IIIII", interface, ts_ns >> 32, ts_ns & 0xFFFFFFFF, len(data), whole or len(data)
        )
        options = self._option(OPT_COMMENT, comment.encode()) + bytes(4) if comment else b""
        self._block(EPB, head + data + bytes(-len(data) % 4) + options)

    def close(self):
        """Ends the file."""
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def find_capture(stem):
    """The capture `stem`.pcap or `stem`.pcapng, or None."""
    found = [
        path
        for path in glob.glob(glob.escape(stem) + ".*")
        if os.path.splitext(path)[1] in (".pcap", ".pcapng")
    ]
    if len(found) > 1:
        raise CaptureError(f"{stem}: both pcap and pcapng are there")
    return found[0] if found else None
