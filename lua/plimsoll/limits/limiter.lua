--- One proxy's shares of the nodes' bounds, and the weight and limit that follow for each server. No I/O, no HAProxy:
-- time and HAProxy's counters are passed in.

local lapse_of = require("plimsoll.lapse")
local observation_of = require("plimsoll.observation")
local ring_of = require("plimsoll.ring")
local in_one_piece = require("plimsoll.whole")

local floor, max, min, huge = math.floor, math.max, math.min, math.huge

local M = {}

-- Weight of the node with the most slots; as in the first tier, where servers have `weight 100`.
local FULL_WEIGHT = 100
-- HAProxy accepts more, but reads it as a number of 32 bits.
local MAX_LIMIT = 2 ^ 31 - 1
-- Tolerance in requests, as shares are whole requests up to rounding.
local ROUNDING = 1e-6
-- Share of a node's demand that is kept after a second, and the demand in requests/s below which it is 0; the same as
-- those of a dispatcher with the default period.
local KEPT_DEMAND, MIN_DEMAND = 0.5, 1e-3
-- Relative fall of all shares above which they are reported at once.
local GIVEN_UP = 0.1
-- Limit of a server whose share has lapsed: for HAProxy 0 would be none.
local LAPSED_LIMIT = 1

-- Empty observation, as this policy sees no requests.
local NOTHING_SEEN = observation_of.new():text(0, 0)

--- A share in requests, at least one: for HAProxy 0 would be no limit, and a node without requests gives no
-- measurements.
local function limit_of(share)
  local requests = min(share.granted / share.mean_cost, share.bound_jobs)
  return floor(min(max(requests + ROUNDING, 1), MAX_LIMIT))
end

