--- Plimsoll in HAProxy: Lua decides and sets variables, the configuration acts on them.
--
-- `lua-load-per-thread` a file of one line, `require("plimsoll").start({ … })`. Every thread is a
-- dispatcher of its own, with its own share of each node's bound, as every proxy is; so threads share
-- no state. The request path reads local state only; tasks talk to Redis.

local cost_of = require("plimsoll.cost")
local dispatcher_of = require("plimsoll.dispatcher")
local redis_of = require("plimsoll.redis")
local ring_of = require("plimsoll.ring")
local settings_of = require("plimsoll.settings")

local M = {}

local FUNCTIONS = { "nodes", "ring", "proxies", "shares", "observations" }
local LIBRARY_VERSION = 1
local FIRST_WAIT, LONGEST_WAIT = 0.1, 5
-- The subscription says something this often, so that a silent connection is a dead one.
local PING = 5
-- Leftovers of requests that ended without an answer are collected this often.
local COLLECT = 0.1

local function now()
  local time = core.now()
  return time.sec + time.usec / 1e6
end

local function host_name()
  local file = io.open("/proc/sys/kernel/hostname")
  local name = file and file:read("l") or "proxy"
  if file then
    file:close()
  end
  return (name:gsub("[^%w._-]", "-"))
end

local Runtime = {}
Runtime.__index = Runtime

function Runtime:keys()
  local keys = {}
  for i, part in ipairs(FUNCTIONS) do
    keys[i] = ("plimsoll:{%s}:%s"):format(self.settings.cluster, part)
  end
  return table.unpack(keys)
end

-- Tells each trouble once, and its end.
function Runtime:trouble(problem)
  if problem ~= self.said then
    self.said = problem
    if problem then
      core.Warning(("plimsoll %s: %s"):format(self.name, problem))
    else
      core.Info(("plimsoll %s: in touch with Redis at %s"):format(self.name, self.calls.address or "?"))
    end
  end
end

function Runtime:take_ring(ring)
  if not self.ring or ring.version ~= self.ring.version then
    self.ring = ring
    self.dispatcher:on_ring(ring)
  end
end

function Runtime:fetch_ring()
  local k1, k2, k3, k4, k5 = self:keys()
  local answer, problem = self.calls:call("FCALL_RO", "plimsoll_ring", 5, k1, k2, k3, k4, k5)
  if not answer then
    return nil, problem
  end
  if #answer == 0 then
    return true
  end
  if #answer ~= 4 or type(answer[3]) ~= "string" or type(answer[4]) ~= "string" then
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
  self:take_ring(ring)
  return true
end

local function bounded(text, high)
  local value = tonumber(text)
  -- NaN differs from itself.
  if value and value == value and value >= 0 and value <= high then
    return value + 0.0
  end
end

-- One period: observations go out, shares and the ring's version come in.
function Runtime:period()
  local k1, k2, k3, k4, k5 = self:keys()
  local lease = math.floor(self.settings.lease * 1000)
  local flat = self.dispatcher:report()
  local answer, problem = self.calls:call(
    "FCALL", "plimsoll_observe", 5, k1, k2, k3, k4, k5, self.name, self.instance, lease, table.unpack(flat)
  )
  if not answer then
    return nil, problem
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
  self.dispatcher:on_shares(now(), dispatchers, shares)
  self:reset_lost()
  if version > 0 and (not self.ring or version ~= self.ring.version) then
    return self:fetch_ring()
  end
  return true
end

-- HAProxy keeps a dead agent's last word for ever: its server goes back to the configured weight.
function Runtime:reset_lost()
  if core.thread > 1 then
    return
  end
  for name, server in pairs(core.backends[self.settings.backend].servers) do
    local known = self.dispatcher:knows(name)
    if self.had[name] and not known then
      server:set_weight("100%")
      local text = "plimsoll %s: agent of %s is gone; its server has its configured weight again"
      core.Warning(text:format(self.name, name))
    end
    self.had[name] = known
  end
end

-- Runs `step` until it fails, then connects anew after a wait that grows and is jittered.
local function keep_trying(self, connection, idle, step)
  local wait = FIRST_WAIT
  while true do
    local good, problem = connection:connect(idle)
    while good do
      good, problem = step()
      if good then
        wait = FIRST_WAIT
      end
      good = good and connection.socket ~= nil
    end
    self:trouble(problem or "connection lost")
    core.msleep(math.floor(1000 * wait * (0.5 + math.random())))
    wait = math.min(2 * wait, LONGEST_WAIT)
  end
end

