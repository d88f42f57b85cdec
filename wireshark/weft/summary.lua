-- One line on a frame: what stands in Wireshark's column Info.
--
-- of(decoded, class_names, wrong) -> text, or nil where Wireshark's own line says as much; cci(facts) -> text.
-- Units: quanta of 512 bit times.
-- Source: the text output of `weft decode`; docs/spec/wire-formats.md §1.4b (suggested classes).

local M = {}

-- Protocol column by format; of TLPs by link.
M.PROTOCOLS = {
  standard = "RC Link",
  gen1 = "AFH_GEN1",
  gen2 = "AFH_GEN2",
  lite = "AFH_Lite",
  pbr = "TLP",
}

local function rc_link(rh)
  return ("%s psn %d qp %d"):format(rh.opcode, rh.psn, rh.qp)
end

-- A class with its name, if it has one.
function M.class(class, names)
  local name = names[class]
  return name and ("class %d (%s)"):format(class, name) or ("class %d"):format(class)
end

local function pfc(classes, names)
  local parts = {}
  for _, one in ipairs(classes) do
    local what = one.quanta == 0 and "resume" or ("pause %d quanta"):format(one.quanta)
    parts[#parts + 1] = M.class(one.class, names) .. " " .. what
  end
  return "PFC " .. (#parts > 0 and table.concat(parts, ", ") or "of no class")
end

local function tlp(facts)
  local parts = { facts.kind or facts.link }
  local function add(format, ...)
    parts[#parts + 1] = format:format(...)
  end
  if facts.message then
    add("%s", facts.message)
  end
  if facts.completer then
    add("by %s for", facts.completer)
  end
  if facts.requester then
    add("%s", facts.requester)
  end
  if facts.tag then
    add("tag %d", facts.tag)
  end
  if facts.status then
    add("%s", facts.status)
  end
  if facts.to then
    add("to %s", facts.to)
  end
  if facts.register then
    add("register 0x%03x", facts.register)
  end
  if facts.length_dw and facts.length_dw > 0 then
    add("%d DW", facts.length_dw)
  end
  if facts.vend_prefix then
    add("prefix 0x%04x", facts.vend_prefix)
  end
  if facts.pth then
    add("PID %s > %s", facts.pth.spid, facts.pth.dpid)
  end
  for _, flag in ipairs({ "ln", "poisoned" }) do
    if facts[flag] then
      add("%s", flag)
    end
  end
  return table.concat(parts, " ")
end

-- The line of a frame that was decoded, with what is `wrong`; nil if Wireshark's own is to stay.
function M.of(decoded, class_names, wrong)
  local text
  if decoded.tlp then
    text = tlp(decoded.tlp)
  elseif decoded.classes then
    text = pfc(decoded.classes, class_names)
  elseif decoded.rh then
    text = rc_link(decoded.rh)
    text = decoded.format == "standard" and text or ("%s > %s %s"):format(decoded.src, decoded.dst, text)
  elseif decoded.format == "lite" then
    text = ("%s > %s payload of %d bytes"):format(decoded.src, decoded.dst, decoded.lite_len)
  end
  if wrong then
    return (text and text .. " " or "") .. "[" .. wrong .. "]"
  end
  return text
end

-- The line of a CCI message, with what a tunnel carries.
function M.cci(facts)
  local text = ("%s %s"):format(facts.name, facts.category)
  if facts.name == "unknown" then
    text = ("%04Xh %s"):format(facts.opcode, facts.category)
  end
  if facts.category ~= "event" then
    text = text .. " tag " .. facts.tag
  end
  if facts.return_name and facts.return_code ~= 0 then
    text = text .. ": " .. facts.return_name
  end
  return facts.inner and text .. " { " .. M.cci(facts.inner) .. " }" or text
end

return M
