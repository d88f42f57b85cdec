-- The parts of Wireshark's dissector that decode, without Wireshark: for other versions of Lua than its own.
--
-- decode_frames.lua FOLDER/ -> a line `name=value<tab>...` for each line of hexadecimal digits that is read.
-- Units: bytes.
-- Source: wireshark/weft/.

local folder = arg[1]
local bytes = dofile(folder .. "bytes.lua")
local frames = dofile(folder .. "frame.lua")(bytes)
local cxl_mem, cxl_cache = dofile(folder .. "cxl_mem.lua")(bytes), dofile(folder .. "cxl_cache.lua")(bytes)
local tlps = dofile(folder .. "tlp.lua")(bytes, cxl_mem, cxl_cache)
local NUMBERS = { ether_type = "0x%04x", ["tlp.vend_prefix"] = "0x%04x" }

local function text(one)
  if type(one.value) == "boolean" then
    return one.value and "1" or "0"
  end
  return NUMBERS[one.name] and NUMBERS[one.name]:format(one.value) or tostring(one.value)
end

local function write(nodes)
  for _, one in ipairs(nodes) do
    if one.value ~= nil then
      io.write(one.name, "=", text(one), "\t")
    end
    write(one.fields)
  end
end

for line in io.lines() do
  local frame = line:gsub("%x%x", function(digits)
    return string.char(tonumber(digits, 16))
  end)
  write(frames.decode(frame, frames.DEFAULTS, tlps, "\2WF").fields)
  io.write("\n")
end
