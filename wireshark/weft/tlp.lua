-- TLPs on Ethernet links as fields: PBR with PTH, HBR in flit and non-flit mode; CXL.mem and CXL.cache
-- messages are in cxl_mem.lua and cxl_cache.lua.
--
-- read(out, frame, at, oui) adds `tlp` and its fields to `out` if such a TLP starts at `at`; what is wrong with
-- one comes back as text.
-- Units: bytes; DW (4 bytes) where a name says so.
-- Source: docs/spec/wire-formats.md §3.1 to §3.9, §3.12.

return function(bytes, cxl_mem, cxl_cache)
  local u8, be16, be24, be32 = bytes.u8, bytes.be16, bytes.be24, bytes.be32
  local bits, bit, node = bytes.bits, bytes.bit, bytes.node
  local short, refused = bytes.short, bytes.refused

  local M = {}
  local read_message

  local OUI_EXTENDED, LINK_LEN, VERSION = 0x88B7, 6, 1
  local PBR, HBR_FLIT, HBR_NON_FLIT, CONTROL, PBR_MEM, HBR_MEM = 1, 2, 3, 4, 5, 6
  local PBR_CACHE, HBR_CACHE = 7, 8
  local LINKS = {
    [PBR] = "pbr",
    [HBR_FLIT] = "hbr flit",
    [HBR_NON_FLIT] = "hbr non-flit",
    [CONTROL] = "link control",
    [PBR_MEM] = "pbr cxl.mem",
    [HBR_MEM] = "hbr cxl.mem",
    [PBR_CACHE] = "pbr cxl.cache",
    [HBR_CACHE] = "hbr cxl.cache",
  }
  local DW, PREFIXES_MAX = 4, 8
  local VEND_L0, PASID = 0x8E, 0x91
  local VENDOR_CXL, VDM_TYPE0, VDM_TYPE1 = 0x1E98, 0x7E, 0x7F
  local TO_ROOT, BY_ADDRESS, BY_ID, BROADCAST, LOCAL, GATHER = 0, 1, 2, 3, 4, 5
  local IMPLICIT = { [TO_ROOT] = "root", [BROADCAST] = "all", [LOCAL] = "here", [GATHER] = "root, gathered" }
  local STATUS = { [0] = "SC", [2] = "RRS", [4] = "CA" } -- a reserved value counts as UR

  -- A kind of TLP: its name; `memory`, `io` and `config` requests; `data`: a payload follows; `wide`: 4 DW.
  -- `completion`, else `posted` or not; `uio` of either.
  local function kind(name, facts)
    local made = { name = name }
    for fact in facts:gmatch("%S+") do
      made[fact] = true
    end
    return made
  end

  local BOTH = {
    [0x01] = kind("MRdLk", "memory"),
    [0x21] = kind("MRdLk", "memory wide"),
    [0x40] = kind("MWr", "memory data posted"),
    [0x60] = kind("MWr", "memory data posted wide"),
    [0x5B] = kind("DMWr", "memory data"),
    [0x7B] = kind("DMWr", "memory data wide"),
    [0x02] = kind("IORd", "io"),
    [0x42] = kind("IOWr", "io data"),
    [0x04] = kind("CfgRd0", "config"),
    [0x05] = kind("CfgRd1", "config"),
    [0x44] = kind("CfgWr0", "config data"),
    [0x45] = kind("CfgWr1", "config data"),
    [0x0A] = kind("Cpl", "completion"),
    [0x0B] = kind("CplLk", "completion"),
    [0x4A] = kind("CplD", "completion data"),
    [0x4B] = kind("CplDLk", "completion data"),
    [0x4C] = kind("FetchAdd", "memory atomic data"),
    [0x6C] = kind("FetchAdd", "memory atomic data wide"),
    [0x4D] = kind("Swap", "memory atomic data"),
    [0x6D] = kind("Swap", "memory atomic data wide"),
    [0x4E] = kind("CAS", "memory atomic data"),
    [0x6E] = kind("CAS", "memory atomic data wide"),
  }
  local READ, READ_WIDE = kind("MRd", "memory"), kind("MRd", "memory wide")
  for routing = TO_ROOT, GATHER do
    BOTH[0x30 + routing] = kind(routing == BROADCAST and "Msg (broadcast)" or "Msg", "message posted wide")
    BOTH[0x70 + routing] = kind("MsgD", "message data posted wide")
    BOTH[0x30 + routing].routing, BOTH[0x70 + routing].routing = routing, routing
  end
  local NON_FLIT = { [0x00] = READ, [0x20] = READ_WIDE }
  local FLIT = {
    [0x00] = kind("NOP", "nop posted"),
    [0x03] = READ,
    [0x20] = READ_WIDE,
    [0x0C] = kind("UIOWrCpl", "completion uio"),
    [0x0D] = kind("UIORdCpl", "completion uio"),
    [0x22] = kind("UIOMRd", "memory uio wide"),
    [0x48] = kind("UIORdCplD", "completion uio data"),
    [0x61] = kind("UIOMWr", "memory uio data posted wide"),
  }

  -- CXL VDM code and PBR opcode: name, least and most DWs of payload. Power management and errors have PCIe's header.
  local VDMS = {
    [0x8000] = { "AssertPerst", 0, 0 },
    [0x8001] = { "AssertReset", 0, 0 },
    [0x8003] = { "DeassertReset", 0, 0 },
    [0x8004] = { "LinkUp", 0, 0 },
    [0x9000] = { "LinkPartnerInfo", 16, 16 },
    [0xA000] = { "DpCmd", 0, 0 },
    [0xA101] = { "UcPull", 0, 0 },
    [0xA002] = { "DcReq", 32, 32 },
    [0xA003] = { "DcReqLast", 1, 32 },
    [0xA104] = { "UcRsp", 32, 32 },
    [0xA105] = { "UcRspLast", 1, 32 },
    [0xA106] = { "UcRspFail", 0, 0 },
    [0xA107] = { "Gam", 8, 8 },
    [0xA008] = { "DcReqFail", 0, 0 },
    [0xA110] = { "RtUpdate", 1, 8 },
    [0xA112] = { "RtUpdateAck", 0, 0 },
    [0xA113] = { "RtUpdateNak", 0, 0 },
  }
  local PCIE_VDMS = { [0x68] = { "CxlPm", 4, 4 }, [0x00] = { "CxlError", 0, 0 } }

  -- Whether the first byte of a DW makes it a prefix: "local", "end-end", "reserved"; nil for a header.
  local function prefix_scope(is_flit, first)
    if first < 0x80 or first > 0x9F then
      return nil
    elseif first == VEND_L0 or first == 0x8F or first == (is_flit and 0x8D or 0x80) then
      return "local"
    elseif not is_flit and (first == 0x90 or first == PASID or first == 0x9E or first == 0x9F) then
      return "end-end"
    end
    return "reserved"
  end

  -- Reads the prefixes at `at` of TLP `t`; returns what is wrong.
  local function read_prefixes(t, s, at)
    local local_len, len = 0, 0
    for _ = 0, PREFIXES_MAX do
      local first = u8(s, at + len)
      if not first then
        return short("tlp", len + DW, #s - at)
      end
      local scope = prefix_scope(t.is_flit, first)
      if not scope then
        t.prefix_len = len
        return nil
      elseif #s < at + len + DW then
        return short("tlp prefix", len + DW, #s - at)
      elseif scope == "reserved" then
        return refused("tlp prefix", "type", first)
      elseif scope == "local" and len ~= local_len or first == PASID and t.pasid then
        return refused("tlp prefix", "order of prefixes", first)
      elseif first == VEND_L0 and not t.vend_at then
        t.vend_at = at + len
      elseif first == PASID then
        t.pasid = bits(be32(s, at + len), 0, 20)
      end
      len = len + DW
      local_len = scope == "local" and len or local_len
    end
    return refused("tlp prefix", "order of prefixes", len)
  end

  local function dw_or_zero(s, at)
    return #s >= at + DW and be32(s, at) or 0
  end

  -- Reads OHC-A and steps over all OHC behind the base header, which ends at `at`; returns what is wrong.
  local function read_ohc(t, s, at, start)
    t.ohc_bits = 0
    if not t.is_flit or t.kind.nop then
      t.payload_at = at
      return nil
    end
    t.ohc_bits = bits(t.dw[0], 16, 5)
    if bit(t.ohc_bits, 0) then
      t.ohc_a, t.ohc_at = dw_or_zero(s, at), at
    end
    for index = 0, 2 do
      at = at + (bit(t.ohc_bits, index) and DW or 0)
    end
    local e = bits(t.ohc_bits, 3, 2)
    at = at + (e == 3 and 4 or e) * DW
    t.payload_at = at
    if #s < at then
      return short("tlp", at - start, #s - start)
    end
    return nil
  end

  local TRAILERS = { [0] = 0, [1] = 1, [5] = 3, [6] = 4 }

  -- DWs of the trailer; or what is wrong.
  local function trailer_dws(t)
    if not t.is_flit then
      return bit(t.dw[0], 15) and 1 or 0
    elseif t.kind.nop then
      return 0
    end
    local ts = bits(t.dw[0], 13, 3)
    return TRAILERS[ts], refused("tlp", "ts", ts)
  end

  -- Length in DW; 0 where the field means nothing.
  local function length_dw(t)
    local k = t.kind
    if not (k.data or k.memory or k.io or k.config) then
      return 0
    end
    local length = bits(t.dw[0], 0, 10)
    return length == 0 and 1024 or length
  end

  -- LastBE and FirstBE as one byte, as they count: all ones where the header has none.
  local function byte_enables(t)
    local k, all = t.kind, t.length > 1 and 0xFF or 0x0F
    if k.atomic or not (k.memory or k.io or k.config) then
      return all
    elseif not t.is_flit then
      local has_hints = k.memory and bit(t.dw[0], 16)
      return has_hints and not k.posted and all or bits(t.dw[1], 0, 8)
    end
    return t.ohc_a and bits(t.ohc_a, 0, 8) or all
  end

  -- Upper and lower half of the address of what is routed by one; nil for other TLPs.
  local function address(t)
    local k = t.kind
    if not (k.memory or k.io or k.message and k.routing == BY_ADDRESS) then
      return nil
    elseif k.wide then
      return t.dw[2], t.dw[3] - t.dw[3] % 4
    end
    return 0, t.dw[2] - t.dw[2] % 4
  end

  -- Address type of a memory request.
  local function address_type(t)
    if not t.kind.memory then
      return 0
    elseif not t.is_flit then
      return bits(t.dw[0], 10, 2)
    end
    return (t.kind.wide and t.dw[3] or t.dw[2]) % 4
  end

  local function is_length_ok(t)
    local k, length = t.kind, t.length
    if k.name == "FetchAdd" or k.name == "Swap" then
      return length == 1 or length == 2
    elseif k.name == "CAS" then
      return length == 2 or length == 4 or length == 8
    end
    return not (k.io or k.config) or length == 1
  end

  local FIRST_OK = { [0x8] = true, [0xC] = true, [0xE] = true, [0xF] = true }
  local LAST_OK = { [0x1] = true, [0x3] = true, [0x7] = true, [0xF] = true }

  local function are_byte_enables_ok(t)
    local first, last = t.enables % 16, bits(t.enables, 4, 4)
    if t.length == 0 then
      return true
    elseif t.length == 1 then
      return last == 0
    elseif t.length == 2 and (t.addr_low or 0) % 8 == 0 then
      return first ~= 0 and last ~= 0
    end
    return FIRST_OK[first] and LAST_OK[last]
  end

  local function is_address_ok(t)
    local low = t.addr_low
    local access = t.length * DW / (t.kind.name == "CAS" and 2 or 1)
    return low % 4096 + access <= 4096 and low % (t.kind.atomic and access or DW) == 0
  end

  -- What PCIe calls malformed; nil if nothing is.
  local function broken_rule(t)
    local k = t.kind
    if t.is_flit and (k.io or k.config) and not t.ohc_a then
      return refused("tlp", "ohc", t.ohc_bits)
    elseif not is_length_ok(t) then
      return refused("tlp", "length", t.length)
    elseif address_type(t) == 1 then
      return nil -- a translation request, whose Length and address mean other things
    elseif not are_byte_enables_ok(t) then
      return refused("tlp", "byte enables", t.enables)
    elseif k.memory and not is_address_ok(t) then
      return refused("tlp", "address", t.addr_low % 0x10000)
    end
    return nil
  end

  -- Reads the TLP that starts at `at`, prefixes first; or says what is wrong, lengths counted from `at`.
  local function read_tlp(s, at, is_flit)
    local t = { is_flit = is_flit, start = at, dw = { [0] = 0, 0, 0, 0 } }
    local wrong = read_prefixes(t, s, at)
    if wrong then
      return nil, wrong
    end
    t.base = at + t.prefix_len
    local first = u8(s, t.base)
    t.kind = (is_flit and FLIT or NON_FLIT)[first] or BOTH[first]
    if not t.kind then
      return nil, refused("tlp", "type", first)
    end
    local dws = t.kind.nop and 1 or t.kind.wide and 4 or 3
    local base_end = t.base + dws * DW
    if #s < base_end then
      return nil, short("tlp", base_end - at, #s - at)
    end
    for index = 0, dws - 1 do
      t.dw[index] = be32(s, t.base + index * DW)
    end
    wrong = read_ohc(t, s, base_end, at)
    if wrong then
      return nil, wrong
    end
    t.length = length_dw(t)
    t.payload_len = t.kind.data and t.length * DW or 0
    local trailer, reserved = trailer_dws(t)
    if not trailer then
      return nil, reserved
    end
    t.finish = t.payload_at + t.payload_len + trailer * DW
    if #s < t.finish then
      return nil, short("tlp payload", t.finish - at, #s - at)
    end
    t.addr_high, t.addr_low = address(t)
    t.enables = byte_enables(t)
    wrong = broken_rule(t)
    if wrong then
      return nil, wrong
    end
    return t
  end

  -- Adds `more` bytes to both numbers of a text of `short`: what is in front is counted, too.
  local function counted_from(text, more)
    local layer, need, had = text:match("^(.*): needs (%d+) bytes, has (%d+)$")
    return layer and short(layer, tonumber(need) + more, tonumber(had) + more) or text
  end

  -- Reads what follows the link header of a PBR link: {pth} and the TLP behind it; or what is wrong. Neither if there
  -- are only NOPs and reserved DWs.
  local function read_pbr(s, start)
    local has_prefix, at = false, start
    while at < #s do
      local first = u8(s, at)
      if #s < at + DW then
        if not has_prefix and at > start and s:sub(at + 1):find("^\0*$") then
          return nil -- padding
        end
        return nil, nil, short("pth", at - start + DW, #s - start)
      end
      if first >= 0xC0 then
        local behind = u8(s, at + DW)
        if behind and (behind == 0 or prefix_scope(true, behind)) then
          return nil, nil, refused("pth", "next double word", behind)
        end
        local t, wrong = read_tlp(s, at + DW, true)
        return at, t, wrong and counted_from(wrong, at + DW - start)
      elseif prefix_scope(true, first) == "local" then
        has_prefix = true
      elseif first ~= 0 and (first < 0x40 or first >= 0x80) then
        return nil, nil, refused("pth", "next double word", first)
      end
      at = at + DW
    end
    if has_prefix or #s == start then
      return nil, nil, short("pth", #s - start + DW, #s - start)
    end
    return nil
  end

  local function bdf(id)
    return ("%02x:%02x.%d"):format(bits(id, 8, 8), bits(id, 3, 5), bits(id, 0, 3))
  end

  -- The text of an address without leading zeros.
  local function hpa(high, low)
    return high > 0 and ("0x%x%08x"):format(high, low) or ("0x%x"):format(low)
  end

  -- Name of the message that a CXL VDM is; nil for other messages and those that are not as their code demands.
  local function vdm_name(t, code)
    if code ~= VDM_TYPE0 and code ~= VDM_TYPE1 or bits(t.dw[2], 0, 16) ~= VENDOR_CXL then
      return nil
    end
    local dw3 = t.dw[3]
    local pcie, pbr = PCIE_VDMS[bits(dw3, 0, 8)], VDMS[bits(dw3, 0, 8) * 256 + bits(dw3, 8, 8)]
    local is_pbr = t.is_flit and t.kind.routing == LOCAL and code == VDM_TYPE0
    local found = pcie or is_pbr and pbr
    local dws = t.payload_len / DW
    return found and dws >= found[2] and dws <= found[3] and found[1] or nil
  end

  local function add_pth(tlp, s, at)
    local first, low = u8(s, at), be24(s, at + 1)
    local pth = node(tlp, "tlp.pth", nil, at, DW)
    local spid, dpid = ("%03x"):format(bits(low, 12, 12)), ("%03x"):format(bits(low, 0, 12))
    node(pth, "tlp.pth.spid", spid, at + 1, 2)
    node(pth, "tlp.pth.dpid", dpid, at + 2, 2)
    node(pth, "tlp.pth.pif", bit(first, 0), at, 1)
    node(pth, "tlp.pth.dsar", bit(first, 1), at, 1)
    node(pth, "tlp.pth.hie", bit(first, 2), at, 1)
    return { spid = spid, dpid = dpid, hie = bit(first, 2), dsar = bit(first, 1), pif = bit(first, 0) }
  end

  -- Adds tag and ids; keeps what links a request to its completions in `facts`.
  local function add_ids(tlp, t, facts)
    local k, base, dw = t.kind, t.base, t.dw
    local asks = base + (k.completion and 8 or 4)
    facts.requester = bdf(bits(k.completion and dw[2] or dw[1], 16, 16))
    node(tlp, "tlp.requester", facts.requester, asks, 2)
    if k.completion then
      facts.completer = bdf(bits(dw[1], 16, 16))
      node(tlp, "tlp.completer", facts.completer, base + 4, 2)
    end
    if k.message then
      return
    end
    local has_hints = not t.is_flit and k.name == "MWr" and bit(dw[0], 16)
    local tag_at = asks + 2
    if k.nop or has_hints then
      facts.tag = 0
    elseif t.is_flit then
      facts.tag, tag_at = bits(dw[1], 0, 14), base + 6
    else
      local low = bits(k.completion and dw[2] or dw[1], 8, 8)
      facts.tag = (bit(dw[0], 23) and 512 or 0) + (bit(dw[0], 19) and 256 or 0) + low
    end
    node(tlp, "tlp.tag", facts.tag, tag_at, 2)
  end

  -- Adds where it goes.
  local function add_destination(tlp, t, facts)
    local k, at = t.kind, t.base + 8
    if t.addr_low then
      facts.to = hpa(t.addr_high, t.addr_low)
    elseif k.nop then
      facts.to, at = IMPLICIT[LOCAL], t.base
    elseif k.routing and k.routing ~= BY_ID then
      facts.to, at = IMPLICIT[k.routing], t.base
    elseif not k.completion then
      facts.to = bdf(bits(t.dw[2], 16, 16))
    end
    if facts.to then
      node(tlp, "tlp.to", facts.to, at, t.addr_low and k.wide and 8 or t.addr_low and 4 or at == t.base and 1 or 2)
    end
    if k.config then
      facts.register = bits(t.dw[2], 2, 10) * 4
      node(tlp, "tlp.register", facts.register, t.base + 10, 2)
    end
  end

  -- Adds what only completions have; how many bytes are still to come says whether it is the last.
  local function add_completion(tlp, t, facts)
    local status = t.is_flit and bits(t.ohc_a or 0, 0, 3) or bits(t.dw[1], 13, 3)
    facts.status = STATUS[status] or "UR"
    node(tlp, "tlp.status", facts.status, t.ohc_at or t.base + 4, 2)
    if t.kind.uio then
      node(tlp, "tlp.dev_load", bits(t.dw[2], 14, 2), t.base + 10, 1)
      node(tlp, "tlp.offset_dw", bits(t.dw[2], 0, 10), t.base + 10, 2)
      facts.returned_dw = t.length
      return
    end
    local count = bits(t.is_flit and t.dw[2] or t.dw[1], 0, 12)
    count = count == 0 and 4096 or count
    node(tlp, "tlp.byte_count", count, t.base + (t.is_flit and 10 or 6), 2)
    facts.byte_count = count
    local low = t.is_flit and bits(t.dw[2], 12, 4) * 4 + bits(t.ohc_a or 0, 3, 2) or bits(t.dw[2], 0, 2)
    facts.is_last = not t.kind.data or facts.status ~= "SC" or t.payload_len - low % 4 >= count
  end

  -- Adds the fields of a TLP, and what a summary and links need.
  local function add_fields(out, tlp, t)
    local k, facts = t.kind, { kind = t.kind.name, completion = t.kind.completion, uio = t.kind.uio, length_dw = t.length }
    facts.wants_completion = not k.completion and (not k.posted or k.name == "UIOMWr")
    facts.is_read = k.name == "UIOMRd"
    out.tlp = facts
    node(tlp, "tlp.kind", k.name, t.base, 1)
    facts.tc = k.nop and 0 or bits(t.dw[0], t.is_flit and 21 or 20, 3)
    node(tlp, "tlp.tc", facts.tc, t.base + 1, 1)
    if t.vend_at then
      facts.vend_prefix = t.vend_prefix
      node(tlp, "tlp.vend_prefix", t.vend_prefix, t.vend_at + 1, 2)
    end
    add_ids(tlp, t, facts)
    add_destination(tlp, t, facts)
    if t.length > 0 then
      node(tlp, "tlp.length_dw", t.length, t.base + 2, 2)
    end
    if k.memory or k.io or k.config then
      local at = t.ohc_at and t.ohc_at + 3 or t.base + 7
      node(tlp, "tlp.byte_enables", t.enables % 16, at, 1)
      node(tlp, "tlp.byte_enables", bits(t.enables, 4, 4), at, 1)
    end
    if k.completion then
      add_completion(tlp, t, facts)
    end
    if k.message then
      local code = bits(t.dw[1], 0, 8)
      facts.message = vdm_name(t, code) or ("0x%02x"):format(code)
      node(tlp, "tlp.message", facts.message, t.base + 7, 1)
    end
    local has_ln = k.name == "MRd" or k.name == "MWr" or k.completion
    if not t.is_flit and has_ln and bit(t.dw[0], 17) then
      facts.ln = true
      node(tlp, "tlp.ln", true, t.base + 1, 1)
    end
    if bit(t.is_flit and t.dw[1] or t.dw[0], t.is_flit and 15 or 14) then
      facts.poisoned = true
      node(tlp, "tlp.poisoned", true, t.base + (t.is_flit and 6 or 2), 1)
    end
    if t.pasid then
      node(tlp, "tlp.pasid", t.pasid, t.start, t.prefix_len)
    end
  end

  -- Adds the message of `protocol` at `at`, behind a PTH if `is_pbr`; returns what is wrong with it.
  function read_message(out, tlp, s, at, is_pbr, protocol)
    if is_pbr then
      if #s < at + DW then
        return short("pth", DW, #s - at)
      elseif u8(s, at) < 0xC0 then
        return refused("pth", "next double word", u8(s, at))
      end
      out.tlp.pth = add_pth(tlp, s, at)
      at = at + DW
    end
    local found, wrong = protocol.read(s, at, is_pbr)
    if wrong then
      return wrong
    end
    for _, field in ipairs(found.fields) do
      node(tlp, "tlp." .. field[1], field[2], at + field[3], field[4])
      out.tlp[field[1]] = field[2]
    end
    out.payload_at, out.payload_len = at + protocol.HEAD_LEN, found.data_len
    out.padding_len = #s - at - found.len
  end

  -- Whether a frame whose EtherType is before `at` has one of weft's link headers there.
  function M.protocol(s, at, oui)
    if be16(s, at - 2) ~= OUI_EXTENDED or #s < at + LINK_LEN or s:sub(at + 1, at + 3) ~= oui then
      return nil
    end
    return bits(u8(s, at + 5), 4, 4) == VERSION and LINKS[be16(s, at + 3)] and be16(s, at + 3) or nil
  end

  -- Adds the TLP behind the EtherType before `at`. Returns whether there is one, and what is wrong with it.
  function M.read(out, s, at, oui)
    local protocol = M.protocol(s, at, oui)
    if not protocol then
      return false
    end
    local tlp, start = node(out, "tlp", nil, at, #s - at), at + LINK_LEN
    out.tlp = { link = LINKS[protocol] }
    node(tlp, "tlp.link", LINKS[protocol], at + 3, 2)
    if protocol == CONTROL then
      out.payload_at, out.payload_len = start, #s - start
      return true
    end
    if protocol == PBR_MEM or protocol == HBR_MEM then
      return true, read_message(out, tlp, s, start, protocol == PBR_MEM, cxl_mem)
    elseif protocol == PBR_CACHE or protocol == HBR_CACHE then
      return true, read_message(out, tlp, s, start, protocol == PBR_CACHE, cxl_cache)
    end
    local t, wrong, pth_at
    if protocol == PBR then
      pth_at, t, wrong = read_pbr(s, start)
    else
      t, wrong = read_tlp(s, start, protocol == HBR_FLIT)
    end
    if wrong then
      return true, wrong
    elseif not t then
      node(tlp, "tlp.kind", "NOP", start, DW)
      out.tlp.kind = "NOP"
      out.payload_at, out.payload_len, out.padding_len = start, 0, #s - start
      return true
    end
    if t.vend_at then
      t.vend_prefix = be16(s, t.vend_at + 1)
    end
    local pth = pth_at and add_pth(tlp, s, pth_at)
    add_fields(out, tlp, t)
    out.tlp.link, out.tlp.pth = LINKS[protocol], pth
    out.payload_at, out.payload_len, out.padding_len = t.payload_at, t.payload_len, #s - t.finish
    return true
  end

  return M
end
