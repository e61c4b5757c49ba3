--- Notices that the process was stopped (SIGSTOP, a frozen container) for so long that its shares may have lapsed: the
-- port of agent/core's `dispatch::Pulse`. No I/O, no HAProxy: time is passed in.
--
-- HAProxy's clock stands still while the process is stopped, up to 3.0. The machine's does not, but Lua knows it in
-- whole seconds only, and it may be set. So both are followed: HAProxy's gives the fraction. A stop of less than 1.5 s
-- may pass unnoticed. A machine's clock that is set looks like a stop, and costs one exchange with Redis.

local huge = math.huge

local M = {}
local Pulse = {}
Pulse.__index = Pulse

-- Silence in s after which the process was stopped. Several times the interval between beats: a busy thread delays
-- them.
local MAX_SILENCE = 0.5

--- @param lease number s
function M.new(lease)
  return setmetatable({
    lease = lease,
    -- A later second of the machine's clock shows that the process was stopped.
    due = huge,
    -- Second of the machine's clock at the last beat, what that clock is ahead of HAProxy's (s), and when the last beat
    -- was by HAProxy's.
    second = -1, ahead = 0, beat_at = 0,
    -- Second in which it asked for the shares that it has.
    asked_at = huge,
    -- Number of lapses, and whether it has asked since the last one.
    lapses = 0, has_lapsed = false,
  }, Pulse)
end

--- Whether the process has been silent for longer than between two beats, or the machine's clock was set: a request is
-- to call `beat` then.
function Pulse:is_late(wall)
  return wall > self.due or wall < self.second
end

--- Records that the process runs; to be called several times a second, and before shares are taken.
-- @param now number s of HAProxy's clock
-- @param wall integer s of the machine's
-- @return if the process was stopped and a lease may have passed since it asked for its shares, when it had run last
function Pulse:beat(now, wall)
  local before, is_late = self.beat_at, self:is_late(wall)
  -- Of a clock that was set back nobody knows how long the process was stopped.
  local most = wall < self.second and huge or wall + 1 - self.asked_at
  if self.second < 0 and now // 1 == wall then
    -- HAProxy's clock begins with the machine's.
    self.second, self.ahead = wall, 0
  elseif wall ~= self.second then
    -- While the process runs, a beat sees each second begin; otherwise this is too low, until the next one does.
    self.second, self.ahead = wall, wall - now
  end
  self.beat_at, self.due = now, now + self.ahead + MAX_SILENCE
  if is_late and self.asked_at < huge and most > self.lease then
    self.lapses, self.has_lapsed = self.lapses + 1, true
    return before
  end
end

--- Records that shares were granted, which were asked for in this second of the machine's clock.
function Pulse:granted(asked_at)
  self.asked_at, self.has_lapsed = asked_at, false
end

return M
