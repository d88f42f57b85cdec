-- Numbers out of strings of bytes, and the tree of fields that a decoder makes.
--
-- Readers of big- and little-endian numbers; `node` appends a field {name, value, offset, length, fields}.
-- Units: bytes; offsets are from the first byte of the string, from 0.
-- Source: docs/spec/wire-formats.md, "Wire formats" (byte order). Lua 5.2 has no operators for bits and 5.4 no `bit32`:
-- division and remainder do here.

local M = {}

-- The byte at `at`; nil behind the end.
function M.u8(s, at)
  return s:byte(at + 1)
end

function M.be16(s, at)
  local a, b = s:byte(at + 1, at + 2)
  return a * 256 + b
end

function M.be24(s, at)
  local a, b, c = s:byte(at + 1, at + 3)
  return (a * 256 + b) * 256 + c
end

function M.be32(s, at)
  local a, b, c, d = s:byte(at + 1, at + 4)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

function M.le16(s, at)
  local a, b = s:byte(at + 1, at + 2)
  return b * 256 + a
end

function M.le24(s, at)
  local a, b, c = s:byte(at + 1, at + 3)
  return (c * 256 + b) * 256 + a
end

-- `width` bits of `value` from bit `low` up, as an integer in every version of Lua.
function M.bits(value, low, width)
  return math.floor(value / 2 ^ low) % math.floor(2 ^ width)
end

-- Whether bit `at` of `value` is set.
function M.bit(value, at)
  return math.floor(value / 2 ^ at) % 2 == 1
end

-- The bytes from `at` on, `len` of them, as hexadecimal digits with `between` between two.
function M.hex(s, at, len, between)
  local digits = {}
  for i = 1, len do
    digits[i] = ("%02x"):format(s:byte(at + i))
  end
  return table.concat(digits, between or "")
end

-- Text of the address of a line of 64 bytes: bits 51:6 of the eight bytes at `at`.
function M.line_address(s, at)
  local high, low = M.bits(M.be32(s, at), 0, 20), M.be32(s, at + 4)
  low = low - low % 64
  return high > 0 and ("0x%x%08x"):format(high, low) or ("0x%x"):format(low)
end

-- Number of the lease in a CXL message at `at`, as text, and how long it lasts in microseconds; nil where it has none.
function M.lease(s, at)
  local high, low = M.be32(s, at + 8), M.be32(s, at + 12)
  if high > 0 or low > 0 then
    return ("0x%08x%08x"):format(high, low), 100 * M.be16(s, at + 6)
  end
end

-- The `len` bytes at `at` as text of one little-endian number.
function M.le_hex(s, at, len)
  return "0x" .. M.hex(s:sub(at + 1, at + len):reverse(), 0, len)
end

-- Appends a field to `parent` and returns it; without `value` it is a group of the fields that are appended to it.
function M.node(parent, name, value, at, len)
  local made = { name = name, value = value, at = at, len = len, fields = {} }
  parent.fields[#parent.fields + 1] = made
  return made
end

local COUNT_MAX = 65535

-- The text for a layer that ends too soon; numbers beyond 65535 are shown as 65535.
function M.short(layer, need, had)
  return ("%s: needs %d bytes, has %d"):format(layer, math.min(need, COUNT_MAX), math.min(had, COUNT_MAX))
end

-- The text for a field that has a value which it cannot have.
function M.refused(layer, field, value)
  return ("%s: %s cannot be 0x%04x"):format(layer, field, value)
end

return M
