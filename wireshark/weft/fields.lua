-- The fields that Wireshark knows, and how a decoder's tree becomes Wireshark's.
--
-- make() -> ProtoFields by name; each has `weft.` and the name that `weft decode --json` gives it. add(...) adds a
-- decoder's fields to a tree.
-- Units: as in each label.
-- Source: control/src/decode/mod.rs, whose names these are; docs/wireshark.md "Fields".

local M = {}

local ECN = { [0] = "not ECT", "ECT(1)", "ECT(0)", "CE" }
local FLOW = { [0] = "TYPE1_REQ", "TYPE1_ACK and CNP", "TYPE2", "TYPE3" }
local DEV_LOAD = { [0] = "light", "optimal", "moderate overload", "severe overload" }
local MCTP_TYPE = { [7] = "FM-API", [8] = "CCI" }
local NAK = { [0] = "PSN sequence", "invalid request", "remote access", "remote operational", "invalid RD request" }

-- Of every syndrome: ACK with its credit, RNR NAK with its timer, NAK with its code.
local function syndromes()
  local names = {}
  for value = 0, 127 do
    local low = value % 32
    if value < 32 then
      names[value] = low == 31 and "ACK" or "ACK, credit " .. low
    elseif value < 64 then
      names[value] = "RNR NAK, timer " .. low
    elseif value >= 96 then
      names[value] = "NAK, " .. (NAK[low] or "code " .. low)
    else
      names[value] = "reserved"
    end
  end
  return names
end

-- {name, type, label, base or type of frame number, names of values}. "group" holds those whose names start with its own.
local FIELDS = {
  { "len", "uint32", "Captured bytes" },
  { "wire_len", "uint32", "Bytes on the wire" },
  { "format", "string", "Format" },
  { "dst", "string", "Destination" },
  { "src", "string", "Source" },
  { "is_group", "bool", "Destination is a group" },
  { "ether_type", "uint16", "EtherType", base.HEX },
  { "payload_len", "uint32", "Payload bytes" },
  { "padding_len", "uint32", "Padding bytes" },
  { "error", "string", "Error" },
  { "vlan", "group", "VLAN tag" },
  { "vlan.pcp", "uint8", "PCP" },
  { "vlan.dei", "bool", "DEI" },
  { "vlan.vid", "uint16", "VID" },
  { "mpls", "group", "MPLS label" },
  { "mpls.label", "uint32", "Label" },
  { "mpls.exp", "uint8", "EXP" },
  { "mpls.is_bottom", "bool", "Bottom of the stack" },
  { "mpls.ttl", "uint8", "TTL" },
  { "ip", "group", "IP" },
  { "ip.version", "uint8", "Version" },
  { "ip.src", "string", "Source" },
  { "ip.dst", "string", "Destination" },
  { "ip.dscp", "uint8", "DSCP" },
  { "ip.ecn", "uint8", "ECN", base.DEC, ECN },
  { "ip.ttl", "uint8", "TTL or hop limit" },
  { "ip.proto", "uint8", "Protocol or next header" },
  { "ip.total_len", "uint32", "Bytes that it claims" },
  { "ip.is_checksum_ok", "bool", "Header checksum is right" },
  { "udp", "group", "UDP" },
  { "udp.sport", "uint16", "Source port" },
  { "udp.dport", "uint16", "Destination port" },
  { "udp.len", "uint16", "Bytes that it claims" },
  { "udp.checksum", "uint16", "Checksum", base.DEC_HEX },
  { "afh", "group", "AFH" },
  { "afh.tc", "uint8", "Traffic Class", base.DEC_HEX },
  { "afh.vc", "uint8", "Virtual channel" },
  { "afh.flow", "uint8", "Flow", base.DEC, FLOW },
  { "afh.da", "string", "Destination, 48 bits" },
  { "afh.key_words", "uint8", "Key_words", base.DEC_HEX },
  { "afh.payload_hi", "uint24", "Payload in the destination half", base.DEC_HEX },
  { "afh.payload_lo", "uint24", "Payload in the source half", base.DEC_HEX },
  { "afh.xpu_id", "uint16", "XPU_ID", base.DEC_HEX },
  { "rh", "group", "RC Link header (RH)" },
  { "rh.opcode", "string", "Opcode" },
  { "rh.fack", "bool", "FACK" },
  { "rh.pad", "uint8", "Pad count" },
  { "rh.timestamp", "uint16", "Timestamp" },
  { "rh.p_key", "uint8", "P_key", base.DEC_HEX },
  { "rh.pkt_len", "uint8", "Bytes of RH and payload (0: above 127)" },
  { "rh.syndrome", "uint8", "Syndrome", base.DEC, syndromes() },
  { "rh.psn", "uint16", "PSN" },
  { "rh.dest_qp", "uint16", "Destination QP" },
  { "rh.request_in", "frame", "Request in", frametype.ACK },
  { "rh.acked_in", "frame", "Acknowledged in", frametype.RESPONSE },
  { "rh.response_time", "time", "Time since the request" },
  { "bth", "group", "Base transport header (BTH)" },
  { "bth.opcode", "uint8", "Opcode", base.DEC_HEX },
  { "bth.name", "string", "Name" },
  { "bth.p_key", "uint16", "P_Key", base.DEC_HEX },
  { "bth.dest_qp", "uint24", "Destination QP" },
  { "bth.psn", "uint24", "PSN" },
  { "mac_control", "group", "MAC control" },
  { "mac_control.opcode", "uint16", "Opcode", base.DEC_HEX },
  { "mac_control.name", "string", "Name" },
  { "mac_control.classes", "group", "Class" },
  { "mac_control.classes.class", "uint8", "Class" },
  { "mac_control.classes.name", "string", "Name of the class" },
  { "mac_control.classes.quanta", "uint16", "Quanta of 512 bit times (0: resume)" },
  { "mac_control.quanta", "uint16", "Quanta of 512 bit times (0: resume)" },
  { "mac_control.consumed", "uint24", "Credits consumed" },
  { "mac_control.first_vc", "uint8", "First virtual channel" },
  { "tlp", "group", "TLP" },
  { "tlp.link", "string", "Link" },
  { "tlp.pth", "group", "PBR TLP header (PTH)" },
  { "tlp.pth.spid", "string", "SPID" },
  { "tlp.pth.dpid", "string", "DPID" },
  { "tlp.pth.pif", "bool", "PIF" },
  { "tlp.pth.dsar", "bool", "DSAR" },
  { "tlp.pth.hie", "bool", "Hie" },
  { "tlp.kind", "string", "Kind" },
  { "tlp.tc", "uint8", "Traffic Class" },
  { "tlp.vend_prefix", "uint16", "VendPrefixL0", base.HEX },
  { "tlp.requester", "string", "Requester" },
  { "tlp.completer", "string", "Completer" },
  { "tlp.tag", "uint16", "Tag" },
  { "tlp.to", "string", "To" },
  { "tlp.register", "uint16", "Register", base.DEC_HEX },
  { "tlp.length_dw", "uint16", "Length in DW" },
  { "tlp.byte_enables", "uint8", "Byte enables", base.DEC_HEX },
  { "tlp.status", "string", "Status" },
  { "tlp.message", "string", "Message" },
  { "tlp.ln", "bool", "LN" },
  { "tlp.poisoned", "bool", "Poisoned" },
  { "tlp.ld_id", "uint8", "LD-ID" },
  { "tlp.cache_id", "uint8", "CacheID" },
  { "tlp.cqid", "uint16", "CQID" },
  { "tlp.uqid", "uint16", "UQID" },
  { "tlp.state", "string", "State that is granted" },
  { "tlp.bogus", "bool", "Bogus" },
  { "tlp.lease", "string", "Lease" },
  { "tlp.lease_us", "uint32", "Lease lasts microseconds" },
  { "tlp.byte_mask", "string", "Bytes that count" },
  { "tlp.pasid", "uint24", "PASID", base.DEC_HEX },
  { "tlp.byte_count", "uint16", "Byte count" },
  { "tlp.dev_load", "uint8", "DevLoad", base.DEC, DEV_LOAD },
  { "tlp.offset_dw", "uint16", "Offset from the request's address in DW" },
  { "tlp.request_in", "frame", "Request in", frametype.REQUEST },
  { "tlp.completed_in", "frame", "Completed in", frametype.RESPONSE },
  { "tlp.response_time", "time", "Time since the request" },
  { "path", "group", "Path through the switch" },
  { "path.frame", "uint64", "Number of the frame in the trace" },
  { "path.stage", "string", "Stage" },
  { "drop", "group", "Dropped" },
  { "drop.reason", "string", "Reason" },
  { "drop.port", "string", "Counted at port" },
  { "preference_error", "string", "Preference without effect" },
  { "cci", "group", "CCI message" },
  { "cci.len", "uint16", "Bytes that follow" },
  { "cci.type", "uint8", "MCTP message type", base.DEC, MCTP_TYPE },
  { "cci.category", "string", "Category" },
  { "cci.tag", "uint8", "Tag" },
  { "cci.opcode", "uint16", "Opcode", base.HEX },
  { "cci.name", "string", "Command" },
  { "cci.payload_len", "uint32", "Payload bytes" },
  { "cci.background", "bool", "Background operation" },
  { "cci.return_code", "uint16", "Return code", base.DEC_HEX },
  { "cci.return_name", "string", "Return code by name" },
  { "cci.vendor_status", "uint16", "Vendor status", base.DEC_HEX },
  { "cci.payload", "bytes", "Payload" },
  { "cci.tunnelled", "group", "Tunnelled message" },
  { "cci.error", "string", "Error" },
  { "cci.request_in", "frame", "Request in", frametype.REQUEST },
  { "cci.response_in", "frame", "Response in", frametype.RESPONSE },
  { "cci.response_time", "time", "Time since the request" },
}