function Runtime:report_for_ever()
  local checked
  keep_trying(self, self.calls, self.settings.redis.timeout, function()
    if not checked then
      local version, problem = self.calls:call("FCALL_RO", "plimsoll_version", 0)
      if not version then
        return nil, problem
      elseif version ~= LIBRARY_VERSION then
        self.calls:close()
        return nil, ("Redis has version %s of the library, this is for version %d"):format(version, LIBRARY_VERSION)
      end
      checked = true
    end
    local good, problem = self:period()
    if not good then
      checked = false
      return nil, problem
    end
    self:trouble(nil)
    -- Jittered, so that dispatchers do not act in step.
    core.msleep(math.floor(1000 * self.settings.period * (0.9 + 0.2 * math.random())))
    return true
  end)
end

function Runtime:follow_for_ever()
  local _, channel = self:keys()
  local subscribed = false
  keep_trying(self, self.follower, PING * 2, function()
    if not subscribed or not self.follower.socket then
      subscribed = self.follower:send("SUBSCRIBE", channel) ~= nil
      if not subscribed then
        return nil, "closed"
      end
    end
    local message, problem = self.follower:receive()
    if not message then
      subscribed = false
      return nil, problem
    end
    if type(message) == "table" and message[1] == "message" then
      self:on_change(message[3])
    end
    return true
  end)
end

-- A change that does not fit is left to the next period, which sees the version and reads the table.
function Runtime:on_change(text)
  local change = type(text) == "string" and ring_of.parse_change(text)
  if change and change.runs and self.ring then
    local ring = ring_of.apply(self.ring, change.from, change.to, change.names, change.runs)
    if ring then
      self:take_ring(ring)
    end
  end
end

local function admit(self, txn)
  local packed = txn:get_var("txn.plimsoll_hash")
  local hash = type(packed) == "string" and #packed == 4 and string.unpack(">I4", packed) or nil
  local route = txn:get_var("txn.plimsoll_route")
  local cost = tonumber(txn:get_var("txn.plimsoll_cost")) or self.costs:expected(route)
  local fetches = txn.f
  local entry, reason = self.dispatcher:admit(now(), hash, cost, function(name)
    -- 0 and 1, and the weight so that a server in drain is left alone. The name is bare: HAProxy writes
    -- into a string with a slash.
    return fetches:srv_is_up(name) == 1 and fetches:srv_weight(name) > 0
  end)
  if entry then
    entry.route = route
    txn:set_priv(setmetatable(entry, self.entries))
    txn:set_var("txn.plimsoll_server", entry.node.name)
  elseif reason then
    txn:set_var("txn.plimsoll_refused", reason)
  end
end

local function finish(self, txn)
  local entry = txn:get_priv()
  if not entry then
    return
  end
  local fetches = txn.f
  local status = tonumber(fetches:status()) or 0
  local items = tonumber(fetches:res_hdr("x-items") or nil)
  self.dispatcher:finish(entry, now(), fetches:srv_name(), status >= 500, items)
  if items and status < 500 then
    self.costs:learn(entry.route, items)
  end
end

--- Starts Plimsoll for one backend; raises where a setting is wrong, which keeps HAProxy from starting.
-- Registers the actions `lua.plimsoll_admit` (http-req) and `lua.plimsoll_finish` (http-res).
function M.start(given)
  local settings, problem = settings_of.resolve(given)
  if not settings then
    error("plimsoll: " .. problem, 0)
  end
  local thread = core.thread
  if thread == 0 then
    error("plimsoll: load it with lua-load-per-thread, not with lua-load", 0)
  end
  local self = setmetatable({
    settings = settings,
    name = ("%s/%d"):format(settings.proxy or host_name(), thread),
    costs = cost_of.new(settings.cost.default, settings.cost.routes),
    calls = redis_of.new(settings.redis, core.tcp),
    follower = redis_of.new(settings.redis, core.tcp),
    had = {},
  }, Runtime)
  local function random()
    return math.random(0, 0xffffffff)
  end
  core.register_init(function()
    local backend = core.backends[settings.backend]
    if not backend then
      error("plimsoll: backend: there is no backend " .. settings.backend, 0)
    end
    local servers = {}
    for name in pairs(backend.servers) do
      servers[#servers + 1] = name
    end
    table.sort(servers)
    local time = core.now()
    math.randomseed(time.sec ~ (time.usec << 20) ~ (thread << 40))
    self.instance = ("%x.%x.%d"):format(time.sec, time.usec, thread)
    self.dispatcher = assert(dispatcher_of.new(settings, servers, random))
    self.entries = {
      -- HAProxy lets go of it when the stream ends, however it ends.
      __gc = function(entry)
        self.dispatcher:abandon(entry)
      end,
    }
  end)
  core.register_action("plimsoll_admit", { "http-req" }, function(txn)
    admit(self, txn)
  end, 0)
  core.register_action("plimsoll_finish", { "http-res" }, function(txn)
    finish(self, txn)
  end, 0)
  core.register_task(function()
    self:report_for_ever()
  end)
  core.register_task(function()
    self:follow_for_ever()
  end)
  core.register_task(function()
    while true do
      collectgarbage("step", 0)
      core.msleep(math.floor(1000 * COLLECT))
    end
  end)
end

return M
