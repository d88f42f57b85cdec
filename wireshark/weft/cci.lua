-- CCI messages in a stream of bytes: how managers command components over TCP.
--
-- head(bytes) -> length of the whole message or why there is none; decode(bytes) -> its fields; a message in a
-- tunnel (5300h, 5701h) is a group of fields of its own.
-- Units: bytes; little-endian.
-- Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1, §4.2, §4.5.

return function(bytes)
  local u8, le16, le24, bits, bit, node = bytes.u8, bytes.le16, bytes.le24, bytes.bits, bytes.bit, bytes.node
  local short, refused = bytes.short, bytes.refused

  local M = { HEAD_LEN = 3 }

  local HEADER_LEN, FM_API, CCI = 12, 7, 8
  local REQUEST, RESPONSE, EVENT = 0, 1, 2
  local CATEGORIES = { [REQUEST] = "request", [RESPONSE] = "response", [EVENT] = "event" }
  -- Tunnels: where the length of the message and the message itself stand in request and response.
  local TUNNELS = {
    [0x5300] = { [REQUEST] = { 2, 4 }, [RESPONSE] = { 0, 4 } },
    [0x5701] = { [REQUEST] = { 4, 6 }, [RESPONSE] = { 0, 4 } },
  }
  local LAYERS_MAX = 3 -- two tunnels and the message in them

  M.COMMANDS = {
    [0x0001] = "Identify",
    [0x0002] = "Background Operation Status",
    [0x0003] = "Get Response Message Limit",
    [0x0004] = "Set Response Message Limit",
    [0x0005] = "Request Abort of Background Operation",
    [0x0100] = "Get Event Records",
    [0x0101] = "Clear Event Records",
    [0x0102] = "Get Event Interrupt Policy",
    [0x0103] = "Set Event Interrupt Policy",
    [0x0104] = "Get MCTP Event Interrupt Policy",
    [0x0105] = "Set MCTP Event Interrupt Policy",
    [0x0106] = "Event Notification",
    [0x0107] = "GFD Enhanced Event Notification",
    [0x0108] = "Enhanced Event Notification",
    [0x0109] = "Get GAM Buffer",
    [0x010A] = "Set GAM Buffer",
    [0x0400] = "Get Supported Logs",
    [0x0401] = "Get Log",
    [0x0700] = "Identify PBR Component",
    [0x0701] = "Claim Ownership",
    [0x0702] = "Read CDAT",
    [0x4900] = "Identify GFD",
    [0x4901] = "Get GFD Status",
    [0x4902] = "Get GFD DC Region Configuration",
    [0x4903] = "Set GFD DC Region Configuration",
    [0x4904] = "Get GFD DC Region Extent Lists",
    [0x4905] = "Get GFD DMP Configuration",
    [0x4906] = "Set GFD DMP Configuration",
    [0x4907] = "GFD Dynamic Capacity Add",
    [0x4908] = "GFD Dynamic Capacity Release",
    [0x4909] = "GFD Dynamic Capacity Add Reference",
    [0x490A] = "GFD Dynamic Capacity Remove Reference",
    [0x490B] = "GFD Dynamic Capacity List Tags",
    [0x490C] = "Get GFD SAT Entry",
    [0x490D] = "Set GFD SAT Entry",
    [0x490E] = "Get GFD QoS Control",
    [0x490F] = "Set GFD QoS Control",
    [0x4910] = "Get GFD QoS Status",
    [0x4911] = "Get GFD QoS BW Limit",
    [0x4912] = "Set GFD QoS BW Limit",
    [0x4913] = "Get GDT Configuration",
    [0x4914] = "Set GDT Configuration",
    [0x5100] = "Identify Switch Device",
    [0x5101] = "Get Physical Port State",
    [0x5102] = "Physical Port Control",
    [0x5103] = "Send PPB CXL.io Configuration Request",
    [0x5104] = "Get Domain Validation SV State",
    [0x5105] = "Set Domain Validation SV",
    [0x5106] = "Get VCS Domain Validation SV State",
    [0x5107] = "Get Domain Validation SV",
    [0x5200] = "Get Virtual CXL Switch Info",
    [0x5201] = "Bind vPPB",
    [0x5202] = "Unbind vPPB",
    [0x5203] = "Generate AER Event",
    [0x5300] = "Tunnel Management Command",
    [0x5301] = "Send LD CXL.io Configuration Request",
    [0x5302] = "Send LD CXL.io Memory Request",
    [0x5400] = "Get LD Info",
    [0x5401] = "Get LD Allocations",
    [0x5402] = "Set LD Allocations",
    [0x5403] = "Get QoS Control",
    [0x5404] = "Set QoS Control",
    [0x5405] = "Get QoS Status",
    [0x5406] = "Get QoS Allocated BW",
    [0x5407] = "Set QoS Allocated BW",
    [0x5408] = "Get QoS BW Limit",
    [0x5409] = "Set QoS BW Limit",
    [0x5500] = "Get Multi-Headed Info",
    [0x5501] = "Get Head Info",
    [0x5603] = "Get DC Region Extent Lists",
    [0x5604] = "Initiate Dynamic Capacity Add",
    [0x5605] = "Initiate Dynamic Capacity Release",
    [0x5606] = "Dynamic Capacity Add Reference",
    [0x5607] = "Dynamic Capacity Remove Reference",
    [0x5700] = "Identify PBR Switch",
    [0x5701] = "Fabric Crawl Out",
    [0x5702] = "Get PBR Link Partner Info",
    [0x5703] = "Get PID Target List",
    [0x5704] = "Configure PID Assignment",
    [0x5705] = "Get PID Binding",
    [0x5706] = "Configure PID Binding",
    [0x5707] = "Get Table Descriptors",
    [0x5708] = "Get DRT",
    [0x5709] = "Set DRT",
    [0x570A] = "Get RGT",
    [0x570B] = "Set RGT",
    [0x570C] = "Get LDST/IDT Capabilities",
    [0x570D] = "Set LDST/IDT Configuration",
    [0x570E] = "Get LDST Segment Entries",
    [0x570F] = "Set LDST Segment Entries",
    [0x5710] = "Get LDST IDT DPID Entries",
    [0x5711] = "Set LDST IDT DPID Entries",
    [0x5712] = "Get Completer ID-Based Re-Router Entries",
    [0x5713] = "Set Completer ID-Based Re-Router Entries",
    [0x5714] = "Get LDST Access Vector",
    [0x5715] = "Get VCS LDST Access Vector",
    [0x5716] = "Configure VCS LDST Access",
    [0x5800] = "Identify GAE",
    [0x5801] = "Get PID Interrupt Vector",
    [0x5802] = "Get PID Access Vectors",
    [0x5803] = "Get FAST/IDT Capabilities",
    [0x5804] = "Set FAST/IDT Configuration",
    [0x5805] = "Get FAST Segment Entries",
    [0x5806] = "Set FAST Segment Entries",
    [0x5807] = "Get IDT DPID Entries",
    [0x5808] = "Set IDT DPID Entries",
    [0x5809] = "Proxy GFD Management Command",
    [0x580A] = "Get Proxy Thread Status",
    [0x580B] = "Cancel Proxy Thread",
    [0x5900] = "Identify VCS GAE",
    [0x5901] = "Get VCS PID Access Vectors",
    [0x5902] = "Configure VCS PID Access",
    [0x5903] = "Get VendPrefixL0 State",
    [0x5904] = "Set VendPrefixL0 State",
    [0x5400] = "Get LD Info",
    [0x5401] = "Get LD Allocations",
    [0x5402] = "Set LD Allocations",
    [0x5403] = "Get QoS Control",
    [0x5404] = "Set QoS Control",
    [0x5405] = "Get QoS Status",
    [0x5406] = "Get QoS Allocated BW",
    [0x5407] = "Set QoS Allocated BW",
    [0x5408] = "Get QoS BW Limit",
    [0x5409] = "Set QoS BW Limit",
    [0x5500] = "Get Multi-Headed Info",
    [0x5501] = "Get Head Info",
    [0x5600] = "Get DCD Info",
    [0x5601] = "Get Host DC Region Configuration",
    [0x5602] = "Set DC Region Configuration",
    [0x5608] = "Dynamic Capacity List Tags",
  }

  M.RETURN_CODES = {
    [0x00] = "Success",
    [0x01] = "Background Command Started",
    [0x02] = "Invalid Input",
    [0x03] = "Unsupported",
    [0x04] = "Internal Error",
    [0x05] = "Retry Required",
    [0x06] = "Busy",
    [0x07] = "Media Disabled",
    [0x08] = "FW Transfer in Progress",
    [0x09] = "FW Transfer Out of Order",
    [0x0A] = "FW Authentication Failed",
    [0x0B] = "Invalid Slot",
    [0x0C] = "Activation Failed, FW Rolled Back",
    [0x0D] = "Activation Failed, Cold Reset Required",
    [0x0E] = "Invalid Handle",
    [0x0F] = "Invalid Physical Address",
    [0x10] = "Inject Poison Limit Reached",
    [0x11] = "Permanent Media Failure",
    [0x12] = "Aborted",
    [0x13] = "Invalid Security State",
    [0x14] = "Incorrect Passphrase",
    [0x15] = "Unsupported Mailbox or CCI",
    [0x16] = "Invalid Payload Length",
    [0x17] = "Invalid Log",
    [0x18] = "Interrupted",
    [0x19] = "Unsupported Feature Version",
    [0x1A] = "Unsupported Feature Selection Value",
    [0x1B] = "Feature Transfer in Progress",
    [0x1C] = "Feature Transfer Out of Order",
    [0x1D] = "Resources Exhausted",
    [0x1E] = "Invalid Extent List",
    [0x1F] = "Transfer Out of Order",
    [0x20] = "Request Abort of Background Operation Not Supported",
  }

  -- Bytes of the message that starts with `s`, of which the first three must be there; or why it is none.
  function M.whole_len(s)
    local len, kind = le16(s, 0), u8(s, 2)
    if len < 1 + HEADER_LEN then
      return nil, refused("mctp", "length", len)
    elseif kind ~= FM_API and kind ~= CCI then
      return nil, refused("mctp", "message type", kind)
    end
    return 2 + len
  end

  -- Whether bytes look like the start of a message: what the heuristic of a port that nobody named asks.
  function M.looks_right(s)
    if #s < M.HEAD_LEN + HEADER_LEN or not M.whole_len(s) then
      return false
    end
    local category, opcode, len_bits = u8(s, 3), le16(s, 6), le24(s, 8)
    local is_quiet = category == RESPONSE or s:sub(12, 15) == "\0\0\0\0"
    local is_len_right = bits(len_bits, 0, 21) == le16(s, 0) - 1 - HEADER_LEN and bits(len_bits, 21, 2) == 0
    return CATEGORIES[category] ~= nil and u8(s, 5) == 0 and M.COMMANDS[opcode] ~= nil and is_quiet and is_len_right
  end

  -- Adds the message at `at` that ends before `finish` to `parent`; returns what is wrong, and its facts.
  local function add_message(parent, s, at, finish, layer)
    if finish - at < HEADER_LEN then
      return short("cci", HEADER_LEN, finish - at)
    end
    local category, opcode, len_bits = u8(s, at) % 16, le16(s, at + 3), le24(s, at + 5)
    if not CATEGORIES[category] then
      return refused("cci", "category", category)
    end
    local len, payload, name = bits(len_bits, 0, 21), at + HEADER_LEN, M.COMMANDS[opcode] or "unknown"
    local facts = { category = CATEGORIES[category], tag = u8(s, at + 1), opcode = opcode, name = name }
    node(parent, "cci.category", facts.category, at, 1)
    node(parent, "cci.tag", facts.tag, at + 1, 1)
    node(parent, "cci.opcode", opcode, at + 3, 2)
    node(parent, "cci.name", name, at + 3, 2)
    node(parent, "cci.payload_len", len, at + 5, 3)
    node(parent, "cci.background", bit(len_bits, 23), at + 7, 1)
    if category == RESPONSE then
      facts.return_code = le16(s, at + 8)
      facts.return_name = M.RETURN_CODES[facts.return_code] or "Unknown"
      node(parent, "cci.return_code", facts.return_code, at + 8, 2)
      node(parent, "cci.return_name", facts.return_name, at + 8, 2)
      node(parent, "cci.vendor_status", le16(s, at + 10), at + 10, 2)
    end
    if finish - payload < len then
      return short("cci", HEADER_LEN + len, finish - at), facts
    elseif finish - payload > len then
      return refused("cci", "length", math.min(len, 65535)), facts
    end
    if len > 0 then
      node(parent, "cci.payload", s:sub(payload + 1, finish), payload, len)
    end
    local tunnel = TUNNELS[opcode] and TUNNELS[opcode][category]
    if not tunnel or len < tunnel[2] or category == RESPONSE and facts.return_code ~= 0 then
      return nil, facts
    end
    local inner, inner_at = le16(s, payload + tunnel[1]), payload + tunnel[2]
    if layer >= LAYERS_MAX or inner_at + inner > finish then
      return nil, facts
    end
    local group = node(parent, "cci.tunnelled", nil, inner_at, inner)
    local inner_end = inner_at + inner
    -- Some managers put the MCTP message type in front; no category has its number.
    local kind = inner > 0 and u8(s, inner_at)
    if opcode == 0x5300 and (kind == FM_API or kind == CCI) then
      node(group, "cci.type", kind, inner_at, 1)
      inner_at = inner_at + 1
    end
    local wrong, innermost = add_message(group, s, inner_at, inner_end, layer + 1)
    facts.inner = innermost
    return wrong, facts
  end

  -- Reads a whole message, its length and type first.
  function M.decode(s)
    local out = { fields = {} }
    local message = node(out, "cci", nil, 0, #s)
    local len, wrong = nil, short("mctp", M.HEAD_LEN, #s)
    if #s >= M.HEAD_LEN then
      len, wrong = M.whole_len(s)
    end
    if len then
      node(message, "cci.len", le16(s, 0), 0, 2)
      node(message, "cci.type", u8(s, 2), 2, 1)
      wrong, out.facts = add_message(message, s, M.HEAD_LEN, #s, 1)
    end
    if wrong then
      node(message, "cci.error", wrong, 0, 0)
      out.error = wrong
    end
    return out
  end

  return M
end
