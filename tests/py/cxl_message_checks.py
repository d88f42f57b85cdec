"""`weft decode` holds CXL.mem and CXL.cache messages as the independent decoder does: what the tests of both have in common.

Values of small fields, bits that say nothing, PTHs, padding, frames that are cut short, and mutated ones.

Units: bytes.
"""

import random
from collections import Counter

import weftmutate
from cxl_message import FRAME_MIN, HEAD_LEN, encode_pth
from weftpcap import read_capture, write_pcap
from weftshark import decoded

SEED = 20_261_127
MUTATED = 2_000
LINK_LEN = 20
PTH = encode_pth(0x0A1, 0x123, dsar=True)
FORMS = [None, PTH]


class Checks:
    """Holds `weft decode` against a codec; `plain` makes a message of an opcode, with data where it has some, and a number."""

    def __init__(self, capture, plain):
        self.codec, self.capture, self.plain = capture.codec, capture, plain
        self.each = [(kind, pth) for kind in self.codec.codes for pth in FORMS]

    def with_header(self, message, **fields):
        """A message with other values of header fields, whatever its class has."""
        head = int.from_bytes(message[:HEAD_LEN], "big")
        for name, value in fields.items():
            shift, width = self.codec.fields[name]
            head = head & ~(((1 << width) - 1) << shift) | value << shift
        return head.to_bytes(HEAD_LEN, "big") + message[HEAD_LEN:]

    @staticmethod
    def flipped(message, mask):
        """A message with the bits of `mask` changed in its header, read as one number."""
        head = int.from_bytes(message[:HEAD_LEN], "big") ^ mask
        return head.to_bytes(HEAD_LEN, "big") + message[HEAD_LEN:]

    def hold(self, tmp_path, frames):
        """Holds what `weft decode` says of frames against the independent decoder; returns what that one says."""
        capture = str(tmp_path / "frames.pcap")
        write_pcap(capture, [(0, data) for data in frames])
        lines, wanted = decoded(capture), [self.codec.shown(data) for data in frames]
        assert len(lines) == len(frames)
        for number, (data, line, want) in enumerate(zip(frames, lines, wanted, strict=True)):
            note = f"frame {number}: {data.hex()}"
            told = line.get("tlp", {})
            if want is None:
                assert self.codec.name not in told.get("link", ""), note
                continue
            tlp, error, data_len, end = want
            assert bool(line.get("error")) == bool(error), (note, error, line)
            assert told == tlp, note
            if error is None:
                assert (line["payload_len"], line.get("padding_len", 0)) == (data_len, len(data) - end), note
        return wanted

    def well_formed(self, tmp_path, frames):
        """Both sides take all frames."""
        assert all(error is None for _, error, *_ in self.hold(tmp_path, frames))

    def malformed(self, tmp_path, frames):
        """Both sides refuse all frames."""
        assert all(error for _, error, *_ in self.hold(tmp_path, frames))

    def kept_capture(self, path):
        """The capture in the project is what is made."""
        assert [(frame.ts_ns, frame.data) for frame in read_capture(path)] == self.capture.frames()

    def capture_is_complete(self, opcodes):
        """It has so many opcodes, each in both forms, tagged and untagged."""
        codec, capture = self.codec, self.capture
        frames = [capture.frame(i) for i in range(capture.count)]
        told = enumerate(map(codec.shown, frames))
        found = {(tlp["link"], tlp["kind"], capture.is_tagged(i)) for i, (tlp, *_) in told}
        assert len(codec.codes) == opcodes and len(found) == opcodes * 2 * 2
        assert all(len(data) >= FRAME_MIN for data in frames)
        tags = [capture.is_tagged(i) for i in range(capture.count)]
        assert [data[12:14] == b"\x81\x00" for data in frames] == tags

    def decoder_finds_what_was_encoded(self):
        """The independent decoder reads what the independent encoder has made."""
        for i in range(self.capture.count):
            kind, fields = self.capture.message(i)
            made = self.codec.encode(kind, **fields)
            assert self.codec.decode(made) == ({"kind": kind} | fields, len(made)), i

    def capture_alike(self, tmp_path):
        """Frame by frame."""
        self.well_formed(tmp_path, [self.capture.frame(i) for i in range(self.capture.count)])

    def small_fields(self, tmp_path):
        """Every value of small fields; those of other classes and reserved codes, too."""
        codec, fixed = self.codec, ("class", "opcode", "bep")
        small = [name for name, (_, width) in codec.fields.items() if width <= 4 and name not in fixed]
        frames = [
            codec.frame(self.with_header(self.plain(kind), **{name: value}), pth)
            for kind, pth in self.each
            for name in small
            for value in range(1 << codec.fields[name][1])
        ]
        self.well_formed(tmp_path, frames)

    def each_bit(self, tmp_path):
        """Each bit of byte enables, address and tags."""
        codec = self.codec
        masked = [codec.encode(codec.masked, bytes(64), byte_mask=1 << n) for n in range(64)]
        frames = [codec.frame(made, pth) for made in masked for pth in FORMS]
        told = [tlp["byte_mask"] for tlp, *_ in self.hold(tmp_path, frames)]
        assert told[::2] == told[1::2] == [f"0x{1 << n:016x}" for n in range(64)]
        heads = [
            codec.frame(self.flipped(self.plain(kind), 1 << bit), pth) for kind, pth in self.each for bit in range(96)
        ]
        self.well_formed(tmp_path, heads)

    def ignored_bits(self, tmp_path):
        """Bits that say nothing, one at a time and all at once, in the message, the PTH and the flags of the link."""
        codec, frames = self.codec, []
        for kind, pth in self.each:
            made, spare = self.plain(kind), int.from_bytes(codec.ignored_bits(kind), "big")
            masks = [0, spare, *(1 << bit for bit in range(128) if spare >> bit & 1)]
            frames += [codec.frame(self.flipped(made, mask), pth) for mask in masks]
            frames.append(codec.frame(made, pth, flags=15))
            frames += [codec.frame(made, encode_pth(0x0A1, 0x123, dsar=True, rsv=rsv)) for rsv in range(8) if pth]
        said = {}
        for tlp, error, *_ in self.hold(tmp_path, frames):
            assert error is None
            assert said.setdefault((tlp["link"], tlp["kind"]), tlp) == tlp
        assert len(said) == len(self.each)

    def pth(self, tmp_path, kinds):
        """The PTH in front of messages of these opcodes."""
        bits = [(pif, dsar, hie) for pif in (0, 1) for dsar in (0, 1) for hie in (0, 1)]
        pids = [(0, 0), (0xFFF, 0xFFF), (0x123, 0), (0, 0x123), *((1 << n, 0xFFF ^ 1 << n) for n in range(12))]
        frames = [
            self.codec.frame(self.plain(kind), encode_pth(spid, dpid, *flags))
            for kind in kinds
            for flags in bits
            for spid, dpid in pids
        ]
        self.well_formed(tmp_path, frames)

    def padding(self, tmp_path):
        """What follows a message."""
        made = [self.codec.frame(self.plain(kind), pth, is_padded=False) for kind, pth in self.each]
        self.well_formed(tmp_path, [data + b"\xff" * size for data in made for size in (0, 1, 7, 100)])

    def cut_short(self, tmp_path):
        """Behind the header of a link they are malformed, within it of no link."""
        for tag in (None, (3, 0, 100)):
            made = [self.codec.frame(self.plain(kind), pth, tag, is_padded=False) for kind, pth in self.each]
            # From the EtherType on: a shorter frame is malformed as Ethernet.
            frames = [data[:size] for data in made for size in range(14, len(data))]
            front = LINK_LEN + (4 if tag else 0)
            for data, want in zip(frames, self.hold(tmp_path, frames), strict=True):
                assert (want is None) == (len(data) < front), data.hex()
                assert want is None or want[1], data.hex()

    def unknown_opcodes(self, tmp_path, known, messages):
        """Classes and opcodes that are not among the `known` ones; `messages` makes some of a first byte."""
        codes = {self.codec.first_byte(*code) for code in self.codec.names}
        unknown = [first for first in range(256) if first not in codes]
        assert len(unknown) == 256 - known
        frames = [self.codec.frame(made, pth) for first in unknown for made in messages(first) for pth in FORMS]
        self.malformed(tmp_path, frames)

    def wrong_bep(self, tmp_path, wrong):
        """Messages that have BEP wrong, however long they are: `wrong` has (message, PTH)."""
        sizes = (16, 80, 88, 200)
        frames = [self.codec.frame(made.ljust(size, b"\0"), pth) for made, pth in wrong for size in sizes]
        self.malformed(tmp_path, frames)

    def pbr_without_pth(self, tmp_path):
        """PBR form without a PTH."""
        messages = [self.plain(kind) for kind in self.codec.codes]
        frames = [self.codec.frame(made, b"") for made in messages]
        # Of any other kind than a PTH is the first DW, and none follows it either.
        firsts = [bytes([first, 0x0A, 0x11, 0x23]) for first in (0x00, 0x01, 0x40, 0x7F, 0x80, 0x8E, 0xBF)]
        frames += [self.codec.frame(made, first) for made in messages for first in firsts]
        self.malformed(tmp_path, frames)

    def other_links(self, tmp_path, kind):
        """Links that are not of these messages."""
        frame = self.codec.frame(self.plain(kind))
        own = (self.codec.pbr, self.codec.hbr)
        changed = [
            frame[:14] + bytes.fromhex("025747") + frame[17:],
            *(frame[:19] + bytes([version << 4]) + frame[20:] for version in (0, 2, 15)),
            *(frame[:17] + bytes([high, low]) + frame[19:] for high in (0, 1, 255) for low in (0, 1, 2, 3, 4, 9)),
            *(frame[:17] + bytes([high, low]) + frame[19:] for high in (1, *own, 255) for low in own),
            frame[:12] + bytes.fromhex("8100 0064 8100 0064") + frame[12:],
            frame[:12] + bytes.fromhex("88B8") + frame[14:],
        ]
        assert self.hold(tmp_path, changed) == [None] * len(changed)

    def mutated(self, rng):
        """A message's frame with one to four changes behind its addresses, most of them in message and PTH."""
        data = bytearray(self.capture.frame(rng.randrange(self.capture.count)))
        link = 12 + (4 if data[12:14] == b"\x81\x00" else 0)
        front = link + 8
        for _ in range(rng.choice([1, 1, 2, 4])):
            if len(data) <= front:
                break
            at = rng.randrange(front, min(len(data), front + 24))
            what = rng.randrange(24)
            if what < 6:
                data[at] ^= 1 << rng.randrange(8)
            elif what < 10:
                data[at] = rng.randrange(256)
            elif what < 13:
                del data[rng.randrange(front, len(data) + 1) :]
            elif what < 15:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            elif what < 17:
                del data[at : at + rng.randrange(1, 9)]
            elif what < 21:  # another opcode
                at = front + (4 if data[link + 6] == self.codec.pbr else 0)
                data[at : at + 1] = bytes([self.codec.first_byte(*rng.choice(list(self.codec.names)))])
            elif what < 23:
                data[link + 6] = rng.choice([self.codec.pbr, self.codec.hbr])
            else:
                data[rng.randrange(link, front)] ^= 1 << rng.randrange(8)
        return bytes(data)

    def mutations(self, tmp_path, opcodes):
        """2,000 mutated frames, most of them still of these messages, and some of each of so many opcodes well-formed."""
        rng = random.Random(SEED)
        frames = [self.mutated(rng) for _ in range(MUTATED * 9 // 10)]
        seeds = [self.capture.frame(i) for i in range(self.capture.count)]
        frames += [weftmutate.mutated(rng, rng.choice(seeds)) for _ in range(MUTATED - len(frames))]
        assert len(frames) == MUTATED
        wanted = [want for want in self.hold(tmp_path, frames) if want is not None]
        kinds = Counter(tlp["kind"] for tlp, error, *_ in wanted if error is None)
        errors = sum(error is not None for _, error, *_ in wanted)
        assert len(wanted) > MUTATED * 3 // 4 and len(kinds) == opcodes
        assert len(wanted) / 5 < errors < len(wanted) * 4 / 5
