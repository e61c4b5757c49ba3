--- What one proxy knows of the nodes' bounds, and the weight and limit that each server is to have for it. No I/O, no
-- HAProxy: time and HAProxy's counters are passed in.

local observation_of = require("plimsoll.observation")
local ring_of = require("plimsoll.ring")
local in_one_piece = require("plimsoll.whole")

local floor, max, min, huge = math.floor, math.max, math.min, math.huge

local M = {}

-- The weight of the node that carries most; as in the first tier, where servers have `weight 100`.
local FULL_WEIGHT = 100
-- HAProxy takes more, but reads it as a number of 32 bits.
local MAX_LIMIT = 2 ^ 31 - 1
-- Of a request: shares are whole requests but for rounding.
local ROUNDING = 1e-6
-- What is left of a node's demand after a second, and what is no demand, in requests a second; as a dispatcher of the
-- usual period has them.
local KEPT_DEMAND, MIN_DEMAND = 0.5, 1e-3
-- Shares that fall by more than this part are told of at once.
local GIVEN_UP = 0.1

-- No requests are seen, so there is nothing to tell agents of.
local NOTHING_SEEN = observation_of.new():text()

--- How many requests a share is. At least one: 0 would be no limit for HAProxy, and a node that gets nothing shows
-- nothing.
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
  -- By name: known, seen_at, granted, bound_jobs, mean_cost, limit.
  local nodes = {}
  -- By name: of the last counters `arrived`, and `demand` in requests a second; and the last `unplaced`.
  local seen, unplaced = {}, nil
  local ring, sizes = nil, {}
  -- Of the live nodes: whether there is one, and the most slots that one has.
  local has_live, most_slots = false, 0

  local function is_live(node)
    -- A bound of nothing is a node that is down or drained.
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
    news_at = now
    local had, given_up = 0, 0
    for name, share in pairs(shares) do
      -- Nothing can be counted in requests of no cost; somebody else wrote that.
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
      -- Redis may have come back empty: who is missing keeps its share for a lease.
      node.known = node.known and now - node.seen_at <= settings.lease
    end
    weigh()
    return given_up > GIVEN_UP * had
  end

  --- News of a period.
  -- @param shares table name to { granted, bound_jobs, mean_cost }
  -- @return boolean whether so much is given up that it should be told of before the period is over
  function self.on_shares(now, shares)
    local given_up
    in_one_piece(function()
      given_up = take_shares(now, shares)
    end)
    return given_up
  end

  --- The ring in force; weights go by its slots, so that they are the same on all proxies.
  function self.on_ring(new)
    ring = new
    local counted = ring_of.sizes(new)
    in_one_piece(function()
      -- A newer one may have come meanwhile.
      if ring == new then
        sizes = counted
        weigh()
      end
    end)
  end

  local function weight_of(name)
    -- A ring of none of the live nodes says nothing of them.
    if most_slots == 0 then
      return nil
    end
    local slots = sizes[name] or 0
    return slots > 0 and max(1, floor(FULL_WEIGHT * slots / most_slots + 0.5)) or 0
  end

  --- What a server is to have.
  -- @return "limited", its limit and its weight (nil: as it is); "out" where it is to get nothing new; or nil where
  --   nothing is known that would be fresh enough: the first tier decides
  function self.wanted(name, now)
    local node = nodes[name]
    if not node or not has_live or now - news_at > settings.age_limit then
      return nil
    elseif is_live(node) then
      return "limited", node.limit, weight_of(name)
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
      -- Counters begin anew where an operator clears them.
      local wanted = max(0, server.arrived - had.arrived) + (is_live(nodes[name]) and shared / open or 0)
      local demand = had.demand + smoothing * (wanted / period - had.demand)
      counted[name] = { arrived = server.arrived, demand = demand < MIN_DEMAND and 0 or demand }
    end
  end

  --- To be called once a period: what arrived in it counts as demand from now on.
  -- @param counters table `servers`, by name { arrived: requests so far, refused ones with them, in_flight }, and
  --   `unplaced`, those so far that were refused before they had a server
  function self.end_period(counters)
    local counted = {}
    count(counters, counted)
    seen = counted
  end

  --- What goes to Redis once a period: node, demand with what may be in flight until the next shares are heard, and
  -- an observation, flat.
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

  --- Of a server, for metrics: the share in force, and the cost of so many requests.
  function self.share(name, now)
    return self.wanted(name, now) == "limited" and nodes[name].granted or 0
  end

  self.cost_of = cost_of

  --- The age of the news in s (-1: none yet), and the version of the ring (0: none).
  function self.news(now)
    return news_at > -huge and max(now - news_at, 0) or -1, ring and ring.version or 0
  end

  return self
end

return M
