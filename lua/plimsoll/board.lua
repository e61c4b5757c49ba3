--- When what is known of the nodes' load comes to act: the update algorithms of the load balancing thesis (MySQL,
-- 2003, section 3.10). Nodes are named by their position, from 1. The same as agent/core's, as its vectors pin.

local huge = math.huge

local M = {}
local Board = {}
Board.__index = Board

-- Answers make a scheduler choose anew no more often than this, in seconds: it looks at all nodes then.
local BETWEEN_ACCESSES = 0.02

--- @param settings table update ("periodic": of all nodes together, once a phase; "continuous": of each once a phase,
--   one after the other; "on_access": with each answer, and as heard after a phase without one), phase (s; 0:
--   whenever it is heard)
function M.new(settings)
  return setmetatable({
    update = settings.update, phase = settings.phase, posted = {}, due_at = {}, due = -huge,
    accessed_at = -huge,
  }, Board)
end

-- The next time, in step with the one before where that can be.
local function next_time(due, now, phase)
  local time = due + phase
  return time > now and time or now + phase
end

--- What is known of all nodes: a list of { weight, jobs, load }. Returns whether schedulers are to be told, of
-- `posted`. That a node comes or goes is posted at once.
function Board:heard(now, news)
  local phase, posted, due_at = self.phase, self.posted, self.due_at
  local all, changed = self.update == "periodic" and now >= self.due, false
  if all then
    self.due = next_time(self.due, now, phase)
  end
  for place, heard in ipairs(news) do
    local held = posted[place]
    if not held then
      -- Spread evenly over the first phase.
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

--- A node's answer told of its load; what it did not tell, nil, stays. Returns whether schedulers are to be told.
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
