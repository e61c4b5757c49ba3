--- Coalesces pushed updates of temporal data: decides which are forwarded at once and which wait for their item's
-- period; of the waiting ones only the latest is kept. No I/O: time and the agents' periods are passed in.
--
-- Only items with lengthened periods are tracked; updates of all others pass. Updates of one item are forwarded one
-- at a time, so that a late one cannot overtake a newer one. Each waiting update is forwarded in the end, or a newer
-- one in its place.

local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min

local M = {}
local Coalescer = {}
Coalescer.__index = Coalescer

-- Interval at which due updates are looked for, in seconds.
M.TICK = 0.05
-- Maximum step of the clock, in seconds; larger jumps count as this.
local MAX_STEP = 1
-- Time after which lower numbers mean that the feed has restarted its numbering, in seconds: updates are never as late.
local MAX_LATE = 60
local FIRST_WAIT, MAX_WAIT = 0.1, 5

--- @param settings table max_items, max_bytes (of waiting updates), age_limit (s: older answers of agents expire)
-- @param agents integer number of agents
function M.new(settings, agents)
  return setmetatable({
    settings = settings, agents = agents, told = {}, periods = {},
    -- By item: last (when an update was forwarded), sequence, numbered_at (when that was set), busy (holder of the
    -- update in flight), number, held, due, wait.
    entries = {}, items = 0, held = 0, bytes = 0,
    time = 0, clock = nil, tick = 0, ticks = {}, number = 0,
    counts = { passed = 0, held = 0, replaced = 0, stale = 0, malformed = 0, refused = 0, flushed = 0, failed = 0 },
  }, Coalescer)
end

--- Sets the time, in seconds of any clock. To be called before any other method.
function Coalescer:at(clock)
  if self.clock then
    self.time = self.time + min(max(clock - self.clock, 0), MAX_STEP)
  end
  self.clock = clock
end

