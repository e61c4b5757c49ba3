--- Plimsoll in HAProxy: Lua decides, the configuration acts.
--
-- `lua-load-per-thread` a file of one line, `require("plimsoll").start({ … })`. Every thread is a
-- dispatcher of its own, with its own share of each node's bound, as every proxy is; so threads share
-- no state. The request path reads local state only; tasks talk to Redis.

local cost_of = require("plimsoll.cost")
local deadline = require("plimsoll.deadline")
local dispatcher_of = require("plimsoll.dispatcher")
local follower_of = require("plimsoll.follower")
local limits = require("plimsoll.limits")
local metrics = require("plimsoll.metrics")
local placed = require("plimsoll.placement.metrics")
local placement = require("plimsoll.placement")
local servers_of = require("plimsoll.servers")
local settings_of = require("plimsoll.settings")
local tasks = require("plimsoll.tasks")
local words = require("plimsoll.words")

local running, now_of, wall_of, read_request = coroutine.running, core.now, os.time, words.request

local M = {}

local started = false

-- Interval in milliseconds at which requests that ended without a response are collected, and the part of the
-- heap in kB that is traversed each time.
local COLLECT_MS, COLLECT_KB = 50, 128
-- Interval in milliseconds at which a thread publishes its metrics.
local TELL_MS = 1000

local function now()
  local time = now_of()
  return time.sec + time.usec * 1e-6
end

-- The host's name and a hash of the configuration files on the command line, which distinguishes this HAProxy from
-- others on the host and is the same after a reload.
local function default_name()
  local file = io.open("/proc/sys/kernel/hostname")
  local host = file and file:read("l") or "proxy"
  if file then
    file:close()
  end
  local files = os.getenv("HAPROXY_CFGFILES") or ""
  if not files:find("^/") then
    files = (os.getenv("PWD") or "") .. "/" .. files
  end
  -- FNV-1a.
  local hash = 0x811c9dc5
  for i = 1, #files do
    hash = (hash ~ files:byte(i)) * 0x01000193 & 0xffffffff
  end
  return ("%s-%08x"):format(host:gsub("[^%w._-]", "-"):sub(1, 64), hash)
end

local function collect_forever(collectors)
  -- Ends of the last two known rounds of Lua's collector: objects found dead since then were alive in the round
  -- before, which was after the first of them.
  local alive_at, ended_at = 0, 0
  while true do
    local busy = false
    for _, collect in ipairs(collectors) do
      busy = collect(alive_at) or busy
    end
    if busy and collectgarbage("step", COLLECT_KB) then
      alive_at, ended_at = ended_at, now()
    end
    core.msleep(COLLECT_MS)
  end
end

-- Path beside metrics.lua. HAProxy 2.6 requires a file for each map.
local function map_path()
  return (package.searchpath("plimsoll.metrics", package.path):gsub("%.lua$", ".map"))
end

local function tell_forever(path, tellers)
  while true do
    for key, text in pairs(tellers) do
      core.set_map(path, key, text())
    end
    core.msleep(TELL_MS)
  end
end

