--- Update algorithms of the load balancing thesis (MySQL, 2003, section 3.10): when news of the nodes' load takes
-- effect. Nodes are identified by their position, from 1. agent/core's vectors pin that it is the same in Rust.

local huge = math.huge

local M = {}
local Board = {}
Board.__index = Board

-- Minimum time between two updates of a scheduler by responses, in seconds, as each examines all nodes.
local BETWEEN_ACCESSES = 0.02

--- @param settings table update ("periodic": all nodes together, once a phase; "continuous": each once a phase, one
--   after the other; "on_access": with each response, and from the snapshot after a phase without one), phase (s; 0
--   to apply every snapshot)
function M.new(settings)
  return setmetatable({
    update = settings.update, phase = settings.phase, posted = {}, due_at = {}, due = -huge,
    accessed_at = -huge,
  }, Board)
end

-- Time of the next update: one phase after the last due one or, if that has passed, after `now`.
local function next_time(due, now, phase)
  local time = due + phase
  return time > now and time or now + phase
end

--- Processes a snapshot of all nodes, a list of { weight, jobs, load }. Returns whether `posted`, the news in effect,
-- has changed. Nodes that join or leave are posted at once.
function Board:heard(now, news)
  local phase, posted, due_at = self.phase, self.posted, self.due_at
  local all, changed = self.update == "periodic" and now >= self.due, false
  if all then
    self.due = next_time(self.due, now, phase)
  end
  for place, heard in ipairs(news) do
    local held = posted[place]
    if not held then
      -- Spread the first updates evenly over a phase.
      posted[place], due_at[place], changed = heard, now + phase * place / #news, true
    else
      local due = all
      if self.update ~= "periodic" then
        due = now >= due_at[place]
      end
      if due and self.update == "continuous" then
        due_at[place] = next_time(due_at[place], now, phase)
      end
      if due or (held.weight == 0) ~= (heard.weight == 0) then
        posted[place], changed = heard, true
      end
    end
  end
  return changed
end

--- Applies the jobs or load that a node's response stated; nil keeps the known value. Returns whether schedulers should
-- be updated.
function Board:accessed(now, place, jobs, load)
  local posted = self.posted[place]
  if self.update ~= "on_access" or not posted then
    return false
  end
  posted.jobs, posted.load = jobs or posted.jobs, load or posted.load
  self.due_at[place] = now + self.phase
  if now - self.accessed_at < BETWEEN_ACCESSES then
    return false
  end
  self.accessed_at = now
  return true
end

return M
