--- Tasks that talk to Redis: they send observations, and receive shares and the ring.

local contact = require("plimsoll.contact")
local pulse_of = require("plimsoll.pulse")
local redis_of = require("plimsoll.redis")
local ring_of = require("plimsoll.ring")
local tasks = require("plimsoll.tasks")

local wall = os.time

local M = {}

local FUNCTIONS = { "nodes", "ring", "proxies", "shares", "observations" }
local LIBRARY_VERSION = 8
-- Seconds until the next exchange of a new dispatcher, which has only a part of the free share, and of one that gives
-- up much, for which others wait.
local EARLY_WAIT = 0.1
-- Periods between two checks for a dispatcher with the same name, and the number of findings after which this one takes
-- another name. A process that is being replaced finds one once.
local LOOK_PERIODS, MAX_FOUND = 3, 2
-- Intervals in ms at which stops of the process, and lapsed shares are checked for.
local BEAT_MS, LAPSE_MS = 100, 20

local Follower = {}
Follower.__index = Follower

function Follower:keys()
  local keys = {}
  for i, part in ipairs(FUNCTIONS) do
    keys[i] = ("plimsoll:{%s}:%s"):format(self.settings.cluster, part)
  end
  return table.unpack(keys)
end

function Follower:take_ring(ring)
  if not self.ring or ring.version ~= self.ring.version then
    self.ring = ring
    self.dispatcher.on_ring(ring)
  end
end