-- Values that all threads have published under a key.
local function told(map, key, read)
  local threads = {}
  for thread = 1, core.get_info().Nbthread do
    local text = map:lookup(key:format(thread))
    threads[#threads + 1] = text and read(text)
  end
  return threads
end

-- Starts a policy that places each request, for one backend.
-- @param identity function returns the dispatcher's name and a text unique to each run; after init
-- @return table of functions, after init: names (of its servers), figures (of this thread), collect (requests in
--   flight)
local function start_policy(settings, identity)
  local default_cost = settings.cost.default
  local costs = cost_of.new(default_cost, settings.cost.routes, settings.cost.max)
  local answers, learn = words.answers(), costs.learn
  local dispatcher, admit, finish, follower, pulse, servers
  core.register_init(function()
    local problem
    servers, problem = servers_of.new(settings.backend)
    if not servers then
      error("plimsoll: " .. problem, 0)
    end
    dispatcher = assert(dispatcher_of.new(settings, servers.names, function()
      return math.random(0, 0xffffffff)
    end))
    admit, finish = dispatcher.admit, dispatcher.finish
    local name, instance = identity()
    follower = follower_of.new(settings, name, instance, {
      on_shares = function(...)
        local given_up = dispatcher.on_shares(...)
        -- One thread acts for the proxy.
        if core.thread == 1 then
          servers:reset_lost(dispatcher, function(node)
            local text = "plimsoll %s: agent of %s is gone; its server has its configured weight again"
            core.Warning(text:format(name, node))
          end)
        end
        return given_up
      end,
      on_ring = dispatcher.on_ring, end_period = dispatcher.end_period, report = dispatcher.report,
      lapse = dispatcher.lapse, on_time = dispatcher.on_time,
    }, now)
    pulse = follower.pulse
  end)

  local warned = false
  -- A stream has one coroutine for all of its calls, which is therefore the request's holder.
  core.register_converters("plimsoll_admit", function(text)
    local hash, cost, route, class = read_request(text)
    if hash == false and not warned then
      warned = true
      local said = "plimsoll %s: plimsoll_admit takes a hash (0 to 4294967295) or -, has %q"
      core.Warning(said:format((identity()), tostring(text)))
    end
    -- As is_late, without a call.
    local wall = wall_of()
    if wall > pulse.due or wall < pulse.second then
      follower:beat()
    end
    -- Most requests cost the default.
    cost = cost and costs:told(cost) or route and costs:expected(route) or default_cost
    local time = now_of()
    local server, reason = admit(time.sec + time.usec * 1e-6, hash, cost, running(), route, class)
    if server then
      return server
    elseif reason then
      return "!" .. reason
    end
  end)
  core.register_converters("plimsoll_finish", function(text)
    local found = answers[text] or answers:read(text)
    local time = now_of()
    local items, route = finish(
      running(), time.sec + time.usec * 1e-6, found.server, found.status, found.items, found.jobs, found.load
    )
    if items then
      learn(costs, route, items)
    end
  end)
  -- Status of HAProxy's own response: below 500 the client left or sent too slowly.
  core.register_converters("plimsoll_abandon", function(text)
    local status = tonumber(text) or 500
    dispatcher.abandon(running(), status >= 400 and status < 500 and now() or nil)
  end)

  follower_of.keep(function()
    return follower
  end)
  tasks.keep("servers", function()
    servers:watch(dispatcher, now)
  end)
  return {
    names = function()
      return servers.names
    end,
    figures = function()
      return dispatcher.figures(now())
    end,
    collect = function(alive_at)
      return dispatcher.collect(alive_at)
    end,
  }
end

--- Starts Plimsoll; raises an error for an invalid setting, which keeps HAProxy from starting.
-- For the policy of one backend it registers the converters `lua.plimsoll_admit`, `lua.plimsoll_finish` and
-- `lua.plimsoll_abandon`, but for `limits`; for placement in one, what `plimsoll.placement` has; for both, the service
-- `lua.plimsoll_metrics`.
function M.start(given)
  local settings, problem = settings_of.resolve(given)
  if not settings then
    error("plimsoll: " .. problem, 0)
  end
  if started then
    -- Both would register the same converters, and the first backend's requests would go to the second's servers.
    error("plimsoll: start: is called twice; one HAProxy process has one backend with it", 0)
  end
  started = true
  local thread = core.thread
  if thread == 0 then
    error("plimsoll: load it with lua-load-per-thread, not with lua-load", 0)
  end
  local path = map_path()
  local map = Map.new(path, Map._str)
  local name, instance
  local function identity()
    return name, instance
  end
  core.register_init(function()
    -- HAProxy 2.6 does not provide its files earlier.
    name = ("%s/%d"):format(settings.proxy or default_name(), thread)
    local time = now_of()
    math.randomseed(time.sec ~ (time.usec << 20) ~ (thread << 40))
    instance = ("%x.%x.%d"):format(time.sec, time.usec, thread)
  end)

  local collectors = {}
  local tellers = {
    [("tasks %d"):format(thread)] = function()
      return ("%d"):format(tasks.failures)
    end,
  }
  local shown = {
    function()
      return metrics.render_tasks(settings.cluster, told(map, "tasks %d", tonumber))
    end,
  }
  if settings.backend then
    local start = settings.policy == "limits" and limits.start or start_policy
    local policy = start(settings, identity, now)
    collectors[#collectors + 1] = policy.collect
    tellers[("%d"):format(thread)] = policy.figures and function()
      return metrics.text(policy.figures())
    end
    shown[#shown + 1] = function()
      local servers = policy.names()
      return metrics.render(settings.cluster, servers, told(map, "%d", function(text)
        return metrics.read(text, #servers)
      end))
    end
  end
  if settings.placement then
    local figures, collect = placement.start(settings, identity, now)
    collectors[#collectors + 1] = collect
    tellers[("placement %d"):format(thread)] = function()
      return placed.text(figures())
    end
    shown[#shown + 1] = function()
      return placed.render(settings.placement.cluster, told(map, "placement %d", placed.read))
    end
  end
  core.register_service("plimsoll_metrics", "http", function(applet)
    local texts = {}
    for i, text in ipairs(shown) do
      texts[i] = text()
    end
    metrics.answer(applet, table.concat(texts))
  end)
  deadline.start()
  if #collectors > 0 then
    tasks.keep("end of requests", function()
      collect_forever(collectors)
    end)
  end
  tasks.keep("figures", function()
    tell_forever(path, tellers)
  end)
end

return M
