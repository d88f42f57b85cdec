-- CXL.mem messages as fields.
--
-- read(s, at, is_pbr) -> {fields = {{name, value, place, length}, ...}, data_len, len}, or nil and what is wrong.
-- Units: bytes.
-- Source: docs/spec/wire-formats.md §3.9.

return function(bytes)
  local u8, be16, bits, bit = bytes.u8, bytes.be16, bytes.bits, bytes.bit
  local short, refused = bytes.short, bytes.refused

  local M = { HEAD_LEN = 16 }
  local LINE, ENABLES_LEN = 64, 8
  local REQ, RWD, NDR, DRS, BISNP, BIRSP = 1, 2, 3, 4, 5, 6
  local OPS = {
    [0x10] = "MemInv",
    [0x11] = "MemRd",
    [0x12] = "MemRdData",
    [0x13] = "MemRdFwd",
    [0x14] = "MemWrFwd",
    [0x18] = "MemSpecRd",
    [0x19] = "MemInvNT",
    [0x1A] = "MemClnEvct",
    [0x21] = "MemWr",
    [0x22] = "MemWrPtl",
    [0x24] = "BIConflict",
    [0x30] = "Cmp",
    [0x31] = "Cmp-S",
    [0x32] = "Cmp-E",
    [0x33] = "Cmp-M",
    [0x34] = "BI-ConflictAck",
    [0x40] = "MemData",
    [0x41] = "MemData-NXM",
    [0x50] = "BISnpCur",
    [0x51] = "BISnpData",
    [0x52] = "BISnpInv",
    [0x54] = "BISnpCurBlk",
    [0x55] = "BISnpDataBlk",
    [0x56] = "BISnpInvBlk",
    [0x60] = "BIRspI",
    [0x61] = "BIRspS",
    [0x62] = "BIRspE",
    [0x64] = "BIRspIBlk",
    [0x65] = "BIRspSBlk",
    [0x66] = "BIRspEBlk",
  }
  local PARTIAL = 0x22

  -- The message at `at` with its fields.
  function M.read(s, at, is_pbr)
    local had = #s - at
    if had < M.HEAD_LEN then
      return nil, short("cxl.mem", M.HEAD_LEN, had)
    end
    local first, more = u8(s, at), u8(s, at + 2)
    local op, class = OPS[first], bits(first, 4, 4)
    if not op then
      return nil, refused("cxl.mem", "opcode", first)
    elseif bit(more, 3) ~= (first == PARTIAL) then
      return nil, refused("cxl.mem", "byte enables", more)
    end
    local has_data = class == RWD or class == DRS
    local len = M.HEAD_LEN + (has_data and LINE or 0)
    if had < len then
      return nil, short("cxl.mem", len, had)
    end
    local found = { fields = {}, data_len = has_data and LINE or 0 }
    local function add(name, value, place, length)
      table.insert(found.fields, { name, value, place, length })
    end
    add("kind", op, 0, 1)
    local is_snoop = class == BISNP or class == BIRSP
    if class == REQ or class == RWD then
      add("tc", bits(more, 6, 2), 2, 1)
    end
    add("tag", is_snoop and bits(be16(s, at + 4), 0, 12) or be16(s, at + 4), 4, 2)
    if class == NDR or class == DRS then
      add("dev_load", bits(more, 4, 2), 2, 1)
      local lease, lease_us = bytes.lease(s, at)
      if lease then
        add("lease", lease, 8, 8)
        add("lease_us", lease_us, 6, 2)
      end
    else
      add("to", bytes.line_address(s, at + 8), 8, 8)
    end
    if not is_pbr and not is_snoop then
      add("ld_id", bits(u8(s, at + 3), 4, 4), 3, 1)
    end
    if (has_data or class == NDR) and bit(u8(s, at + 1), 0) then
      add("poisoned", true, 1, 1)
    end
    if first == PARTIAL then
      local mask_at = len
      len = len + ENABLES_LEN
      if had < len then
        return nil, short("cxl.mem", len, had)
      end
      add("byte_mask", bytes.le_hex(s, at + mask_at, ENABLES_LEN), mask_at, ENABLES_LEN)
    end
    found.len = len
    return found
  end

  return M
end