function Follower:fetch_ring()
  local k1, k2, k3, k4, k5 = self:keys()
  local before = self.ring
  local answer, problem = self.calls:call("FCALL_RO", "plimsoll_ring", 5, k1, k2, k3, k4, k5)
  if not answer then
    return nil, problem
  end
  if type(answer) ~= "table" then
    return nil, "a ring that cannot be read"
  elseif #answer == 0 then
    return true
  elseif #answer ~= 4 or type(answer[3]) ~= "string" or type(answer[4]) ~= "string" then
    return nil, "a ring that cannot be read"
  end
  local names = {}
  for name in (answer[3] .. "\n"):gmatch("([^\n]*)\n") do
    names[#names + 1] = name
  end
  local ring
  ring, problem = ring_of.new(answer[1], names, answer[4])
  if not ring then
    return nil, problem
  end
  -- A change received meanwhile may be newer; if not, the next period detects it.
  if self.ring == before then
    self:take_ring(ring)
  end
  return true
end

--- Takes the room away that others may have been granted while the process was stopped.
function Follower:beat()
  local now = self.now()
  local since = self.pulse:beat(now, wall())
  if since then
    self.dispatcher.lapse(since, now)
  end
end

--- Looks for a stop of the process; a task.
function Follower:beat_forever()
  while not self.ended do
    self:beat()
    self.dispatcher.on_time(self.now())
    core.msleep(BEAT_MS)
  end
end

-- Sleeps for `seconds`, or until the shares have lapsed.
function Follower:rest(seconds)
  local till = self.now() + seconds
  repeat
    core.msleep(math.max(1, math.min(LAPSE_MS, math.floor(1000 * (till - self.now())))))
  until self.now() >= till or self.pulse.has_lapsed
end

local function bounded(text, high)
  local value = tonumber(text)
  -- NaN differs from itself.
  if value and value == value and value >= 0 and value <= high then
    return value + 0.0
  end
end

-- Whether HAProxy is stopping this process. HAProxy then waits for all sockets, including those of tasks, which end
-- with the period that finds no client left.
function Follower:is_stopping()
  local info = core.get_info()
  self.ended = info.Stopping == 1 and info.CurrConns == 0
  return info.Stopping == 1
end

-- Sends observations, and receives shares and the ring's version. Returns true and whether much of the shares is given
-- up, or nil and the error.
function Follower:exchange()
  local k1, k2, k3, k4, k5 = self:keys()
  -- After a reload the old process may continue for long. Under one name it and the new one would replace each other in
  -- turn: neither would keep its shares, and agents would read counters that jump.
  if self:is_stopping() then
    self.name = self.own_name
  end
  local lease = math.floor(self.settings.lease * 1000)
  local asked_at, lapses = wall(), self.pulse.lapses
  local flat = self.dispatcher.report()
  local answer, problem = self.calls:call(
    "FCALL", "plimsoll_observe", 5, k1, k2, k3, k4, k5, self.name, self.instance, lease, table.unpack(flat)
  )
  if not answer then
    return nil, problem
  end
  if type(answer) ~= "table" then
    return nil, "shares that cannot be read"
  end
  local version, dispatchers = answer[1], answer[2]
  if math.type(version) ~= "integer" or math.type(dispatchers) ~= "integer" or (#answer - 2) % 6 ~= 0 then
    return nil, "shares that cannot be read"
  end
  local shares = {}
  for i = 3, #answer, 6 do
    local share = {
      granted = bounded(answer[i + 1], 1e15), bound_jobs = bounded(answer[i + 2], 1e15),
      mean_cost = bounded(answer[i + 3], 1e15), jobs = bounded(answer[i + 4], 1e15),
      load = bounded(answer[i + 5], 1e15),
    }
    if share.granted and share.bound_jobs and share.mean_cost and share.jobs and share.load then
      shares[answer[i]] = share
    end
  end
  self:beat()
  if self.pulse.lapses > lapses then
    -- Granted before the process was stopped.
    return true
  end
  local given_up = self.dispatcher.on_shares(self.now(), dispatchers, shares)
  self.pulse:granted(asked_at)
  if version > 0 and (not self.ring or version ~= self.ring.version) then
    local good, trouble = self:fetch_ring()
    if not good then
      return nil, trouble
    end
  end
  return true, given_up
end

-- Two with one name would replace each other in turn forever, so this one continues under a name of its own.
-- @return true, or nil and the error if Redis does not respond
function Follower:look_for_namesake()
  self.periods = self.periods + 1
  if self.name == self.own_name or self.periods % LOOK_PERIODS ~= 0 then
    return true
  end
  local _, _, proxies = self:keys()
  local record, problem = self.calls:call("HGET", proxies, self.name)
  if record == nil then
    return nil, problem
  end
  local instance = type(record) == "string" and record:match("^%d+ %d+ %d+ (%S+)$")
  self.found = instance and instance ~= self.instance and self.found + 1 or 0
  if self.found == MAX_FOUND then
    contact.tell_namesake(self.name, self.own_name)
    self.name = self.own_name
  end
  return true
end

--- Exchanges observations for shares once a period; a task.
function Follower:report_forever()
  local checked
  local is_new, early = true, false
  -- The connection is idle between two periods.
  contact.keep_trying(self, self.calls, 2 * self.settings.period + self.settings.redis.timeout, function()
    if not checked then
      -- With a key, so that a member of a Redis Cluster redirects to its owner.
      local version, problem = self.calls:call("FCALL_RO", "plimsoll_version", 1, (self:keys()))
      if not version then
        return nil, problem
      elseif version ~= LIBRARY_VERSION then
        return nil, ("Redis has version %s of the library, this is for version %d"):format(version, LIBRARY_VERSION)
      end
      checked = true
    end
    local good, more = true, nil
    if not early then
      self.dispatcher.end_period()
      good, more = self:look_for_namesake()
    end
    if good then
      good, more = self:exchange()
    end
    if not good then
      checked = false
      return nil, more
    end
    contact.trouble(self.name, self.calls, nil)
    -- At most once a period.
    early = (is_new or more) and not early
    is_new = false
    if not self.ended then
      local wait = self.settings.period
      if early then
        wait = math.min(wait, EARLY_WAIT)
      end
      -- Jittered, so that dispatchers do not act in step.
      self:rest(wait * (0.9 + 0.2 * math.random()))
    end
    return true
  end)
  self.changes:close()
end

--- Follows the changes of the ring; a task.
function Follower:follow_forever()
  local _, channel = self:keys()
  contact.follow_forever(self, self.changes, channel, function(text)
    self:on_change(text)
  end)
end

--- Sends PINGs on the subscription; a task.
function Follower:ping_forever()
  while not self.ended do
    core.msleep(1000 * contact.PING)
    if not self.calls.socket then
      -- Without Redis, no period would detect it.
      self:is_stopping()
    end
    contact.ping(self.changes)
  end
end

-- A change that does not apply is left to the next period, which compares the version and reads the table.
function Follower:on_change(text)
  local change = type(text) == "string" and ring_of.parse_change(text)
  if change and change.runs and self.ring then
    local ring = ring_of.apply(self.ring, change.from, change.to, change.names, change.runs)
    if ring then
      self:take_ring(ring)
    end
  end
end

--- @param settings table all settings
-- @param name string of the dispatcher; `instance` distinguishes this run from others
-- @param dispatcher table on_shares, on_ring, end_period, report, lapse and on_time of `plimsoll.dispatcher`
function M.new(settings, name, instance, dispatcher, now)
  return setmetatable({
    settings = settings, name = name, own_name = name .. "/" .. instance, instance = instance,
    dispatcher = dispatcher, now = now,
    pulse = pulse_of.new(settings.lease), periods = 0, found = 0,
    calls = redis_of.new(settings.redis, core.tcp, "shares"),
    changes = redis_of.new(settings.redis, core.tcp, "changes"),
  }, Follower)
end

--- Starts the tasks of a follower; to be called while HAProxy loads this.
-- @param follower function returns the follower, once there is one
function M.keep(follower)
  tasks.keep("shares", function()
    follower():report_forever()
  end)
  tasks.keep("changes", function()
    follower():follow_forever()
  end)
  tasks.keep("pulse", function()
    follower():beat_forever()
  end)
  tasks.keep("signs of life", function()
    follower():ping_forever()
  end)
end

return M
