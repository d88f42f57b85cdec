-- CXL.cache messages as fields.
--
-- read(s, at) -> {fields = {{name, value, place, length}, ...}, data_len, len}, or nil and what is wrong.
-- Units: bytes.
-- Source: docs/spec/wire-formats.md §3.12.

return function(bytes)
  local u8, be16, bits, bit = bytes.u8, bytes.be16, bytes.bits, bytes.bit
  local short, refused = bytes.short, bytes.refused

  local M = { HEAD_LEN = 16 }
  local LINE, ENABLES_LEN = 64, 8
  local D2H_REQ, D2H_RSP, D2H_DATA, H2D_REQ, H2D_RSP, H2D_DATA = 1, 2, 3, 4, 5, 6
  local OPS = {
    [0x21] = "RdCurr",
    [0x22] = "RdOwn",
    [0x23] = "RdShared",
    [0x24] = "RdAny",
    [0x25] = "RdOwnNoData",
    [0x26] = "ItoMWr",
    [0x27] = "WrCur",
    [0x28] = "CLFlush",
    [0x29] = "CleanEvict",
    [0x2A] = "DirtyEvict",
    [0x2B] = "CleanEvictNoData",
    [0x2C] = "WOWrInv",
    [0x2D] = "WOWrInvF",
    [0x2E] = "WrInv",
    [0x30] = "CacheFlushed",
    [0x41] = "RspSHitSE",
    [0x44] = "RspIHitI",
    [0x45] = "RspIHitSE",
    [0x46] = "RspVHitV",
    [0x47] = "RspSFwdM",
    [0x4F] = "RspIFwdM",
    [0x56] = "RspVFwdV",
    [0x60] = "D2H Data",
    [0x81] = "SnpData",
    [0x82] = "SnpInv",
    [0x83] = "SnpCur",
    [0xA1] = "WritePull",
    [0xA4] = "GO",
    [0xA5] = "GO_WritePull",
    [0xA6] = "ExtCmp",
    [0xA8] = "GO_WritePull_Drop",
    [0xAD] = "Fast_GO_WritePull",
    [0xAF] = "GO_ERR_WritePull",
    [0xC0] = "H2D Data",
  }
  local GO = 0xA4
  -- States that a GO grants.
  local STATES = { [1] = "S", [2] = "E", [3] = "I", [4] = "error", [6] = "M" }

  -- The message at `at` with its fields.
  function M.read(s, at)
    local had = #s - at
    if had < M.HEAD_LEN then
      return nil, short("cxl.cache", M.HEAD_LEN, had)
    end
    local first, flags = u8(s, at), u8(s, at + 1)
    local op, class = OPS[first], bits(first, 5, 3)
    local has_enables = bit(flags, 3)
    if not op then
      return nil, refused("cxl.cache", "opcode", first)
    elseif has_enables and class ~= D2H_DATA then
      return nil, refused("cxl.cache", "byte enables", flags)
    end
    local has_data = class == D2H_DATA or class == H2D_DATA
    local len = M.HEAD_LEN + (has_data and LINE or 0)
    if had < len then
      return nil, short("cxl.cache", len, had)
    end
    local found = { fields = {}, data_len = has_data and LINE or 0 }
    local function add(name, value, place, length)
      table.insert(found.fields, { name, value, place, length })
    end
    add("kind", op, 0, 1)
    add("cache_id", bits(u8(s, at + 2), 4, 4), 2, 1)
    local is_of_request = class == D2H_REQ or class == H2D_RSP or class == H2D_DATA
    add(is_of_request and "cqid" or "uqid", bits(be16(s, at + 2), 0, 12), 2, 2)
    if class == H2D_RSP then
      local data = bits(be16(s, at + 4), 0, 12)
      if first == GO then
        add("state", STATES[bits(data, 0, 4)] or "reserved", 4, 2)
      else
        add("uqid", data, 4, 2)
      end
    end
    if class == D2H_REQ or class == D2H_RSP or class == H2D_REQ then
      add("to", bytes.line_address(s, at + 8), 8, 8)
    end
    if has_data and bit(flags, 6) then
      add("poisoned", true, 1, 1)
    end
    if class == D2H_DATA and bit(flags, 5) then
      add("bogus", true, 1, 1)
    end
    if class == H2D_RSP or class == H2D_DATA then
      local lease, lease_us = bytes.lease(s, at)
      if lease then
        add("lease", lease, 8, 8)
        add("lease_us", lease_us, 6, 2)
      end
    end
    if has_enables then
      local mask_at = len
      len = len + ENABLES_LEN
      if had < len then
        return nil, short("cxl.cache", len, had)
      end
      add("byte_mask", bytes.le_hex(s, at + mask_at, ENABLES_LEN), mask_at, ENABLES_LEN)
    end
    found.len = len
    return found
  end

  return M
end