--- @param settings table period, age_limit, lease (s)
function M.new(settings)
  local self = {}
  local period = settings.period
  local smoothing = 1 - KEPT_DEMAND ^ period
  local news_at = -huge
  -- By name: known, seen_at, granted, bound_jobs, mean_cost, limit, lapsed.
  local nodes = {}
  local lapse = lapse_of.new(settings.age_limit, function(lapsed)
    for _, node in pairs(nodes) do
      node.lapsed = lapsed
    end
  end)
  -- By name: the last counter `arrived`, and `demand` in requests/s; and the last `unplaced`.
  local seen, unplaced = {}, nil
  local ring, sizes = nil, {}
  -- Whether any node is live, and the maximum slots of a live node.
  local has_live, most_slots = false, 0

  local function is_live(node)
    -- A bound of 0 means that the node is down or drained.
    return node ~= nil and node.known and node.bound_jobs > 0
  end

  local function weigh()
    has_live, most_slots = false, 0
    for name, node in pairs(nodes) do
      if is_live(node) then
        has_live, most_slots = true, max(most_slots, sizes[name] or 0)
      end
    end
  end

  local function take_shares(now, shares)
    news_at, lapse.since = now, nil
    local had, given_up = 0, 0
    for name, share in pairs(shares) do
      -- A mean cost of 0 with a bound is invalid data.
      if share.mean_cost > 0 or share.bound_jobs == 0 then
        local before = nodes[name] and nodes[name].known and nodes[name].granted or 0
        had, given_up = had + before, given_up + max(0, before - share.granted)
        nodes[name] = {
          known = true, seen_at = now, granted = share.granted, bound_jobs = share.bound_jobs,
          mean_cost = share.mean_cost, limit = share.bound_jobs > 0 and limit_of(share),
        }
      end
    end
    for _, node in pairs(nodes) do
      -- Redis may have restarted empty: a missing node keeps its share for a lease.
      node.known = node.known and now - node.seen_at <= settings.lease
    end
    weigh()
    return given_up > GIVEN_UP * had
  end

  --- Applies the snapshot of a period.
  -- @param shares table name to { granted, bound_jobs, mean_cost }
  -- @return boolean whether so much is given up that it should be reported before the period ends
  function self.on_shares(now, shares)
    local given_up
    in_one_piece(function()
      given_up = take_shares(now, shares)
    end)
    return given_up
  end

  --- Limits all servers to one request until the next snapshot, but for two seconds at most: others may have been
  -- granted the shares since `since`, when they were last in use. Shares that were stale then were not.
  function self.lapse(since, now)
    in_one_piece(function()
      lapse.begin(since, now, news_at)
    end)
  end

  --- Ends a lapse that has lasted too long. To be called several times a second.
  function self.on_time(now)
    in_one_piece(function()
      lapse.on_time(now)
    end)
  end

  --- Sets the ring in force, whose slots determine the weights, so that they are the same on all proxies.
  function self.on_ring(new)
    ring = new
    local counted = ring_of.sizes(new)
    in_one_piece(function()
      -- A newer one may have arrived meanwhile.
      if ring == new then
        sizes = counted
        weigh()
      end
    end)
  end

  local function weight_of(name)
    -- A ring without any live node gives no weights.
    if most_slots == 0 then
      return nil
    end
    local slots = sizes[name] or 0
    return slots > 0 and max(1, floor(FULL_WEIGHT * slots / most_slots + 0.5)) or 0
  end

  --- Wanted state of a server.
  -- @return "limited", its limit and its weight (nil: unchanged); "out" if it should get no new requests; or nil if the
  --   snapshot is too old and the first tier decides
  function self.wanted(name, now)
    local node = nodes[name]
    if not node or not has_live or (now - news_at > settings.age_limit and not lapse.since) then
      return nil
    elseif is_live(node) then
      return "limited", node.lapsed and LAPSED_LIMIT or node.limit, weight_of(name)
    end
    return "out"
  end

  local function cost_of(name, requests)
    local node = nodes[name]
    return requests * (node and node.mean_cost or 1)
  end

  local function count(counters, counted)
    local shared, open = max(0, counters.unplaced - (unplaced or counters.unplaced)), 0
    unplaced = counters.unplaced
    for name in pairs(counters.servers) do
      open = open + (is_live(nodes[name]) and 1 or 0)
    end
    for name, server in pairs(counters.servers) do
      local had = seen[name] or { arrived = server.arrived, demand = 0 }
      -- Counters restart if an operator clears them.
      local wanted = max(0, server.arrived - had.arrived) + (is_live(nodes[name]) and shared / open or 0)
      local demand = had.demand + smoothing * (wanted / period - had.demand)
      counted[name] = { arrived = server.arrived, demand = demand < MIN_DEMAND and 0 or demand }
    end
  end

  --- Ends a period: its arrivals are smoothed into the reported demand. To be called once a period.
  -- @param counters table `servers`, by name { arrived: cumulative requests including refused ones, in_flight }, and
  --   `unplaced`, the cumulative requests refused before they had a server
  function self.end_period(counters)
    local counted = {}
    count(counters, counted)
    seen = counted
  end

  --- Report for Redis, once a period: a flat list of node, demand with the maximum cost in flight until the next
  -- snapshot, and an observation.
  function self.report(counters)
    local flat = {}
    for name, server in pairs(counters.servers) do
      local node = nodes[name]
      local held = max(cost_of(name, server.in_flight), node and node.known and node.granted or 0)
      local demand = cost_of(name, seen[name] and seen[name].demand or 0)
      flat[#flat + 1] = name
      flat[#flat + 1] = ("%.6g/%.6g"):format(demand, held)
      flat[#flat + 1] = NOTHING_SEEN
    end
    return flat
  end

  --- Metrics of a server: the share in force, and the cost of its requests.
  function self.share(name, now)
    return self.wanted(name, now) == "limited" and nodes[name].granted or 0
  end

  self.cost_of = cost_of

  --- Age of the snapshot in s (-1 for none), and version of the ring (0 for none).
  function self.news(now)
    return news_at > -huge and max(now - news_at, 0) or -1, ring and ring.version or 0
  end

  return self
end

return M
