-- A frame as fields, named and valued as `weft decode --json` prints them.
--
-- decode(bytes, settings, tlp) -> {fields = {...}, plus what a summary needs}; it refuses no frame: what is wrong
-- with one is its field `error`.
-- Units: bytes without FCS.
-- Source: docs/spec/wire-formats.md §1.1 to §1.6, §1.8, §2.1, §2.3.

return function(bytes)
  local u8, be16, be24, be32 = bytes.u8, bytes.be16, bytes.be24, bytes.be32
  local bits, bit, hex, node = bytes.bits, bytes.bit, bytes.hex, bytes.node
  local short, refused = bytes.short, bytes.refused

  local M = {}

  local ETHERNET_LEN, TAGGED_LEN, IPV4_LEN, IPV6_LEN, UDP_LEN, RH_LEN, BTH_LEN = 14, 18, 20, 40, 8, 8, 12
  local TYPE_IPV4, TYPE_IPV6, TYPE_CONTROL, TYPE_MPLS, TYPE_MPLS_UPSTREAM = 0x0800, 0x86DD, 0x8808, 0x8847, 0x8848
  local UDP = 17
  local PAUSE_DA = "\1\128\194\0\0\1"
  local PAUSE, PFC, EXTENSION = 0x0001, 0x0101, 0xFFFE
  local PAUSE_LEN, PFC_LEN, UPDATE_LEN = 18, 34, 60
  local OPCODES = { [PAUSE] = "pause", [PFC] = "pfc", [EXTENSION] = "extension" }
  local RH_OPCODES = { [0] = "send", "ack", "cnp", "reserved" }
  local BTH_OPCODES = {
    [0] = "send first", "send middle", "send last", "send last imm", "send only", "send only imm",
    "write first", "write middle", "write last", "write last imm", "write only", "write only imm",
    "read request", "read response first", "read response middle", "read response last", "read response only",
    "ack", "atomic ack", "cmp swap", "fetch add",
    [0x81] = "cnp",
  }
  -- IPv6 extension headers, behind which the transport header is not looked for, and "no next header".
  local EXTENSIONS = {}
  for _, next_header in ipairs({ 0, 43, 44, 50, 51, 59, 60, 135, 139, 140, 253, 254 }) do
    EXTENSIONS[next_header] = true
  end

  -- What `weft decode` takes without arguments, by the names of `[formats]`; `afh` is a port's, `tpid` is a set.
  M.DEFAULTS = {
    afh = "auto",
    gen2_order = "slap",
    tpid = { [0x8100] = true },
    mac_type1 = 0x88B5,
    mac_type2 = 0x88B6,
    udp_type1_port = 4791,
    udp_type2_port = 0,
  }

  local function is_standard_port(port, settings)
    return port ~= 0 and (port == settings.udp_type1_port or port == settings.udp_type2_port)
  end

  local OTHER = { slap = "as_documented", as_documented = "slap" }

  -- Where Key_words and the Traffic Class stand.
  local function key_words_at(order)
    if order == "slap" then
      return 0, 6
    end
    return 6, 0
  end

  -- The test of mode `auto`: Key_words of GEN2_16b with all defaults, whatever their reserved and M bits.
  local function looks_like_gen2(s, order)
    local value = u8(s, (key_words_at(order)))
    return bits(value, 6, 2) == 2 and bits(value, 1, 3) == 1
  end

  -- The byte order of a GEN2 frame; nil when it is GEN1, false when it is neither.
  local function gen2_order(s, settings)
    local own = settings.gen2_order
    if settings.afh == "gen1" then
      return nil
    elseif settings.afh == "gen2" then
      return bit(u8(s, (key_words_at(own))), 7) and own
    elseif settings.afh ~= "auto" then
      return false
    end
    if looks_like_gen2(s, own) then
      return own
    end
    return looks_like_gen2(s, OTHER[own]) and OTHER[own] or nil
  end

  -- What is known of an IPv4 packet at `at` before it is read: {format, ip, l4, standard_port, rh}; or why it is malformed.
  -- An IP or UDP header that is cut short counts as none.
  local function scan_ipv4(s, at, settings)
    local len = #s
    if len < at + IPV4_LEN then
      return { format = "other" }
    end
    local first, proto = u8(s, at), u8(s, at + 9)
    local total_len, fragment = be16(s, at + 2), bits(be16(s, at + 6), 0, 14) ~= 0
    local header_len = first % 16 * 4
    if first ~= 0x45 then
      if bits(first, 4, 4) ~= 4 or len < at + header_len then
        return { format = "other" }
      elseif header_len < IPV4_LEN or fragment then
        return { format = "other", ip = 4 }
      end
      return { format = "other", ip = 4, l4 = at + header_len, proto = proto }
    elseif fragment or proto == UDP and total_len < IPV4_LEN + UDP_LEN then
      return { format = "other", ip = 4 } -- a part, or padding where the datagram would be
    elseif proto ~= UDP then
      return { format = "other", ip = 4, l4 = at + IPV4_LEN, proto = proto }
    elseif len < at + IPV4_LEN + UDP_LEN then
      return { format = "other", ip = 4 }
    end
    local found = { format = "other", ip = 4, l4 = at + IPV4_LEN, proto = proto }
    if not is_standard_port(be16(s, found.l4 + 2), settings) then
      return found
    end
    found.format, found.standard_port = "standard", true
    if be16(s, found.l4 + 4) >= UDP_LEN + RH_LEN then
      if len < found.l4 + UDP_LEN + RH_LEN then
        return nil, short("rh", found.l4 + UDP_LEN + RH_LEN, len)
      end
      found.rh = true
    end
    return found
  end

  -- The same of an IPv6 packet.
  local function scan_ipv6(s, at, settings)
    local len = #s
    if len < at + IPV6_LEN or bits(u8(s, at), 4, 4) ~= 6 then
      return { format = "other" }
    end
    local next_header = u8(s, at + 6)
    if EXTENSIONS[next_header] or next_header == UDP and be16(s, at + 4) < UDP_LEN then
      return { format = "other", ip = 6 }
    end
    local found = { format = "other", ip = 6, l4 = at + IPV6_LEN, proto = next_header }
    if next_header == UDP and len < found.l4 + UDP_LEN then
      return { format = "other", ip = 6 }
    elseif next_header == UDP then
      found.standard_port = is_standard_port(be16(s, found.l4 + 2), settings)
    end
    return found
  end

  -- The same of whatever stands behind EtherType `kind`, whose header starts at `at`.
  local function scan_layer3(s, kind, at, settings)
    if kind == TYPE_IPV4 then
      return scan_ipv4(s, at, settings)
    elseif kind == TYPE_IPV6 then
      return scan_ipv6(s, at, settings)
    elseif kind == settings.mac_type1 or kind == settings.mac_type2 then
      local order = gen2_order(s, settings)
      if order == false then
        return { format = "other" }
      elseif #s < at + RH_LEN then
        return nil, short("rh", at + RH_LEN, #s)
      end
      return { format = order and "gen2" or "gen1", order = order, rh = true }
    end
    local is_mpls = kind == TYPE_MPLS or kind == TYPE_MPLS_UPSTREAM
    return { format = "other", mpls = is_mpls and #s >= at + 4 }
  end

  -- Classifies a frame as a port does; or says why it is malformed.
  local function scan(s, settings)
    local len = #s
    if len < ETHERNET_LEN then
      return nil, short("ethernet", ETHERNET_LEN, len)
    end
    local kind = be16(s, 12)
    if kind == TYPE_CONTROL and (settings.afh ~= "lite" or s:sub(1, 6) == PAUSE_DA) then
      if len < ETHERNET_LEN + 2 then
        return nil, short("mac control", ETHERNET_LEN + 2, len)
      end
      return { format = "mac_control", kind = kind, at = ETHERNET_LEN }
    elseif settings.afh == "lite" then
      return { format = "lite", order = settings.gen2_order }
    end
    local at = ETHERNET_LEN
    if settings.tpid[kind] then
      if len < TAGGED_LEN then
        return nil, short("vlan tag", TAGGED_LEN, len)
      end
      kind, at = be16(s, 16), TAGGED_LEN
    end
    local found, malformed = scan_layer3(s, kind, at, settings)
    if found then
      found.kind, found.at = kind, at
    end
    return found, malformed
  end

  -- Destination and source in their address space, and whether the destination is a group.
  local function addresses(s, found)
    if found.format == "gen2" or found.format == "lite" then
      local group = bit(u8(s, (key_words_at(found.order))), 0)
      return ("id:%04x"):format(be16(s, 4)), ("id:%04x"):format(be16(s, 10)), group, { 4, 2, 10, 2 }
    end
    local group = bit(u8(s, 0), 0)
    if found.format == "gen1" then
      local dst = group and hex(s, 0, 6) or hex(s, 1, 5)
      return "gen1:" .. dst, "gen1:" .. hex(s, 7, 5), group, { group and 0 or 1, group and 6 or 5, 7, 5 }
    end
    return hex(s, 0, 6, ":"), hex(s, 6, 6, ":"), group, { 0, 6, 6, 6 }
  end

  local function add_afh(out, s, found)
    local key_words, tc_at = 0, 6
    if found.order then
      key_words, tc_at = key_words_at(found.order)
    end
    local afh, tc = node(out, "afh", nil, 0, 12), u8(s, tc_at)
    node(afh, "afh.tc", tc, tc_at, 1)
    node(afh, "afh.vc", bits(tc, 5, 3), tc_at, 1)
    node(afh, "afh.flow", bits(tc, 2, 3), tc_at, 1)
    if not found.order then
      node(afh, "afh.da", hex(s, 0, 6, ":"), 0, 6)
      return
    end
    node(afh, "afh.key_words", u8(s, key_words), key_words, 1)
    if found.format == "gen2" then
      node(afh, "afh.payload_hi", be24(s, 1), 1, 3)
      node(afh, "afh.payload_lo", be24(s, 7), 7, 3)
    else
      node(afh, "afh.xpu_id", be16(s, 7), 7, 2)
    end
  end

  -- Adds the RC Link header at `at` to `out`; what follows it is the payload.
  local function add_rh(out, s, at)
    local rh = node(out, "rh", nil, at, RH_LEN)
    local first, high, low = u8(s, at), be32(s, at), be32(s, at + 4)
    local opcode = bits(first, 6, 2)
    node(rh, "rh.opcode", RH_OPCODES[opcode], at, 1)
    node(rh, "rh.fack", bit(first, 5), at, 1)
    node(rh, "rh.pad", bits(first, 3, 2), at, 1)
    if bit(first, 0) then
      node(rh, "rh.timestamp", bits(high, 8, 16), at + 1, 2)
    end
    node(rh, "rh.p_key", u8(s, at + 3), at + 3, 1)
    if opcode == 0 then
      node(rh, "rh.pkt_len", bits(low, 25, 7), at + 4, 1)
    elseif opcode == 1 then
      node(rh, "rh.syndrome", bits(low, 25, 7), at + 4, 1)
    end
    node(rh, "rh.psn", bits(low, 13, 12), at + 4, 3)
    node(rh, "rh.dest_qp", bits(low, 0, 13), at + 6, 2)
    local is_positive = bits(low, 30, 2) == 0
    out.rh = { opcode = RH_OPCODES[opcode], psn = bits(low, 13, 12), qp = bits(low, 0, 13), is_positive = is_positive }
    out.payload_at = at + RH_LEN
  end

  local function is_checksum_ok(s, at, len)
    local sum = 0
    for i = at, at + len - 2, 2 do
      sum = sum + be16(s, i)
    end
    while sum > 0xFFFF do
      sum = bits(sum, 0, 16) + math.floor(sum / 0x10000)
    end
    return sum == 0xFFFF
  end

  -- RFC 5952: the first longest run of two and more zeros is left out; an IPv4 address in IPv6 is shown as one.
  local function ipv6_text(s, at)
    local groups, best, best_len, run = {}, 0, 1, 0
    for i = 1, 8 do
      groups[i] = be16(s, at + 2 * (i - 1))
      run = groups[i] == 0 and run + 1 or 0
      if run > best_len then
        best, best_len = i - run + 1, run
      end
    end
    if best == 1 and best_len == 5 and groups[6] == 0xFFFF then
      return ("::ffff:%d.%d.%d.%d"):format(s:byte(at + 13, at + 16))
    end
    local function text(from, to)
      local part = {}
      for i = from, to do
        part[#part + 1] = ("%x"):format(groups[i])
      end
      return table.concat(part, ":")
    end
    return best == 0 and text(1, 8) or text(1, best - 1) .. "::" .. text(best + best_len, 8)
  end

  -- Adds the IP header; returns where its payload starts and how many bytes it claims in all.
  local function add_ip(out, s, at, version)
    local v6 = version == 6
    local header_len = v6 and IPV6_LEN or u8(s, at) % 16 * 4
    local tos = v6 and bits(be16(s, at), 4, 8) or u8(s, at + 1)
    local ip = node(out, "ip", nil, at, header_len)
    local tos_at, tos_len = v6 and at or at + 1, v6 and 2 or 1
    local total_len = v6 and be16(s, at + 4) + IPV6_LEN or be16(s, at + 2)
    node(ip, "ip.version", version, at, 1)
    if v6 then
      node(ip, "ip.src", ipv6_text(s, at + 8), at + 8, 16)
      node(ip, "ip.dst", ipv6_text(s, at + 24), at + 24, 16)
    else
      node(ip, "ip.src", ("%d.%d.%d.%d"):format(s:byte(at + 13, at + 16)), at + 12, 4)
      node(ip, "ip.dst", ("%d.%d.%d.%d"):format(s:byte(at + 17, at + 20)), at + 16, 4)
    end
    node(ip, "ip.dscp", bits(tos, 2, 6), tos_at, tos_len)
    node(ip, "ip.ecn", bits(tos, 0, 2), tos_at, tos_len)
    node(ip, "ip.ttl", u8(s, v6 and at + 7 or at + 8), v6 and at + 7 or at + 8, 1)
    node(ip, "ip.proto", u8(s, v6 and at + 6 or at + 9), v6 and at + 6 or at + 9, 1)
    node(ip, "ip.total_len", total_len, v6 and at + 4 or at + 2, 2)
    if not v6 then
      node(ip, "ip.is_checksum_ok", is_checksum_ok(s, at, header_len), at + 10, 2)
    end
    return at + header_len, total_len
  end

  local function add_bth(out, s, at)
    local bth, opcode = node(out, "bth", nil, at, BTH_LEN), u8(s, at)
    node(bth, "bth.opcode", opcode, at, 1)
    if BTH_OPCODES[opcode] then
      node(bth, "bth.name", BTH_OPCODES[opcode], at, 1)
    end
    node(bth, "bth.p_key", be16(s, at + 2), at + 2, 2)
    node(bth, "bth.dest_qp", be24(s, at + 5), at + 5, 3)
    node(bth, "bth.psn", be24(s, at + 9), at + 9, 3)
    out.bth = { name = BTH_OPCODES[opcode] or ("opcode 0x%02x"):format(opcode), psn = be24(s, at + 9), qp = be24(s, at + 5) }
    out.payload_at = at + BTH_LEN
  end

  -- What is missing of an IP header that is cut short.
  local function missing_of_ip(s, found)
    local had = #s - found.at
    if found.kind == TYPE_IPV4 and had < IPV4_LEN then
      return short("ipv4", IPV4_LEN, had)
    elseif found.kind == TYPE_IPV4 and bits(u8(s, found.at), 4, 4) == 4 then
      return short("ipv4", u8(s, found.at) % 16 * 4, had)
    elseif found.kind == TYPE_IPV6 and had < IPV6_LEN then
      return short("ipv6", IPV6_LEN, had)
    end
    return nil
  end

  -- Adds IP and what is known behind it; returns what is wrong.
  local function add_ip_layers(out, s, found)
    if not found.ip then
      return missing_of_ip(s, found)
    elseif found.ip == 4 and u8(s, found.at) % 16 < 5 then
      return refused("ipv4", "header length", u8(s, found.at) % 16)
    end
    local behind, total_len = add_ip(out, s, found.at, found.ip)
    out.payload_at = behind
    local had = #s - found.at
    if had > total_len then
      out.padding_len = had - total_len
    end
    local wrong = had < total_len and ("ip: claims %d bytes, has %d"):format(total_len, had) or nil
    local at = found.l4
    if not at or found.proto ~= UDP or at > #s then
      return wrong
    elseif at + UDP_LEN > #s then
      return short("udp", UDP_LEN, #s - at)
    end
    local udp, claimed = node(out, "udp", nil, at, UDP_LEN), be16(s, at + 4)
    node(udp, "udp.sport", be16(s, at), at, 2)
    node(udp, "udp.dport", be16(s, at + 2), at + 2, 2)
    node(udp, "udp.len", claimed, at + 4, 2)
    node(udp, "udp.checksum", be16(s, at + 6), at + 6, 2)
    out.payload_at = at + UDP_LEN
    if found.rh then
      add_rh(out, s, out.payload_at)
    elseif found.standard_port and claimed >= UDP_LEN + BTH_LEN then
      if out.payload_at + BTH_LEN > #s then
        return short("bth", BTH_LEN, #s - out.payload_at)
      end
      add_bth(out, s, out.payload_at)
    end
    return wrong
  end

  -- Adds UEC's CC_Update; returns what is wrong.
  local function add_update(control, s)
    if #s < UPDATE_LEN then
      return short("cc_update", UPDATE_LEN, #s)
    elseif be24(s, 16) ~= 0xFA7ACB then
      return refused("cc_update", "cid", be16(s, 17))
    elseif u8(s, 19) ~= 1 and u8(s, 19) ~= 2 then
      return refused("cc_update", "message type", u8(s, 19))
    end
    for i = 0, 15 do
      local at = 20 + math.floor(i * 5 / 2)
      local value = be24(s, at)
      node(control, "mac_control.consumed", i % 2 == 0 and bits(value, 4, 20) or bits(value, 0, 20), at, 3)
    end
    node(control, "mac_control.first_vc", u8(s, 19) == 2 and 16 or 0, 19, 1)
    return nil
  end

  -- Adds the classes of PFC; returns what is wrong.
  local function add_classes(out, control, s)
    if #s < PFC_LEN then
      return short("pfc", PFC_LEN, #s)
    end
    out.classes = {}
    for class = 0, 7 do
      if bit(u8(s, 17), class) then
        local at = 18 + 2 * class
        local one = node(control, "mac_control.classes", nil, at, 2)
        node(one, "mac_control.classes.class", class, 17, 1)
        node(one, "mac_control.classes.quanta", be16(s, at), at, 2)
        out.classes[#out.classes + 1] = { class = class, quanta = be16(s, at) }
      end
    end
    return nil
  end

  -- Adds MAC control; returns what is wrong.
  local function add_mac_control(out, s)
    local control, opcode = node(out, "mac_control", nil, 14, #s - 14), be16(s, 14)
    out.payload_at = 16
    node(control, "mac_control.opcode", opcode, 14, 2)
    if OPCODES[opcode] then
      node(control, "mac_control.name", OPCODES[opcode], 14, 2)
    end
    local wrong
    if opcode == PFC then
      wrong = add_classes(out, control, s)
    elseif opcode == PAUSE and #s < PAUSE_LEN then
      wrong = short("pause", PAUSE_LEN, #s)
    elseif opcode == PAUSE then
      node(control, "mac_control.quanta", be16(s, 16), 16, 2)
    elseif opcode == EXTENSION then
      wrong = add_update(control, s)
    end
    if not wrong and (opcode == PFC or opcode == PAUSE) and s:sub(1, 6) ~= PAUSE_DA then
      wrong = "mac control: not to 01:80:c2:00:00:01"
    end
    return wrong
  end

  local function add_tag(out, s)
    local vlan, tci = node(out, "vlan", nil, 12, 4), be16(s, 14)
    node(vlan, "vlan.pcp", bits(tci, 13, 3), 14, 1)
    node(vlan, "vlan.dei", bit(tci, 12), 14, 1)
    node(vlan, "vlan.vid", bits(tci, 0, 12), 14, 2)
  end

  local function add_mpls(out, s, at)
    local mpls, entry = node(out, "mpls", nil, at, 4), be32(s, at)
    node(mpls, "mpls.label", bits(entry, 12, 20), at, 3)
    node(mpls, "mpls.exp", bits(entry, 9, 3), at + 2, 1)
    node(mpls, "mpls.is_bottom", bit(entry, 8), at + 2, 1)
    node(mpls, "mpls.ttl", bits(entry, 0, 8), at + 3, 1)
  end

  -- Adds what stands behind the addresses; returns what is wrong.
  local function add_layers(out, s, found, tlp, oui)
    if found.format == "lite" then
      add_afh(out, s, found)
      out.payload_at, out.lite_len = 12, #s - 12
      return nil
    end
    if found.at == TAGGED_LEN then
      add_tag(out, s)
    end
    if found.mpls then
      add_mpls(out, s, found.at)
    end
    node(out, "ether_type", found.kind, found.at - 2, 2)
    out.payload_at = found.at
    if found.format == "other" then
      local is_tlp, wrong = tlp.read(out, s, found.at, oui)
      if is_tlp then
        return wrong
      end
    elseif found.format == "mac_control" then
      return add_mac_control(out, s)
    elseif found.format ~= "standard" then
      add_afh(out, s, found)
      add_rh(out, s, found.at)
      return nil
    end
    return add_ip_layers(out, s, found)
  end

  -- Reads frame `s`. Of the result, `fields` are as of `weft decode --json`; the rest is for summaries and links.
  function M.decode(s, settings, tlp, oui)
    local out = { fields = {} }
    node(out, "len", #s, 0, #s)
    local found, wrong = scan(s, settings)
    if not found then
      node(out, "is_group", false, 0, 0)
    else
      local format = node(out, "format", found.format, 0, 0)
      local dst, src, is_group, at = addresses(s, found)
      out.dst, out.src = dst, src
      node(out, "dst", dst, at[1], at[2])
      node(out, "src", src, at[3], at[4])
      node(out, "is_group", is_group, at[1], at[2])
      wrong = add_layers(out, s, found, tlp, oui)
      format.value = out.tlp and "pbr" or found.format
      out.format = format.value
      out.tagged = found.at == TAGGED_LEN
    end
    if out.payload_at then
      local len = out.payload_len or #s - out.payload_at
      node(out, "payload_len", len, out.payload_at, 0)
    end
    if out.padding_len and out.padding_len > 0 then
      node(out, "padding_len", out.padding_len, #s - out.padding_len, out.padding_len)
    end
    if wrong then
      node(out, "error", wrong, 0, 0)
      out.error = wrong
    end
    return out
  end

  return M
end
