"""Lays out CCI payloads from one line of text each, written as the page writes its rows.

Layout("op:1.3 -:1 num:2 list[num]:item", item=Layout(...)); encode(**values) -> bytes; decode(bytes) -> dict.

Units: bytes, integers little-endian; `name:N` N bytes, `name:N.B` only its low B bits used, `-:N` reserved,
`name:xN` N bytes as they are, `(a=0+12,b=12+3):2` bits (low + width), `list[n]:item` and `data[n]:x` counted by n,
`[]` to the end.

Source: docs/spec/wire-formats.md §0 (little-endian), §4.
"""

import re
from dataclasses import dataclass


class CciError(ValueError):
    """Bytes that are not as the page says, or a value that no layout can carry."""


@dataclass(frozen=True)
class Number:
    """A little-endian integer cut into bits; what no part covers is reserved."""

    size: int
    parts: tuple  # (name, low, width)

    def names(self):
        return [name for name, _, _ in self.parts]

    def put(self, values):
        whole = 0
        for name, low, width in self.parts:
            value = int(values.pop(name, 0))
            if not 0 <= value < 1 << width:
                raise CciError(f"{name} {value:#x} does not fit {width} bits")
            whole |= value << low
        return whole.to_bytes(self.size, "little")

    def get(self, data, at, values):
        whole = int.from_bytes(cut(data, at, self.size, self.names() or "reserved"), "little")
        for name, low, width in self.parts:
            values[name] = whole >> low & (1 << width) - 1
            whole &= ~((1 << width) - 1 << low)
        if whole:
            raise CciError(f"reserved bits {whole:#x} at byte {at:#x} are set ({self.names()})")
        return at + self.size


@dataclass(frozen=True)
class Bytes:
    """Bytes as they are: a UUID, a tag, a mask."""

    name: str
    size: int

    def names(self):
        return [self.name]

    def put(self, values):
        value = bytes(values.pop(self.name, bytes(self.size)))
        if len(value) != self.size:
            raise CciError(f"{self.name} has {len(value)} bytes, not {self.size}")
        return value

    def get(self, data, at, values):
        values[self.name] = cut(data, at, self.size, self.name)
        return at + self.size


@dataclass(frozen=True)
class Many:
    """A list (of layouts, or of integers of `item` bytes) or, with item None, bytes; counted or to the end."""

    name: str
    count: str
    item: object

    def names(self):
        return [self.name]

    def put(self, values):
        rows = values.pop(self.name, b"" if self.item is None else [])
        if self.item is None:
            return bytes(rows)
        if isinstance(self.item, Layout):
            return b"".join(self.item.encode(**row) for row in rows)
        return b"".join(int(row).to_bytes(self.item, "little") for row in rows)

    def get(self, data, at, values):
        size = 1 if self.item is None else self.item.size if isinstance(self.item, Layout) else self.item
        if self.count:
            count = values[self.count]
        elif (len(data) - at) % size:
            raise CciError(f"{self.name}: {len(data) - at} bytes are no whole number of {size}")
        else:
            count = (len(data) - at) // size
        body = cut(data, at, count * size, self.name)
        if self.item is None:
            values[self.name] = body
        else:
            rows = [body[i : i + size] for i in range(0, len(body), size)]
            read = self.item.decode if isinstance(self.item, Layout) else lambda row: int.from_bytes(row, "little")
            values[self.name] = [read(row) for row in rows]
        return at + count * size


def cut(data, at, size, what):
    """`size` bytes at `at`, or an error that says what is missing."""
    if at + size > len(data):
        raise CciError(f"{what}: needs bytes {at:#x} to {at + size:#x}, there are {len(data):#x}")
    return bytes(data[at : at + size])


def parse_field(token, items):
    """One field of the text."""
    name, _, kind = token.rpartition(":")
    if many := re.fullmatch(r"(\w+)\[(\w*)\]", name):
        item = None if kind == "x" else int(kind) if kind.isdigit() else items[kind]
        return Many(many[1], many[2], item)
    if name.startswith("("):
        rows = re.findall(r"(\w+)=(\d+)\+(\d+)", name)
        return Number(int(kind), tuple((part, int(low), int(width)) for part, low, width in rows))
    if kind.startswith("x"):
        return Bytes(name, int(kind[1:]))
    size, _, bits = kind.partition(".")
    parts = () if name == "-" else ((name, 0, int(bits or int(size) * 8)),)
    return Number(int(size), parts)


class Layout:
    """A payload: fields one after the other."""

    def __init__(self, text, **items):
        self.fields = [parse_field(token, items) for token in text.split()]
        many = any(isinstance(field, Many) for field in self.fields)
        self.size = None if many else sum(field.size for field in self.fields)

    def names(self):
        """Names of all values, in order."""
        return [name for field in self.fields for name in field.names()]

    def encode(self, **values):
        """Bytes of the values; what is not named is 0, a count that is not named counts its list."""
        for field in self.fields:
            if isinstance(field, Many) and field.count and field.name in values:
                values.setdefault(field.count, len(values[field.name]))
        out = b"".join(field.put(values) for field in self.fields)
        if values:
            raise CciError(f"no such fields: {', '.join(values)}")
        return out

    def decode(self, data):
        """Values of the bytes; every byte is used and every reserved bit is 0."""
        values, at = {}, 0
        for field in self.fields:
            at = field.get(data, at, values)
        if at != len(data):
            raise CciError(f"{len(data) - at} bytes too many behind byte {at:#x}")
        return values


NOTHING = Layout("")


@dataclass(frozen=True)
class Command:
    """One opcode. `may_be_empty`: the page has one row for Get and Set, so a Set may answer nothing or like Get."""

    opcode: int
    name: str
    request: Layout
    response: Layout
    background: bool = False
    may_be_empty: bool = False

    def decode(self, payload):
        """Values of a response's payload; None for the empty answer of a Set that shares its row with a Get."""
        if self.may_be_empty and not payload:
            return None
        return self.response.decode(payload)


COMMANDS = {}


def command(opcode, name, request="", response="", items=None, **flags):
    """Adds a command to COMMANDS; texts become layouts with the shared `items`."""
    lay = [text if isinstance(text, Layout) else Layout(text, **(items or {})) for text in (request, response)]
    COMMANDS[opcode] = Command(opcode, name, *lay, **flags)
