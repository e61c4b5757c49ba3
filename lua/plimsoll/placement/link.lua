--- Tasks that talk to Redis about primaries: they send reports and demand, and receive the table of primaries and its
-- changes.

local contact = require("plimsoll.contact")
local redis_of = require("plimsoll.redis")

local M = {}

local PARTS = { "", ":table", ":log", ":dispatchers", ":busy", ":loads", ":gone" }
local LIBRARY_VERSION = 2
-- Intervals in ms at which an urgent report, and a stop of the process by HAProxy, are checked for.
local LOOK_MS, STOPPING_MS = 10, 100
-- Time in s for a process that HAProxy replaces to take another name: its successor then takes over the old one, whose
-- holder counts as dead.
local SUCCESSION = 0.2
-- Range of the wait while no table is in force, in s.
local MIN_WAIT, MAX_WAIT = 0.05, 5
local MAX_MS = 3600000

local Link = {}
Link.__index = Link

local function ms(value)
  return math.type(value) == "integer" and value >= 0 and value <= MAX_MS and value / 1000 or nil
end

--- @param settings table all settings
-- @param name string of the dispatcher; `instance` distinguishes this run from all others
-- @param follower table of agent/core's placement
-- @param loads table
-- @param is_idle function whether no request is in flight or in doubt
-- @param now function seconds of HAProxy's clock
-- @param wall function seconds of a clock that also runs while the process is stopped
function M.new(settings, name, instance, follower, loads, is_idle, now, wall)
  local prefix = ("plimsoll:{%s}:placement"):format(settings.placement.cluster)
  local keys = {}
  for i, part in ipairs(PARTS) do
    keys[i] = prefix .. part
  end
  return setmetatable({
    settings = settings, name = name, own_name = name .. "/" .. instance, instance = instance,
    follower = follower, loads = loads, now = now, wall = wall,
    is_idle = is_idle, keys = keys, joins = 0,
    calls = redis_of.new(settings.redis, core.tcp, "primaries"),
    changes = redis_of.new(settings.redis, core.tcp, "changes of primaries"),
  }, Link)
end

function Link:call(part, ...)
  local k = self.keys
  return self.calls:call("FCALL", "plimsoll_placement_" .. part, 7, k[1], k[2], k[3], k[4], k[5], k[6], k[7], ...)
end

-- Sleeps for `seconds`, or until an urgent report is due.
function Link:rest(seconds)
  local till = self.now() + seconds
  repeat
    core.msleep(LOOK_MS)
  until self.now() >= till or self.follower.due or self.is_over or self.stopping ~= self.leaving
end

-- Continues under another name with the requests in flight, as HAProxy stops this process.
function Link:rename()
  self.leaving = true
  self.name = self.own_name
  self.was, self.id = self.id, nil
  self.follower.suspend()
end

-- Reports that an id is no longer used. `idle` is also true if its requests in flight continue under another id.
function Link:leave(id, idle)
  local answer, problem = self:call("leave", id, idle and "1" or "0")
  return answer ~= nil or nil, problem
end

-- Gives up the former name when no set in handover has requests from before; later handovers are reported under the new
-- name.
function Link:leave_former()
  local _, busy = self.follower.report(self.now())
  if not busy or #busy > 0 then
    return true
  end
  local good, problem = self:leave(self.was, true)
  self.was = good and nil or self.was
  return good, problem
end

function Link:join()
  self.follower.due = false
  self.joins = self.joins + 1
  local id = ("%s#%s.%d"):format(self.name, self.instance, self.joins)
  local sent, sent_wall = self.now(), self.wall()
  local answer, problem = self:call("join", id)
  if not answer then
    return nil, problem
  end
  if type(answer) == "table" and answer[1] == "wait" and ms(answer[2]) then
    contact.trouble(self.name, self.calls, "no table of primaries is in force yet")
    self:rest(math.max(MIN_WAIT, math.min(ms(answer[2]), MAX_WAIT)))
    return true
  end
  local terms = type(answer) == "table" and answer[1] == "open" and {
    lease = ms(answer[4]), request_limit = ms(answer[5]), hold = answer[6] == "hold",
  }
  if not terms or not terms.lease or not terms.request_limit then
    return nil, "an answer to a join that cannot be read"
  end
  self.loads.clear()
  local good
  good, problem = self.follower.joined(answer[2], answer[3], answer, 7, terms)
  if good then
    self.id = id
    self.follower.heard(sent, sent_wall)
    contact.trouble(self.name, self.calls, nil)
  end
  return good, problem
end

