-- weft in Wireshark: AFH_GEN1, AFH_GEN2, AFH_Lite, RC Link, TLPs on Ethernet links, CCI, PFC, and paths through a switch.
--
-- `weft` looks at each Ethernet frame as a whole, behind Wireshark's own dissectors, and shows the fields that
-- `weft decode --json` prints; small dissectors take the payload that Wireshark would read as something else; `weft_cci`
-- reads messages of managers over TCP. All decoding is in the folder `weft` beside this file.
-- Units: as each field says.
-- Source: docs/wireshark.md; docs/spec/wire-formats.md. Needs Wireshark 3.6 or newer (Lua 5.2 to 5.4).

-- Where this file is.
local function folder()
  local ok, dir = pcall(function()
    return __DIR__
  end)
  if ok and type(dir) == "string" and dir ~= "" then
    return dir:match("[/\\]$") and dir or dir .. "/"
  end
  return (debug.getinfo(1, "S").source:gsub("^@", ""):match("^(.*[/\\])") or "./")
end

local function part(name)
  return assert(loadfile(folder() .. "weft/" .. name .. ".lua"))()
end

local bytes = part("bytes")
local frames = part("frame")(bytes)
local tlps = part("tlp")(bytes, part("cxl_mem")(bytes), part("cxl_cache")(bytes))
local cci = part("cci")(bytes)
local fields, links, paths, summary = part("fields"), part("links"), part("paths"), part("summary")