local function schedule(self, item, entry, due)
  entry.due = due
  local tick = max(ceil(due / M.TICK), self.tick + 1)
  local items = self.ticks[tick]
  if not items then
    items = {}
    self.ticks[tick] = items
  end
  items[#items + 1] = item
end

local function drop_held(self, entry)
  if entry.held then
    self.held, self.bytes = self.held - 1, self.bytes - #entry.held
    entry.held = nil
  end
end

local function due_of(self, item, entry)
  local period = self.periods[item]
  return max(period and entry.last and entry.last + period or self.time, entry.not_before or 0)
end

local function is_fresh(self)
  for agent = 1, self.agents do
    local told = self.told[agent]
    if not told or told.at < self.time - self.settings.age_limit then
      return false
    end
  end
  return true
end

-- Each item gets the shortest period that any agent requests. An agent that is silent, or does not name the item,
-- requests its usual period.
local function combine(self)
  local periods = {}
  if not is_fresh(self) then
    return periods
  end
  for item, period in pairs(self.told[1].periods) do
    for agent = 2, self.agents do
      local other = self.told[agent].periods[item]
      period = period and other and min(period, other)
    end
    periods[item] = period
  end
  return periods
end

-- Removes the entry of an item with its usual period and no waiting update or update in flight.
local function tidy(self, item, entry)
  if not (self.periods[item] or entry.held or entry.busy) then
    self.entries[item], self.items = nil, self.items - 1
  end
end

-- Marks an item as having no update in flight.
local function rest(self, item, entry)
  if entry.held then
    schedule(self, item, entry, due_of(self, item, entry))
  end
  tidy(self, item, entry)
end

local function set_periods(self, periods)
  self.periods = periods
  for item, entry in pairs(self.entries) do
    if entry.held then
      local due = due_of(self, item, entry)
      if due < entry.due then
        schedule(self, item, entry, due)
      end
    end
    tidy(self, item, entry)
  end
end

--- Processes an agent's answer. @param periods table item to seconds, or nil if unchanged
function Coalescer:on_periods(agent, periods)
  local told = self.told[agent]
  if not periods and not told then
    return
  end
  local was_old = not told or told.at < self.time - self.settings.age_limit
  self.told[agent] = { at = self.time, periods = periods or told.periods }
  if periods or was_old then
    set_periods(self, combine(self))
  end
end

--- Expires old answers of agents; to be called once a period.
function Coalescer:expire()
  if next(self.periods) and not is_fresh(self) then
    set_periods(self, {})
  end
end

--- Decides on an update that arrives.
-- @param sequence number that grows with each update of the item, or nil: it is the latest, and numbering restarts
-- @param holder any value that identifies the request
-- @return "pass": forward it and report with `ended`; "hold": keep it with `hold`; "stale": a newer one came before
function Coalescer:arrived(item, sequence, holder)
  local entry, period = self.entries[item], self.periods[item]
  if not entry then
    if not period or self.items >= self.settings.max_items then
      self.counts.passed = self.counts.passed + 1
      return "pass"
    end
    entry = {}
    self.entries[item], self.items = entry, self.items + 1
  end
  if sequence and entry.sequence and sequence <= entry.sequence and self.time - entry.numbered_at < MAX_LATE then
    self.counts.stale = self.counts.stale + 1
    return "stale"
  end
  if entry.busy or due_of(self, item, entry) > self.time then
    return "hold"
  end
  self.number = self.number + 1
  entry.busy, entry.number, entry.passing = holder, self.number, sequence
  self.counts.passed = self.counts.passed + 1
  return "pass"
end

--- Keeps an update until it is due, in place of the one kept before.
-- @param update string the complete update
-- @return seconds until it is due, or nil if there is no room; and whether it replaced another one
function Coalescer:hold(item, update, sequence)
  local entry = self.entries[item]
  local before = entry.held and #entry.held or 0
  if self.bytes + #update - before > self.settings.max_bytes then
    self.counts.refused = self.counts.refused + 1
    return nil
  end
  local replaced = entry.held ~= nil
  drop_held(self, entry)
  self.number = self.number + 1
  entry.held, entry.held_number = update, self.number
  entry.sequence, entry.numbered_at = sequence, self.time
  self.held, self.bytes = self.held + 1, self.bytes + #update
  local due = due_of(self, item, entry)
  schedule(self, item, entry, due)
  local what = replaced and "replaced" or "held"
  self.counts[what] = self.counts[what] + 1
  return max(due - self.time, 0), replaced
end

--- Ends an update that passed; `good`: whether the service accepted it. Unknown holders are ignored.
function Coalescer:ended(item, holder, good)
  local entry = self.entries[item]
  if not entry or entry.busy ~= holder then
    return
  end
  entry.busy = nil
  if good then
    entry.last, entry.not_before = self.time, nil
    local came_later = entry.held and entry.held_number > entry.number
    local is_late = entry.passing and entry.sequence and entry.sequence <= entry.passing
    if not came_later or is_late then
      entry.sequence, entry.numbered_at = entry.passing, self.time
      drop_held(self, entry)
    end
  end
  rest(self, item, entry)
end

--- Takes the due updates, a list of { item, update }; report each with `flushed`.
-- @param most integer maximum number
-- @param all boolean also those not yet due, as this process ends
function Coalescer:due(most, all)
  local found = {}
  local function take(item)
    local entry = self.entries[item]
    if entry and entry.held and not entry.busy and (all or entry.due <= self.time) then
      if #found == most then
        return false
      end
      entry.busy, entry.number = entry.held, entry.held_number
      found[#found + 1] = { item = item, update = entry.held }
    end
    return true
  end
  if all then
    for item in pairs(self.entries) do
      if not take(item) then
        break
      end
    end
    return found
  end
  local now = floor(self.time / M.TICK)
  while self.tick < now do
    local items = self.ticks[self.tick + 1]
    while items and #items > 0 do
      if not take(items[#items]) then
        return found
      end
      items[#items] = nil
    end
    self.ticks[self.tick + 1] = nil
    self.tick = self.tick + 1
  end
  return found
end

--- Ends an update from `due`. If the service did not accept it, it is retried later, or a newer one instead.
function Coalescer:flushed(item, update, good)
  local entry = self.entries[item]
  if not entry or entry.busy ~= update then
    return
  end
  entry.busy = nil
  local counts = self.counts
  if good then
    counts.flushed = counts.flushed + 1
    entry.last, entry.not_before, entry.wait = self.time, nil, nil
    if entry.held_number == entry.number then
      drop_held(self, entry)
    end
  else
    counts.failed = counts.failed + 1
    entry.wait = min(2 * (entry.wait or FIRST_WAIT / 2), MAX_WAIT)
    entry.not_before = self.time + entry.wait
  end
  rest(self, item, entry)
end

return M