local function made(abbreviation, kind, label, display, names)
  if kind == "group" then
    return ProtoField.none(abbreviation, label)
  elseif kind == "frame" then
    return ProtoField.framenum(abbreviation, label, base.NONE, display)
  elseif kind == "time" then
    return ProtoField.relative_time(abbreviation, label)
  elseif kind == "string" or kind == "bytes" or kind == "bool" then
    return ProtoField[kind](abbreviation, label)
  end
  return ProtoField[kind](abbreviation, label, display or base.DEC, names)
end

local is_bytes = {}

-- All fields by their names.
function M.make()
  local fields = {}
  for _, row in ipairs(FIELDS) do
    fields[row[1]] = made("weft." .. row[1], row[2], row[3], row[4], row[5])
    is_bytes[row[1]] = row[2] == "bytes"
  end
  return fields
end

-- Adds `nodes`, whose offsets are those of `tvb`, to `tree`; `each(node, item)` is called for every one.
function M.add(tree, fields, nodes, tvb, each)
  for _, one in ipairs(nodes) do
    local field = fields[one.name]
    local at = math.min(one.at, tvb:len())
    local len = math.min(one.len, tvb:len() - at)
    local item
    if one.value == nil then
      item = tree:add(field, tvb(at, len))
      M.add(item, fields, one.fields, tvb, each)
    elseif is_bytes[one.name] then
      item = tree:add(field, tvb(at, len))
    else
      item = tree:add(field, tvb(at, len), one.value)
    end
    if one.len == 0 then
      item:set_generated()
    end
    if each then
      each(one, item)
    end
  end
end

return M