local weft = Proto("weft", "weft")
local weft_cci = Proto("weft_cci", "CCI over TCP")
local made = fields.make()
do
  local own, of_cci = {}, {}
  for name, field in pairs(made) do
    local list = name:match("^cci") and of_cci or own
    list[#list + 1] = field
  end
  weft.fields, weft_cci.fields = own, of_cci
end
local malformed = ProtoExpert.new("weft.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local dropped = ProtoExpert.new("weft.dropped", "Dropped by the switch", expert.group.RESPONSE_CODE, expert.severity.WARN)
local refusal = ProtoExpert.new("weft.cci.refused", "Refused", expert.group.RESPONSE_CODE, expert.severity.NOTE)
local cut = ProtoExpert.new("weft.cut", "Cut short, but forwarded", expert.group.PROTOCOL, expert.severity.WARN)
local broken = ProtoExpert.new("weft.cci.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
weft.experts, weft_cci.experts = { malformed, cut, dropped }, { refusal, broken }

-- What Wireshark has found before: the encapsulation, the interface and the comment of a frame. They are there when
-- Wireshark makes a tree; the first of two passes of tshark makes none.
local frame_encap = Field.new("frame.encap_type")
local frame_interface = Field.new("frame.interface_id")
local frame_interface_name = Field.new("frame.interface_name")
local frame_comment = Field.new("frame.comment")

local ETHERNET_ENCAP = 1
local ETHER_TYPE_MIN, TYPE_VLAN, TYPE_OUI, TPIDS_MAX = 0x0600, 0x8100, 0x88B7, 4

local MODES = { auto = true, none = true, gen1 = true, gen2 = true, lite = true }
local MODE_LIST = { { 1, "auto", 1 }, { 2, "none", 2 }, { 3, "gen1", 3 }, { 4, "gen2", 4 }, { 5, "lite", 5 } }
local ORDER_LIST = { { 1, "slap", 1 }, { 2, "as_documented", 2 } }

local prefs = weft.prefs
prefs.afh = Pref.enum("AFH mode of ports", 1, "As `afh` of a port: what frames with an AFH EtherType are", MODE_LIST, false)
prefs.interfaces = Pref.string(
  "AFH modes by interface",
  "",
  "Ports with another mode, by name or number of the interface in the capture: p0=lite, p1=gen2"
)
prefs.gen2_order = Pref.enum("Byte order of GEN2 and Lite", 1, "As `formats.gen2_order`", ORDER_LIST, false)
prefs.tpid = Pref.string("EtherTypes of VLAN tags", "0x8100", "As `formats.tpid`: one, or several with commas")
prefs.mac_type1 = Pref.string("EtherType of AFH frames of TYPE1", "0x88B5", "As `formats.mac_type1`")
prefs.mac_type2 = Pref.string("EtherType of AFH frames of TYPE2", "0x88B6", "As `formats.mac_type2`")
prefs.udp_type1_port = Pref.uint("UDP port of Standard frames of TYPE1", 4791, "As `formats.udp_type1_port`; 0 for none")
prefs.udp_type2_port = Pref.uint("UDP port of Standard frames of TYPE2", 0, "As `formats.udp_type2_port`; 0 for none")
prefs.oui = Pref.string("OUI of frames with TLPs", "02-57-46", "As `fabric.oui`")
prefs.cci_ports = Pref.range(
  "TCP ports of CCI",
  "",
  "Ports where managers command components; at others CCI is recognised by its headers",
  65535
)
prefs.class_names = Pref.string(
  "Names of PFC classes",
  "0=TYPE3, 2=TYPE2, 3=TYPE1 REQ, 4=TYPE1 REQ, 5=ACK+CNP, 6=ACK+CNP",
  "Names that PFC frames show beside their classes"
)
prefs.fcs = Pref.bool("Frames end with an FCS", false, "The last four bytes of each frame are its frame check sequence")
prefs.others = Pref.bool("Show frames of other formats", true, "Also show how weft reads frames that are plain Ethernet to it")

-- What the preferences say, once read.
local settings, by_interface, class_names, oui, problem

local function number_of_type(text)
  local value = tonumber(text)
  local is_type = value and value % 1 == 0 and value >= ETHER_TYPE_MIN and value <= 0xFFFF
  return is_type and math.floor(value)
end

-- Reads an EtherType; a text that is none leaves the default and is a problem to show.
local function ether_type(name, text)
  local value = number_of_type(text)
  if value then
    return value
  end
  problem = ("%s: expected an EtherType 0x0600..0xFFFF, found %q"):format(name, text)
  return frames.DEFAULTS[name]
end

-- The same of up to four EtherTypes, as a set.
local function ether_types(name, text)
  local set, count = {}, 0
  for item in (text .. ","):gmatch("([^,]*),") do
    local value = number_of_type(item)
    if not value or count == TPIDS_MAX then
      problem = ("%s: expected one to four EtherTypes 0x0600..0xFFFF, found %q"):format(name, text)
      return frames.DEFAULTS[name]
    end
    set[value], count = true, count + 1
  end
  return set
end

local function udp_port(name, value)
  if value <= 0xFFFF then
    return value
  end
  problem = ("%s: expected a UDP port 0..65535, found %d"):format(name, value)
  return frames.DEFAULTS[name]
end

-- Reads `key=value, key=value`; `take(key, value)` says whether it likes one.
local function pairs_of(name, text, expected, take)
  for item in text:gmatch("[^,]+") do
    local key, value = item:match("^%s*(.-)%s*=%s*(.-)%s*$")
    if not (key and take(key, value)) and item:match("%S") then
      problem = ("%s: expected %s, found %q"):format(name, expected, item)
    end
  end
end

local function read_oui(text)
  local digits = text:gsub("[-:%s]", "")
  if digits:match("^%x%x%x%x%x%x$") then
    return (digits:gsub("%x%x", function(pair)
      return string.char(tonumber(pair, 16))
    end))
  end
  problem = ("oui: expected three bytes such as 02-57-46, found %q"):format(text)
  return "\2WF"
end

local function read_settings()
  problem = nil
  settings = {
    afh = MODE_LIST[prefs.afh][2],
    gen2_order = ORDER_LIST[prefs.gen2_order][2],
    tpid = ether_types("tpid", prefs.tpid),
    mac_type1 = ether_type("mac_type1", prefs.mac_type1),
    mac_type2 = ether_type("mac_type2", prefs.mac_type2),
    udp_type1_port = udp_port("udp_type1_port", prefs.udp_type1_port),
    udp_type2_port = udp_port("udp_type2_port", prefs.udp_type2_port),
  }
  by_interface, class_names = {}, {}
  pairs_of("interfaces", prefs.interfaces, "INTERFACE=auto, none, gen1, gen2 or lite", function(key, value)
    if not MODES[value] or key == "" then
      return false
    end
    by_interface[key] = setmetatable({ afh = value }, { __index = settings })
    return true
  end)
  pairs_of("class_names", prefs.class_names, "CLASS=NAME with a class 0..7", function(key, value)
    if not key:match("^[0-7]$") then
      return false
    end
    class_names[tonumber(key)] = value
    return true
  end)
  oui = read_oui(prefs.oui)
end

-- How frames of the interface that this one came by are read.
local function settings_here()
  if not next(by_interface) then
    return settings
  end
  local id, name = frame_interface(), frame_interface_name()
  local by_name = name and by_interface[tostring(name.value)]
  return by_name or by_interface[id and tostring(id.value) or "0"] or settings
end

local state = links.new()
function weft.init()
  state = links.new()
end

-- Adds the text of a link: the frames that answer this one, or the one that it answers and the time since.
local function add_links(item, key, names)
  for _, frame in ipairs(state.answered[key] or {}) do
    item:add(made[names.answered], frame):set_generated()
  end
  local answer = state.answers[key]
  if answer then
    item:add(made[names.request], answer.frame):set_generated()
    local ns = math.floor(answer.time * 1e9 + 0.5)
    item:add(made[names.time], NSTime.new(math.floor(ns / 1e9), ns % 1000000000)):set_generated()
  end
end

local TLP_LINKS = { answered = "tlp.completed_in", request = "tlp.request_in", time = "tlp.response_time" }
local RH_LINKS = { answered = "rh.acked_in", request = "rh.request_in", time = "rh.response_time" }
local CCI_LINKS = { answered = "cci.response_in", request = "cci.request_in", time = "cci.response_time" }

-- Notes a frame that asks or answers, the first time that it is seen.
local function note(pinfo, decoded)
  if pinfo.visited then
    return
  end
  if decoded.tlp then
    local id = frame_interface()
    local here = id and id.value or 0
    local there = table.concat({ here, decoded.src, decoded.dst }, "/")
    local back = table.concat({ here, decoded.dst, decoded.src }, "/")
    state:tlp(pinfo.number, pinfo.rel_ts, decoded.tlp, there, back)
  elseif decoded.rh then
    state:rc_link(pinfo.number, pinfo.rel_ts, decoded.rh, decoded.src, decoded.dst)
  end
end

-- Frames that the capture cut off are not malformed for that.
local function set_columns(pinfo, decoded, is_whole)
  local protocol = summary.PROTOCOLS[decoded.format]
  if protocol then
    pinfo.cols.protocol:set(protocol)
  end
  local line = summary.of(decoded, class_names, is_whole and decoded.error)
  if line and decoded.format ~= "other" then
    pinfo.cols.info:set(line)
  end
end

-- Adds what weft wrote about the path of a frame.
local function add_path(tree, pinfo, here)
  for _, comment in ipairs({ frame_comment() }) do
    local path = paths.read(tostring(comment.value))
    if path then
      local group = tree:add(made["path"], here):set_generated()
      group:add(made["path.frame"], UInt64.new(path.frame)):set_generated()
      for _, stage in ipairs(path.stages) do
        local text = ("+%d ns %s %s"):format(stage.ns, stage.stage, stage.text)
        group:add(made["path.stage"], text):set_generated()
      end
      for _, drop in ipairs(path.drops) do
        local item = tree:add(made["drop"], here):set_generated()
        item:add(made["drop.reason"], drop.reason):set_generated()
        item:add(made["drop.port"], drop.port):set_generated()
        local text = ("Dropped for %s at %s (weft drops %s)"):format(drop.reason, drop.port, drop.reason)
        item:add_proto_expert_info(dropped, text)
        pinfo.cols.info:prepend(("[dropped: %s] "):format(drop.reason))
      end
    end
  end
end

-- Whether a frame is one of Ethernet; without a tree, whether it has addresses such as Ethernet has.
local function is_ethernet(pinfo)
  local encap = frame_encap()
  if encap then
    return encap.value == ETHERNET_ENCAP
  end
  return tostring(pinfo.dl_src):match("^%x%x:%x%x:%x%x:%x%x:%x%x:%x%x$") ~= nil
end

-- A whole Ethernet frame, when Wireshark's own dissectors are done with it.
function weft.dissector(tvb, pinfo, tree)
  if not is_ethernet(pinfo) then
    return 0
  end
  local len = tvb:len()
  if prefs.fcs and tvb:reported_len() >= 4 then
    len = math.min(len, tvb:reported_len() - 4)
  end
  local decoded = frames.decode(len > 0 and tvb:raw(0, len) or "", settings_here(), tlps, oui)
  note(pinfo, decoded)
  local is_whole = tvb:reported_len() <= tvb:len()
  set_columns(pinfo, decoded, is_whole)
  if decoded.format == "other" and not prefs.others and not frame_comment() then
    return 0
  end
  local here = tvb(0, len)
  local root = tree:add(weft, here)
  root:append_text((": %s"):format(decoded.format or "malformed"))
  if decoded.src then
    root:append_text((" %s > %s"):format(decoded.src, decoded.dst))
  end
  if not is_whole then
    root:add(made["wire_len"], tvb:reported_len() - (prefs.fcs and 4 or 0)):set_generated()
  end
  fields.add(root, made, decoded.fields, tvb, function(one, item)
    if one.name == "error" and is_whole then
      -- A port forwards plain Ethernet and Standard whatever their IP headers claim.
      local is_forwarded = decoded.format == "other" or decoded.format == "standard"
      item:add_proto_expert_info(is_forwarded and cut or malformed, decoded.error)
    elseif one.name == "mac_control.classes" then
      local class = one.fields[1].value
      item:set_text(summary.class(class, class_names) .. (": %d quanta"):format(one.fields[2].value))
      if class_names[class] then
        item:add(made["mac_control.classes.name"], class_names[class]):set_generated()
      end
    elseif one.name == "tlp" then
      add_links(item, pinfo.number, TLP_LINKS)
    elseif one.name == "rh" then
      add_links(item, pinfo.number, RH_LINKS)
    end
  end)
  add_path(root, pinfo, here)
  if problem then
    root:add(made["preference_error"], problem):set_generated()
  end
  return len
end
register_postdissector(weft)

local function address(host, port)
  return tostring(host) .. "/" .. port
end

-- One CCI message, whole.
local function dissect_message(tvb, pinfo, tree)
  local decoded = cci.decode(tvb:raw())
  local facts = decoded.facts
  pinfo.cols.protocol:set("CCI")
  local root = tree:add(weft_cci, tvb())
  local text = facts and summary.cci(facts) or decoded.error
  root:append_text(": " .. text)
  if pinfo.private.weft_cci then
    pinfo.cols.info:append("; " .. text)
  else
    pinfo.cols.info:set(text)
    pinfo.private.weft_cci = "" -- this frame has a message already
  end
  local key = facts and links.cci_key(pinfo.number, facts)
  if facts and not pinfo.visited then
    state:cci(pinfo.number, pinfo.rel_ts, facts, address(pinfo.src, pinfo.src_port), address(pinfo.dst, pinfo.dst_port))
  end
  fields.add(root, made, decoded.fields, tvb, function(one, item)
    if one.name == "cci" and key then
      add_links(item, key, CCI_LINKS)
    elseif one.name == "cci.return_name" and facts and facts.return_code > 1 then
      item:add_proto_expert_info(refusal, facts.return_name)
    elseif one.name == "cci.error" then
      item:add_proto_expert_info(broken, decoded.error)
    end
  end)
  return tvb:len()
end

-- Bytes of the message at `offset`; the rest of a stream that is out of step is one message that is malformed.
local function message_len(tvb, _, offset)
  local left = tvb:reported_length_remaining(offset)
  local has_head = tvb:len() - offset >= cci.HEAD_LEN -- or the capture was cut off there
  return has_head and cci.whole_len(tvb:raw(offset, cci.HEAD_LEN)) or math.max(left, cci.HEAD_LEN)
end

function weft_cci.dissector(tvb, pinfo, tree)
  dissect_tcp_pdus(tvb, tree, cci.HEAD_LEN, message_len, dissect_message)
  return tvb:len()
end

weft_cci:register_heuristic("tcp", function(tvb, pinfo, tree)
  if not cci.looks_right(tvb:raw(0, math.min(tvb:len(), 16))) then
    return false
  end
  pinfo.conversation = weft_cci
  weft_cci.dissector(tvb, pinfo, tree)
  return true
end)

-- Payload that `weft` shows: nothing else is to read it.
local inner = Proto("weft_payload", "Payload shown by weft")
function inner.dissector(tvb)
  return tvb:len()
end

local unread = ProtoExpert.new("weft.payload.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
inner.experts = { unread }

-- Has one of Wireshark's own dissectors read a frame. What it raises on a malformed one would be an error of this script.
local function leave_to(usual, tvb, pinfo, tree)
  local ok, why = pcall(usual.call, usual, tvb, pinfo, tree)
  if not ok then
    tree:add_proto_expert_info(unread, "Malformed (" .. tostring(why):gsub("^.*: ", "") .. ")")
  end
  return tvb:len()
end

-- Tables of Wireshark's own dissectors, and what stands there without weft.
local ethertypes, udp_ports = DissectorTable.get("ethertype"), DissectorTable.get("udp.port")
local tcp_ports, encaps = DissectorTable.get("tcp.port"), DissectorTable.get("wtap_encap")
local usual_ethernet = encaps:get_dissector(ETHERNET_ENCAP)
local vlan = ethertypes:get_dissector(TYPE_VLAN)
local taken = {}

-- Has `dissector` read what has `number` in `table`; `usual()` puts back what was there.
local function take(table, number, dissector)
  local before = table:get_dissector(number)
  table:add(number, dissector)
  taken[#taken + 1] = function()
    table:remove(number, dissector)
    if before then
      table:add(number, before)
    end
  end
end

-- Standard over IPv4 has an RH; over IPv6 it is RoCEv2, which Wireshark reads.
local standard = Proto("weft_standard", "RC Link over UDP")
local usual_udp = {}
function standard.dissector(tvb, pinfo, tree)
  local usual = usual_udp[pinfo.dst_port]
  if usual and pinfo.net_dst and tostring(pinfo.net_dst):find(":") then
    return leave_to(usual, tvb, pinfo, tree)
  end
  return tvb:len()
end

-- TLPs under weft's OUI; other protocols of 0x88B7 stay with Wireshark.
local extended = Proto("weft_oui", "TLP on Ethernet")
local usual_oui = ethertypes:get_dissector(TYPE_OUI)
function extended.dissector(tvb, pinfo, tree)
  local head = tvb:raw(0, math.min(tvb:len(), 6))
  if tlps.protocol("\136\183" .. head, 2, oui) or not usual_oui then
    return tvb:len()
  end
  return leave_to(usual_oui, tvb, pinfo, tree)
end

-- Ethernet itself, while some port is Lite: a Lite frame has no EtherType, and nothing of it is Ethernet's.
local ethernet = Proto("weft_lite", "AFH_Lite")
function ethernet.dissector(tvb, pinfo, tree)
  local decoded = frames.decode(tvb:raw(0, math.min(tvb:len(), 16)), settings_here(), tlps, oui)
  if decoded.format == "lite" then
    return tvb:len()
  end
  return leave_to(usual_ethernet, tvb, pinfo, tree)
end

local function has_lite()
  if settings.afh == "lite" then
    return true
  end
  for _, one in pairs(by_interface) do
    if one.afh == "lite" then
      return true
    end
  end
  return false
end

-- Takes the place of Wireshark's own dissectors where the preferences say so.
local function configure()
  for i = #taken, 1, -1 do
    taken[i]()
  end
  taken = {}
  read_settings()
  take(ethertypes, settings.mac_type1, inner)
  if settings.mac_type2 ~= settings.mac_type1 then
    take(ethertypes, settings.mac_type2, inner)
  end
  take(ethertypes, TYPE_OUI, extended)
  for tpid in pairs(settings.tpid) do
    if tpid ~= TYPE_VLAN then
      take(ethertypes, tpid, vlan)
    end
  end
  usual_udp = {}
  for _, port in ipairs({ settings.udp_type1_port, settings.udp_type2_port }) do
    if port > 0 and not usual_udp[port] then
      usual_udp[port] = udp_ports:get_dissector(port) or udp_ports:get_dissector(frames.DEFAULTS.udp_type1_port)
      take(udp_ports, port, standard)
    end
  end
  tcp_ports:remove_all(weft_cci)
  if prefs.cci_ports ~= "" then
    tcp_ports:add(prefs.cci_ports, weft_cci)
  end
  if has_lite() then
    take(encaps, ETHERNET_ENCAP, ethernet)
  end
end

tcp_ports:add_for_decode_as(weft_cci)
weft.prefs_changed = configure
configure()
