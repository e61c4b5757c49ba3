--- Reads answers of any length from a HAProxy socket.
--
-- Once an answer has filled HAProxy's buffer (`tune.bufsize`), 2.6 and 3.0 continue to read only when the socket's
-- timeout wakes them, so it is short between the parts of a long answer. It is lowered just after data arrived:
-- 3.0.11 aborts if it is lowered below the time that the socket has been idle.

local deadline = require("plimsoll.deadline")

local min = math.min

local M = {}
local Reader = {}
Reader.__index = Reader

-- Size of a part in bytes; a quarter of HAProxy's default buffer.
local PART = 4096
-- Timeout between two parts, in s: longer than the gap between packets of an answer.
local GAP = 0.2

--- @param timeout number seconds, of the socket between answers
function M.new(socket, timeout)
  return setmetatable({ socket = socket, timeout = timeout, taken = 0, is_short = false }, Reader)
end

local function take(self, what)
  local text, problem = self.socket:receive(what)
  if not text then
    return nil, problem or "closed"
  end
  self.taken = self.taken + #text
  if self.taken >= PART then
    self.taken = 0
    deadline.extend(self.socket)
    if not self.is_short then
      self.is_short = true
      self.socket:settimeout(min(GAP, self.timeout))
    end
  end
  return text
end

--- Reads a line ("*l"), or a number of bytes; or nil and the error.
function Reader:receive(what)
  if what == "*l" then
    return take(self, what)
  end
  local parts = {}
  while what > 0 do
    local wanted = min(what, PART)
    local part, problem = take(self, wanted)
    if not part or #part ~= wanted then
      return nil, problem or "closed"
    end
    parts[#parts + 1], what = part, what - wanted
  end
  return table.concat(parts)
end

--- Restores the timeout after a complete answer.
function Reader:finish()
  if self.is_short then
    self.socket:settimeout(self.timeout)
  end
end

return M
