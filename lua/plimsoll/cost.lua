--- What a request will cost, learned per route from what earlier ones did.

local min, max = math.min, math.max

local M = {}
local Costs = {}
Costs.__index = Costs

-- Weight of the newest answer.
local SMOOTHING = 0.1
local MOST_COST = 1e9

--- @param default number for a route that was never seen
-- @param most integer routes that are remembered; when there are more, all are forgotten
function M.new(default, most)
  return setmetatable({ default = default, most = most, routes = {}, count = 0 }, Costs)
end

--- The cost of a route's next request.
function Costs:expected(route)
  return route and self.routes[route] or self.default
end

--- Takes in what an answer's request touched.
function Costs:learn(route, items)
  if not route or items ~= items or items < 0 then
    return
  end
  items = min(max(items, 0), MOST_COST)
  local held = self.routes[route]
  if held then
    self.routes[route] = held + SMOOTHING * (items - held)
    return
  end
  if self.count >= self.most then
    -- Clients name routes: a flood of new ones must not grow memory. The used ones are back at once.
    self.routes, self.count = {}, 0
  end
  self.routes[route], self.count = items, self.count + 1
end

return M
