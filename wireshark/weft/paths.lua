-- What weft's captures say of a frame's path in its comment: `weft trace --out` and `weft replay --trace` write them.
--
-- read(comment) -> {frame, stages = {{stage, text}...}, drops = {{reason, port}...}}; nil if it is no path.
-- Units: ns since the frame was received.
-- Source: docs/replay.md "Times"; docs/drops.md.

local M = {}

local LINE = "^%d+%.%d+ frame (%d+) +%+ *(%d+) ns  (%a+) +(.-)$"

-- Reads a comment line by line; lines of other forms are passed over.
function M.read(comment)
  local found = { stages = {}, drops = {} }
  for line in comment:gmatch("[^\r\n]+") do
    local frame, ns, stage, text = line:match(LINE)
    if frame then
      found.frame = found.frame or tonumber(frame)
      found.stages[#found.stages + 1] = { ns = tonumber(ns), stage = stage, text = text }
      local reason, port = text:match("^([%l%d_]+), counted at (.+)$")
      if stage == "drop" and reason then
        found.drops[#found.drops + 1] = { reason = reason, port = port }
      end
    end
  end
  return found.frame and found or nil
end

return M
