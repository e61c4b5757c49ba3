--- Prometheus metrics of the dispatchers of one HAProxy process.
--
-- Threads share no Lua state, but they share HAProxy's maps: each thread writes its figures into the map
-- `metrics.map` as one text, and the thread that serves a scrape reads them all.

local M = {}

local CLASSES = require("plimsoll.class").LOWEST + 1
-- Number of figures of a dispatcher: its own, of which the last is the age, those by class, and those of each server.
local AGE, OF_SERVER = 5, 6
local OWN = AGE + 2 * CLASSES
local NEVER = -1

local function sum(total, value)
  return total + value
end

-- Name without "plimsoll_", type, index in the figures, aggregation over threads, help.
local PROCESS = {
  { "refused_total", "counter", 1, sum, "Requests refused because every node was full." },
  { "undecided_total", "counter", 2, sum, "Requests left to the backend's balance for lack of fresh shares." },
  { "abandoned_total", "counter", 3, sum, "Requests that ended without an answer from a node." },
  { "proxy_ring_version", "gauge", 4, math.min, "Version of the current ring, of the slowest thread; 0: none." },
}
local CLASS = {
  { "class_admitted_total", AGE, "Requests placed, by class, since the first of a lower class." },
  { "class_refused_total", AGE + CLASSES, "Requests refused because every node was full, by class, since the same." },
}
local SERVER = {
  { "node_share_cost", "gauge", 1, "This proxy's share of the node's bound; 0 if the node receives no requests." },
  { "node_in_flight_cost", "gauge", 2, "Cost in flight." },
  { "node_in_flight_requests", "gauge", 3, "Requests in flight." },
  { "node_answered_total", "counter", 4, "Requests that the node answered, without its failures." },
  { "node_failed_total", "counter", 5, "Requests that failed at the node or got no answer." },
  { "node_cost_total", "counter", 6, "Cost of the answered requests, as reported by the node if it does." },
}

--- The figures of a dispatcher as one text, which `M.read` parses.
-- @param figures table numbers: refused, undecided, abandoned, version of the ring (0 for none), age of the snapshot
-- in s (-1 for none); admitted of each class, and refused; and of each server share, cost and requests in flight,
-- answered, failed, cost answered; -1 for figures that the policy does not measure
function M.text(figures)
  local words = {}
  for i, figure in ipairs(figures) do
    words[i] = ("%.16g"):format(figure)
  end
  return table.concat(words, " ")
end

--- @return the figures, or nil if the text is not for this many servers
function M.read(text, servers)
  local figures = {}
  for word in text:gmatch("%S+") do
    figures[#figures + 1] = tonumber(word)
  end
  return #figures == OWN + OF_SERVER * servers and figures or nil
end

local function combined(threads, place, combine)
  local total
  for _, figures in ipairs(threads) do
    total = total and combine(total, figures[place]) or figures[place]
  end
  return total
end

--- Renders Prometheus' text format.
-- @param cluster string
-- @param servers table names, in the backend's order
-- @param threads table the figures of each thread
function M.render(cluster, servers, threads)
  local lines = {}
  local function family(name, kind, help)
    lines[#lines + 1] = ("# HELP plimsoll_%s %s\n# TYPE plimsoll_%s %s"):format(name, help, name, kind)
  end
  local function sample(name, labels, value)
    lines[#lines + 1] = ('plimsoll_%s{plimsoll_cluster="%s"%s} %.16g'):format(name, cluster, labels, value)
  end
  if #threads == 0 then
    return ""
  end
  -- Placed requests are those in flight, answered or failed; a counter of its own would cost time in each request.
  local admitted, cost, requests = 0, 0, 0
  for server = 0, #servers - 1 do
    local first = OWN + server * OF_SERVER
    cost = cost + combined(threads, first + 2, sum)
    requests = requests + combined(threads, first + 3, sum)
    admitted = admitted + combined(threads, first + 4, sum) + combined(threads, first + 5, sum)
  end
  family("admitted_total", "counter", "Requests placed.")
  sample("admitted_total", "", admitted + requests)
  family("in_flight_cost", "gauge", "Cost in flight, over all threads.")
  sample("in_flight_cost", "", cost)
  family("in_flight_requests", "gauge", "Requests in flight, over all threads.")
  sample("in_flight_requests", "", requests)
  for _, metric in ipairs(PROCESS) do
    local name, kind, place, combine, help = table.unpack(metric)
    local value = combined(threads, place, combine)
    if value >= 0 then
      family(name, kind, help)
      sample(name, "", value)
    end
  end
  local lower = 0
  for class = 1, CLASSES - 1 do
    lower = lower + combined(threads, AGE + 1 + class, sum) + combined(threads, AGE + CLASSES + 1 + class, sum)
  end
  for _, metric in ipairs(lower > 0 and CLASS or {}) do
    local name, place, help = table.unpack(metric)
    family(name, "counter", help)
    for class = 0, CLASSES - 1 do
      sample(name, (',class="%d"'):format(class), combined(threads, place + 1 + class, sum))
    end
  end
  local age = combined(threads, AGE, math.max)
  if age > NEVER then
    family("news_age_seconds", "gauge", "Time since the last exchange with Redis, of the longest waiting thread.")
    sample("news_age_seconds", "", age)
  end
  for _, metric in ipairs(SERVER) do
    local name, kind, place, help = table.unpack(metric)
    for number, server in ipairs(servers) do
      local value = combined(threads, OWN + (number - 1) * OF_SERVER + place, sum)
      if value >= 0 then
        if number == 1 then
          family(name, kind, help)
        end
        sample(name, (',node="%s"'):format(server), value)
      end
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

--- @param threads table the number of errors in tasks, by thread
function M.render_tasks(cluster, threads)
  local failures = 0
  for _, count in ipairs(threads) do
    failures = failures + count
  end
  return ([[
# HELP plimsoll_task_failures_total Errors of the tasks that communicate with Redis and track requests; they restart.
# TYPE plimsoll_task_failures_total counter
plimsoll_task_failures_total{plimsoll_cluster="%s"} %d
]]):format(cluster, failures)
end

--- Responds to a scrape with the metrics' text.
function M.answer(applet, body)
  applet:set_status(200)
  applet:add_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
  applet:add_header("content-length", tostring(#body))
  applet:start_response()
  if applet.method ~= "HEAD" then
    applet:send(body)
  end
end

return M
