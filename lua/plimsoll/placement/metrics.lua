--- Prometheus metrics of placement: the figures of each thread as one text in HAProxy's map, and their aggregation.

local M = {}

--- Reasons for refusals.
M.REASONS = { "moving", "suspended", "unknown", "name" }

local COUNTERS = {
  { "placed_total", "Requests sent to the primary of their object set." },
  { "waited_total", "Requests that waited for a hand-over, or for the table, before they were placed or refused." },
  { "doubted_total", "Requests that ended without an answer, so that their primary may still be processing them." },
}
local GAUGES = {
  { "in_flight_requests", "Requests at primaries." },
  { "in_doubt_sets", "Object sets with a request that ended without an answer and may still be in progress." },
}
local VERSION = #COUNTERS + #GAUGES + 1

function M.text(figures)
  for i, figure in ipairs(figures) do
    figures[i] = ("%d"):format(figure)
  end
  return table.concat(figures, " ")
end

--- @return the figures, or nil if the text is malformed
function M.read(text)
  local figures = {}
  for word in text:gmatch("%S+") do
    figures[#figures + 1] = tonumber(word)
  end
  return #figures == VERSION + #M.REASONS and figures or nil
end

--- Renders Prometheus' text format.
-- @param threads table the figures of each thread
function M.render(cluster, threads)
  if #threads == 0 then
    return ""
  end
  local lines = {}
  local function sum(place)
    local total = 0
    for _, figures in ipairs(threads) do
      total = total + figures[place]
    end
    return total
  end
  local function family(metric, kind, help)
    lines[#lines + 1] = ("# HELP plimsoll_placement_%s %s\n# TYPE plimsoll_placement_%s %s"):format(
      metric, help, metric, kind
    )
  end
  local function sample(metric, labels, value)
    lines[#lines + 1] = ('plimsoll_placement_%s{plimsoll_cluster="%s"%s} %d'):format(metric, cluster, labels, value)
  end
  for place, metric in ipairs(COUNTERS) do
    family(metric[1], "counter", metric[2])
    sample(metric[1], "", sum(place))
  end
  for place, metric in ipairs(GAUGES) do
    family(metric[1], "gauge", metric[2])
    sample(metric[1], "", sum(#COUNTERS + place))
  end
  local least, suspended = math.huge, 0
  for _, figures in ipairs(threads) do
    least = math.min(least, figures[VERSION])
    suspended = suspended + (figures[VERSION] == 0 and 1 or 0)
  end
  family("version", "gauge", "Version of the current table, of the thread that is furthest behind; 0 if there is none.")
  sample("version", "", least)
  family("suspended_threads", "gauge", "Threads that admit no requests because they have no valid table.")
  sample("suspended_threads", "", suspended)
  family("refused_total", "counter", "Refused requests, by reason.")
  for place, reason in ipairs(M.REASONS) do
    sample("refused_total", (',reason="%s"'):format(reason), sum(VERSION + place))
  end
  return table.concat(lines, "\n") .. "\n"
end

return M
