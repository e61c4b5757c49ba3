--- Pushed updates of temporal data in HAProxy: updates that arrive before their item's period is over wait here, the
-- latest in place of earlier ones.
--
-- `lua-load-per-thread` a file of one line, `require("plimsoll.updates").start({ … })`, and bind the feed's frontend to
-- thread 1, which has the state of all items. HAProxy 2.6 cannot mix this with `lua-load`.

local address_of = require("plimsoll.address")
local coalescer_of = require("plimsoll.coalescer")
local deadline = require("plimsoll.deadline")
local http = require("plimsoll.http")
local metrics = require("plimsoll.metrics")
local settings_of = require("plimsoll.settings")
local tasks = require("plimsoll.tasks")

local running, now_of = coroutine.running, core.now

local M = {}

local started = false

-- Concurrent forwarded requests.
local SENDERS = 8
-- Maximum bytes of an agent's answer: room for 100,000 items.
local MAX_ANSWER = 16 * 2 ^ 20
-- Maximum integer that double precision represents exactly.
local MAX_SEQUENCE = 2 ^ 53 - 1
-- Interval in milliseconds at which requests that ended without a response are collected, and the part of the heap in
-- kB that is traversed each time.
local COLLECT_MS, COLLECT_KB = 50, 128
-- Headers that belong to one connection, or to the transfer of the body.
local OWN_HEADERS = {
  connection = true, ["content-length"] = true, expect = true, ["keep-alive"] = true, te = true, trailer = true,
  ["transfer-encoding"] = true, upgrade = true,
}
-- Time for which an unused connection is kept, in s; and its timeout, for which 2.8 and later may keep a connection
-- that was closed before it was established.
local ANCHOR_SECONDS, ANCHOR_TIMEOUT = 20, 30
local FLUSH = "plimsoll-flush"
local COUNTERS = { "passed", "held", "replaced", "stale", "malformed", "refused", "flushed", "failed" }

local function clock()
  local time = now_of()
  return time.sec + time.usec * 1e-6
end

-- Value of a header in HAProxy's form: by lower-case name, values from 0.
local function header(headers, name)
  return headers[name] and headers[name][0]
end

-- Sequence number of an update, or nil if it has none; and whether it is valid.
local function sequence_of(headers)
  local text = header(headers, "plimsoll-update-sequence")
  if not text then
    return nil, true
  end
  local sequence = text:find("^%d+%.?%d*$") and #text <= 32 and tonumber(text)
  return sequence, sequence and sequence <= MAX_SEQUENCE and not headers["plimsoll-update-sequence"][1]
end