function Link:take(answer)
  if type(answer) ~= "table" or (answer[1] ~= "ok" and answer[1] ~= "table") then
    return nil, "an answer to a report that cannot be read"
  end
  if answer[1] == "table" then
    if answer[2] ~= self.follower.generation() then
      return nil, "UNKNOWN: a table of another generation"
    end
    return self.follower.on_table(answer[3], answer, 4)
  end
  for i = 3, #answer do
    if type(answer[i]) ~= "string" then
      return nil, "a change that cannot be read"
    end
    local gap = self.follower.on_delta(answer[i])
    if gap == "wrong" then
      return nil, "a change that cannot be read"
    elseif gap == "missed" then
      break
    end
  end
  return true
end

-- If two with one name rejoined, each would declare the other dead.
function Link:look_for_namesake()
  local ids, problem = self.calls:call("HKEYS", self.keys[4])
  if type(ids) ~= "table" then
    return nil, problem or "dispatchers that cannot be read"
  end
  for _, id in ipairs(ids) do
    local name, instance = tostring(id):match("^([^#]*)#(.*)%.%d+$")
    if name == self.name and name ~= self.own_name and instance ~= self.instance then
      contact.tell_namesake(self.name, self.own_name)
      self.name = self.own_name
    end
  end
  return true
end

function Link:report()
  local sent, sent_wall = self.now(), self.wall()
  local version, busy = self.follower.report(sent)
  if not version then
    -- Its reports were missing for too long.
    self.id = nil
    return true
  end
  local sets = #busy > 0 and table.concat(busy, " ") or "-"
  local answer, problem = self:call("report", self.id, self.follower.generation(), version, sets, self.loads.take())
  local good = answer ~= nil
  if good then
    self.follower.heard(sent, sent_wall)
    good, problem = self:take(answer)
  end
  if good then
    contact.trouble(self.name, self.calls, nil)
  elseif problem:find("UNKNOWN", 1, true) then
    self.follower.suspend()
    contact.trouble(self.name, self.calls, problem)
    good, problem = self:look_for_namesake()
    self.id = nil
  end
  return good, problem
end

-- Leaves, as the last client of a process that HAProxy stops has gone.
function Link:quit()
  for _, id in ipairs({ self.id or false, self.was or false }) do
    if id then
      self:leave(id, self.is_idle())
    end
  end
  self.ended = true
  return true
end

function Link:step()
  if not self.checked then
    -- With a key, so that a member of a Redis Cluster redirects to its owner.
    local version, problem = self.calls:call("FCALL_RO", "plimsoll_placement_version", 1, self.keys[1])
    if not version then
      return nil, problem
    elseif version ~= LIBRARY_VERSION then
      return nil, ("Redis has version %s of the placement library, this is for version %d"):format(
        version, LIBRARY_VERSION
      )
    end
    self.checked = true
  end
  if self.is_over then
    return self:quit()
  elseif self.stopping and not self.leaving then
    self:rename()
  end
  if not self.id then
    local good, problem = self:join()
    if not good or not self.id then
      return good, problem
    end
  end
  local good, problem = self:report()
  if good and self.was and self.id then
    good, problem = self:leave_former()
  end
  if good and self.id then
    -- Jittered, so that dispatchers do not act in step.
    self:rest(self.settings.period * (0.9 + 0.2 * math.random()))
  end
  return good, problem
end

--- Joins, and reports once a period and when a report is urgent; a task.
function Link:report_forever()
  core.msleep(math.floor(1000 * SUCCESSION))
  contact.keep_trying(self, self.calls, 2 * self.settings.period + self.settings.redis.timeout + MAX_WAIT, function()
    local good, problem = self:step()
    self.checked = good and self.checked
    return good, problem
  end)
  self.changes:close()
end

-- A change that does not apply is left to the report, which follows at once.
function Link:on_change(text)
  local generation, change = text:match("^(%S+) (.+)$")
  local gap = "missed"
  if self.id and generation == self.follower.generation() then
    gap = self.follower.on_delta(change)
  end
  if gap and gap ~= "late" then
    self.follower.due = true
  end
end

--- Follows the changes of the table; a task.
function Link:follow_forever()
  contact.follow_forever(self, self.changes, self.keys[1], function(text)
    if type(text) == "string" then
      self:on_change(text)
    end
  end)
end

--- Watches for HAProxy stopping this process, which waits for the sockets of its tasks; a task.
function Link:watch_forever()
  local till_ping = 0
  while not self.ended do
    core.msleep(STOPPING_MS)
    local info = core.get_info()
    self.stopping = info.Stopping == 1 or nil
    self.is_over = self.stopping and info.CurrConns == 0
    if self.is_over and not self.calls.socket then
      self.ended = true
    end
    till_ping = till_ping - STOPPING_MS / 1000
    if till_ping <= 0 then
      contact.ping(self.changes)
      till_ping = contact.PING
    end
  end
end

return M
