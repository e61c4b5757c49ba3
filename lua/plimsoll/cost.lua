--- What a request will cost: what it tells, or learned per route from what earlier ones did.
-- agent/core/src/dispatch/costs.rs is the same in Rust; agent/core/vectors/costs.json pins that both agree.

local M = {}
local Costs = {}
Costs.__index = Costs

-- Weight of the newest answer in its route's cost; and in the mean of all, once there are so many that it is no
-- more than each other's.
local SMOOTHING, MEAN_SMOOTHING = 0.1, 0.01
-- The most a request may tell, in mean costs.
local MAX_MEANS = 10
local MAX_COST = 1e9

--- @param default number for a route that was never seen
-- @param max_routes integer routes that are remembered; when there are more, all are forgotten
-- @param max_told number the most that a request may tell; without it 10 times the mean, which is `default` before
--   the first answer
function M.new(default, max_routes, max_told)
  return setmetatable({
    default = default, max_routes = max_routes, max_told = max_told, routes = {}, count = 0,
    mean = default, answers = 0,
  }, Costs)
end

--- What a request counts that tells this cost.
function Costs:told(cost)
  local most = self.max_told or MAX_MEANS * self.mean
  -- What is no number stays none.
  return cost > most and most or cost
end

--- The cost of a route's next request.
function Costs:expected(route)
  return route and self.routes[route] or self.default
end

--- Takes in what an answer's request touched. Only answers are learned from: what a request tells, a client may
-- have written.
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
    -- Clients name routes: a flood of new ones must not grow memory. The used ones are back at once.
    self.routes, self.count = {}, 0
  end
  self.routes[route], self.count = items, self.count + 1
end

return M