-- The update to forward, or nil if its body is incomplete here.
local function whole(txn, headers, secret)
  local body = txn.f:req_body() or ""
  if tonumber(header(headers, "content-length")) ~= #body then
    return nil
  end
  local lines = { ("%s %s HTTP/1.1"):format(txn.f:method(), txn.f:url()) }
  for name, values in pairs(headers) do
    if not OWN_HEADERS[name] and name ~= FLUSH then
      for i = 0, #values do
        lines[#lines + 1] = name .. ": " .. values[i]
      end
    end
  end
  lines[#lines + 1] = ("content-length: %d\r\nconnection: close\r\n%s: %s\r\n\r\n"):format(#body, FLUSH, secret)
  return table.concat(lines, "\r\n") .. body
end

local function parse_periods(text)
  local periods, first = {}, true
  for line in text:gmatch("[^\n]+") do
    if not first then
      local item, period = line:match("^(%S+) (%S+)$")
      period = tonumber(period)
      if not item or not period or not (period > 0 and period <= 86400) then
        return nil, "periods that cannot be read"
      end
      periods[item] = period
    end
    first = false
  end
  return not first and periods, "periods that cannot be read"
end

-- Polls one agent for its periods, forever.
local function follow(settings, coalescer, agent)
  local address, tag, said = settings.agents[agent], nil, nil
  local path = "/v1/updates" .. (settings.service and "?service=" .. settings.service or "")
  local password = settings.token and ("authorization: Bearer %s\r\n"):format(settings.token) or ""
  while true do
    local known = tag and ("if-none-match: %s\r\n"):format(tag) or ""
    local request = ("GET %s HTTP/1.1\r\nhost: %s\r\naccept: text/plain\r\nconnection: close\r\n%s%s\r\n"):format(
      path, address, password, known
    )
    local ran, status, headers, body = tasks.call(
      http.exchange, core.tcp, address, settings.timeout, request, MAX_ANSWER
    )
    local problem
    coalescer:at(clock())
    if not ran or not status then
      problem = tostring(ran and headers or status)
    elseif status == 304 then
      coalescer:on_periods(agent, nil)
    elseif status == 200 then
      local periods
      periods, problem = parse_periods(body)
      if periods then
        problem, tag = nil, headers.etag
        coalescer:on_periods(agent, periods)
      end
    else
      problem = "status " .. status
    end
    coalescer:expire()
    problem = problem and problem:gsub("%c", "?"):sub(1, 300)
    if problem ~= said then
      said = problem
      if problem then
        core.Warning(("plimsoll updates: agent %s: %s"):format(address, problem))
      else
        core.log(core.notice, ("plimsoll updates: in touch with agent %s"):format(address))
      end
    end
    -- Jittered, so that proxies do not act in step.
    core.msleep(math.floor(1000 * settings.period * (0.9 + 0.2 * math.random())))
  end
end

-- Forwards due updates, forever.
-- @param hand table whose `entry` is in flight, and is sent again if an error ends this before it is completed
local function send(settings, coalescer, queue, said, hand)
  while true do
    hand.entry = hand.entry or table.remove(queue)
    local entry = hand.entry
    if entry then
      local ran, status, problem = tasks.call(
        http.exchange, core.tcp, settings.forward, settings.timeout, entry.update, 0
      )
      local good = ran and status ~= nil and status < 500
      if good then
        problem = status >= 400 and ("status %d: the service does not take it"):format(status)
      else
        problem = tostring(not ran and status or status and "status " .. status or problem)
      end
      coalescer:at(clock())
      coalescer:flushed(entry.item, entry.update, good)
      hand.entry = nil
      if problem and problem ~= said.text then
        core.Warning(("plimsoll updates: %s: %s"):format(entry.item, problem:gsub("%c", "?"):sub(1, 300)))
      end
      said.text = problem
    else
      core.msleep(math.floor(1000 * coalescer_of.TICK))
    end
  end
end

local function is_stopping()
  return core.get_info().Stopping == 1
end

-- Queues due updates, forever.
local function tick(coalescer, queue)
  while true do
    coalescer:at(clock())
    for _, entry in ipairs(coalescer:due(SENDERS - #queue, is_stopping())) do
      queue[#queue + 1] = entry
    end
    core.msleep(math.floor(1000 * coalescer_of.TICK))
  end
end

-- Keeps one connection open from the start on: HAProxy waits for the sockets of a process that it stops, also for one
-- that its peer has closed, and could otherwise end before a socket is opened for a waiting update.
local function stay(settings, coalescer)
  local anchor
  local age = 0
  while true do
    local wanted = coalescer.held > 0 or not is_stopping()
    if wanted and (not anchor or age > ANCHOR_SECONDS) then
      local new = core.tcp()
      new:settimeout(ANCHOR_TIMEOUT)
      if deadline.within(settings.timeout, new, new.connect, address_of.split(settings.forward)) then
        if anchor then
          anchor:close()
        end
        anchor, age = new, 0
      else
        new:close()
      end
    elseif not wanted and anchor then
      anchor:close()
      anchor = nil
    end
    core.msleep(math.floor(1000 * coalescer_of.TICK))
    age = age + coalescer_of.TICK
  end
end

local function show(applet, coalescer)
  local lines = {}
  local function metric(name, kind, help, value)
    name = "plimsoll_pushed_update" .. name
    lines[#lines + 1] = ("# HELP %s %s\n# TYPE %s %s\n%s"):format(name, help, name, kind, value)
  end
  local outcomes = {}
  for i, counter in ipairs(COUNTERS) do
    outcomes[i] = ('plimsoll_pushed_updates_total{outcome="%s"} %d'):format(counter, coalescer.counts[counter])
  end
  metric("s_total", "counter", "Pushed updates by outcome.", table.concat(outcomes, "\n"))
  metric("s_held", "gauge", "Held updates.", "plimsoll_pushed_updates_held " .. coalescer.held)
  metric("_bytes", "gauge", "Size of the held updates.", "plimsoll_pushed_update_bytes " .. coalescer.bytes)
  metric("_items", "gauge", "Watched items.", "plimsoll_pushed_update_items " .. coalescer.items)
  metric("_task_failures_total", "counter", "Errors of tasks, which were restarted.",
    "plimsoll_pushed_update_task_failures_total " .. tasks.failures)
  metrics.answer(applet, table.concat(lines, "\n") .. "\n")
end

--- Starts the coalescer; raises an error for an invalid setting, which keeps HAProxy from starting.
-- Registers the action `lua.plimsoll_update`, the converter `lua.plimsoll_updated` and the service
-- `lua.plimsoll_update_metrics`.
function M.start(given)
  local settings, problem = settings_of.resolve_updates(given)
  if not settings then
    error("plimsoll.updates: " .. problem, 0)
  end
  if started then
    error("plimsoll.updates: start: is called twice", 0)
  end
  started = true
  if core.thread == 0 then
    error("plimsoll.updates: load it with lua-load-per-thread, not with lua-load", 0)
  end
  local coalescer = coalescer_of.new(settings, #settings.agents)
  -- Secret of forwarded updates; created when HAProxy runs, as threads are created from one state.
  local secret
  core.register_init(function()
    local time = now_of()
    math.randomseed(time.sec ~ (time.usec << 20) ~ (core.thread << 40))
    secret = ("%08x%08x"):format(math.random(0, 0xffffffff), math.random(0, 0xffffffff))
  end)
  -- Items of passed requests by name, and names by the stream's coroutine, a weak key.
  local item_of, name_of = {}, setmetatable({}, { __mode = "k" })

  local function decide(txn)
    local headers = txn.http:req_get_headers()
    local told = header(headers, FLUSH)
    txn.http:req_del_header(FLUSH)
    local item = txn:get_var("txn.plimsoll_item")
    if told == secret or type(item) ~= "string" or #item > 128 or item:find("[^!-~]") then
      return "passed"
    end
    coalescer:at(clock())
    local sequence, good = sequence_of(headers)
    if not good then
      coalescer.counts.malformed = coalescer.counts.malformed + 1
      return "malformed"
    end
    local name = {}
    local verdict = coalescer:arrived(item, sequence, name)
    if verdict == "pass" then
      item_of[name], name_of[running()] = item, name
      return "passed"
    elseif verdict == "stale" then
      return "stale"
    end
    local update = whole(txn, headers, secret)
    local wait, replaced
    if update then
      wait, replaced = coalescer:hold(item, update, sequence)
    else
      coalescer.counts.refused = coalescer.counts.refused + 1
    end
    if not wait then
      return "refused"
    end
    return ("%s; due=%.3f"):format(replaced and "replaced" or "held", wait)
  end

  local warned = false
  core.register_action("plimsoll_update", { "http-req" }, function(txn)
    if core.thread ~= 1 then
      txn.http:req_del_header(FLUSH)
      if not warned then
        warned = true
        core.Warning("plimsoll updates: the feed's frontend is not bound to thread 1: updates on others all pass")
      end
      return
    end
    txn:set_var("txn.plimsoll_update", decide(txn))
  end)

  local function ended(name, good)
    coalescer:at(clock())
    coalescer:ended(item_of[name], name, good)
    item_of[name] = nil
  end
  core.register_converters("plimsoll_updated", function(status)
    local stream = running()
    local name = name_of[stream]
    if name then
      name_of[stream] = nil
      -- A rejection by the service is no reason to send an older update.
      ended(name, (tonumber(status) or 500) < 500)
    end
  end)
  core.register_service("plimsoll_update_metrics", "http", function(applet)
    show(applet, coalescer)
  end)

  local function collect()
    while true do
      if next(item_of) then
        collectgarbage("step", COLLECT_KB)
        local live = {}
        for _, name in pairs(name_of) do
          live[name] = true
        end
        for name in pairs(item_of) do
          if not live[name] then
            ended(name, false)
          end
        end
      end
      core.msleep(COLLECT_MS)
    end
  end

  local function keep(name, work)
    tasks.keep("updates: " .. name, function()
      if core.thread == 1 then
        work()
      end
    end)
  end
  deadline.start()
  keep("end of requests", collect)
  keep("connection", function()
    stay(settings, coalescer)
  end)
  local queue, said = {}, {}
  keep("what is due", function()
    tick(coalescer, queue)
  end)
  for agent = 1, #settings.agents do
    keep("agent " .. settings.agents[agent], function()
      follow(settings, coalescer, agent)
    end)
  end
  for sender = 1, SENDERS do
    local hand = {}
    keep("sender " .. sender, function()
      send(settings, coalescer, queue, said, hand)
    end)
  end
end

return M
