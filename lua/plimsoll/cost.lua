--- Estimates of a request's cost: stated by the request, or learned per route from earlier responses.
-- agent/core/src/dispatch/costs.rs is the same in Rust; agent/core/vectors/costs.json pins that both agree.

local M = {}
local Costs = {}
Costs.__index = Costs

-- Weight of the newest response in its route's cost, and its minimum weight in the mean of all routes; the first 100
-- are averaged evenly.
local SMOOTHING, MEAN_SMOOTHING = 0.1, 0.01
-- Maximum cost that a request may state, as a multiple of the mean cost, if no maximum is configured.
local MAX_MEANS = 10
local MAX_COST = 1e9

--- @param default number cost of an unknown route
-- @param max_routes integer maximum known routes; when another one appears, all are discarded
-- @param max_told number maximum cost that a request may state; without it 10 times the mean, which is `default`
--   before the first response
function M.new(default, max_routes, max_told)
  return setmetatable({
    default = default, max_routes = max_routes, max_told = max_told, routes = {}, count = 0,
    mean = default, answers = 0,
  }, Costs)
end

--- Cost that is counted for a request that states this cost.
function Costs:told(cost)
  local most = self.max_told or MAX_MEANS * self.mean
  -- NaN stays NaN.
  return cost > most and most or cost
end

--- Expected cost of a route's next request.
function Costs:expected(route)
  return route and self.routes[route] or self.default
end

--- Learns from the items that a response's request touched. A stated cost is not learned from, as it may come from the
-- client.
-- @param route string or nil
function Costs:learn(route, items)
  if items ~= items or items < 0 then
    return
  end
  if items > MAX_COST then
    items = MAX_COST
  end
  local answers = self.answers + 1
  local weight = 1 / answers
  if weight < MEAN_SMOOTHING then
    weight = MEAN_SMOOTHING
  end
  self.answers, self.mean = answers, self.mean + weight * (items - self.mean)
  if not route then
    return
  end
  local held = self.routes[route]
  if held then
    self.routes[route] = held + SMOOTHING * (items - held)
    return
  end
  if self.count >= self.max_routes then
    -- Clients name routes, so a flood of new ones must not use up memory. Routes in use return at once.
    self.routes, self.count = {}, 0
  end
  self.routes[route], self.count = items, self.count + 1
end

return M
