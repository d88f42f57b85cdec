-- Which completion answers which request: of TLPs, of RC Link and of CCI.
--
-- new() -> state of one capture; tlp, rc_link and cci note a frame on its first pass, in order; `answers` and
-- `answered` are looked up by frame, and by message within a frame, on every pass.
-- Units: frame numbers; seconds.
-- Source: docs/spec/wire-formats.md §1.5, §3.1, §3.6, §3.7, §4.1. What is ambiguous is not linked.

local M = {}
M.__index = M

-- Requests with one name, on different links or of different queue pairs, that are looked through: more are no traffic.
local WAITING_MAX = 64

function M.new()
  local state = { tlps = {}, sends = {}, calls = {}, answers = {}, answered = {} }
  return setmetatable(state, M)
end

-- Notes that message `key` of a frame answers `request`, which ends at the time `now`.
local function note(state, key, frame, request, now)
  state.answers[key] = { frame = request.frame, time = now - request.time }
  local list = state.answered[request.key] or {}
  list[#list + 1] = frame
  state.answered[request.key] = list
end

-- Whether two TLPs can be of one transaction by their PTHs, where both have one.
local function pids_fit(request, completion)
  local asked, told = request.pth, completion.pth
  return not (asked and told) or asked.spid == told.dpid and asked.dpid == told.spid
end

-- The request that a completion on link `back` answers: the last one on the same link, or the only one there is.
local function find_request(waiting, completion, back)
  local only, count = nil, 0
  for i = #waiting, 1, -1 do
    if pids_fit(waiting[i], completion) then
      if waiting[i].link == back then
        return i
      end
      only, count = i, count + 1
    end
  end
  return count == 1 and only or nil
end

-- Notes a TLP. `there` and `back` name its link by interface and addresses, in its direction and in the other one.
function M:tlp(frame, now, facts, there, back)
  if not facts.requester or not facts.tag then
    return
  end
  local name = facts.requester .. "/" .. facts.tag
  local waiting = self.tlps[name] or {}
  self.tlps[name] = waiting
  if facts.wants_completion then
    for i = #waiting, 1, -1 do
      if waiting[i].link == there and (waiting[i].pth and waiting[i].pth.spid) == (facts.pth and facts.pth.spid) then
        table.remove(waiting, i) -- its tag is used again
      end
    end
    if #waiting == WAITING_MAX then
      table.remove(waiting, 1)
    end
    waiting[#waiting + 1] = {
      frame = frame, key = frame, time = now, link = there, pth = facts.pth,
      left_dw = facts.is_read and facts.length_dw or 0,
    }
  elseif facts.completion then
    local at = find_request(waiting, facts, back)
    if not at then
      return
    end
    local request = waiting[at]
    note(self, frame, frame, request, now)
    request.left_dw = request.left_dw - (facts.returned_dw or 0)
    if facts.is_last or facts.uio and (request.left_dw <= 0 or facts.status ~= "SC") then
      table.remove(waiting, at)
    end
  end
end

-- The request that an ACK answers, by its queue pair: the only one of that PSN, or the only one of its bank.
local function find_send(sends, ack)
  local only, count, in_bank, bank_count = nil, 0, nil, 0
  for qp in pairs(sends.by_qp) do
    only, count = qp, count + 1
    if qp % 4 == ack.qp % 4 then
      in_bank, bank_count = qp, bank_count + 1
    end
  end
  return count == 1 and only or bank_count == 1 and in_bank or nil
end

-- Notes a request or an ACK of RC Link between two stations. Of a request that was sent again the last frame counts.
function M:rc_link(frame, now, rh, src, dst)
  if rh.opcode == "send" then
    local name = table.concat({ src, dst, rh.psn }, "/")
    local sends = self.sends[name] or { by_qp = {}, count = 0 }
    self.sends[name] = sends
    sends.count = sends.count + (sends.by_qp[rh.qp] and 0 or 1)
    if sends.count > WAITING_MAX then
      sends.by_qp, sends.count = {}, 1
    end
    sends.by_qp[rh.qp] = { frame = frame, key = frame, time = now }
  elseif rh.opcode == "ack" and rh.is_positive then
    local sends = self.sends[table.concat({ dst, src, rh.psn }, "/")]
    local qp = sends and find_send(sends, rh)
    if qp then
      note(self, frame, frame, sends.by_qp[qp], now)
      sends.by_qp[qp], sends.count = nil, sends.count - 1
    end
  end
end

-- The name of a CCI message within its frame.
function M.cci_key(frame, facts)
  return table.concat({ "cci", frame, facts.category, facts.tag, facts.opcode }, "/")
end

-- Notes a CCI message that `from` sends to `to`: each an address and a port.
function M:cci(frame, now, facts, from, to)
  local key = M.cci_key(frame, facts)
  if facts.category == "request" then
    local name = table.concat({ from, to, facts.tag, facts.opcode }, "/")
    self.calls[name] = { frame = frame, key = key, time = now }
  elseif facts.category == "response" then
    local name = table.concat({ to, from, facts.tag, facts.opcode }, "/")
    if self.calls[name] then
      note(self, key, frame, self.calls[name], now)
      self.calls[name] = nil
    end
  end
end

return M
