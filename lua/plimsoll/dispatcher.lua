--- What one dispatcher (a thread of a proxy) knows and decides. No I/O, no HAProxy: time, randomness
-- and whether a server is up are passed in.

local ring_of = require("plimsoll.ring")
local schedule = require("plimsoll.schedule")

local floor, max, min, huge, log = math.floor, math.max, math.min, math.huge, math.log

local M = {}
local Dispatcher = {}
Dispatcher.__index = Dispatcher

-- Policies that place by the bound alone; the others are schedulers.
local BOUND_POLICIES = { fc_prop = true, fc_hash = true }

-- Delays are counted in buckets of 1 ms · 1.2^i: 56 of them reach 22.6 s.
local BUCKET_RATIO = 1.2
local BUCKETS = 56
local FIRST_BUCKET = 0.001
-- Weight of the newest period in a node's demand.
local DEMAND_SMOOTHING = 0.5
local MOST_COST = 1e9

--- @param settings table policy, age_limit (s), lease (s), scheduler (settings of the scheduler, if any)
-- @param servers table the names of the backend's servers, in its order
-- @param random function whole numbers of 32 bits
function M.new(settings, servers, random)
  local self = setmetatable({
    policy = settings.policy,
    age_limit = settings.age_limit,
    lease = settings.lease,
    random = random,
    servers = servers,
    nodes = {},
    dispatchers = 1,
    news_at = -huge,
    admitted = 0,
    refused = 0,
    leaked = 0,
  }, Dispatcher)
  for i, name in ipairs(servers) do
    self.nodes[i] = {
      name = name, known = false, granted = 0, bound_jobs = 0, mean_cost = 1, jobs = 0, load = 0,
      in_flight = 0, requests = 0, demand = 0, wanted = 0,
      count = 0, sum = 0, failed = 0, cost = 0, buckets = {},
    }
  end
  if not BOUND_POLICIES[self.policy] then
    local scheduler, problem = schedule.new(self.policy, settings.scheduler)
    if not scheduler then
      return nil, problem
    end
    self.scheduler = scheduler
  end
  return self
end

--- News of a period: which nodes live, and what of each bound this dispatcher may use. A node that is
-- missing keeps its share for a lease: Redis may have come back empty, and its agent reports in a moment.
-- @param shares table name to { granted, bound_jobs, mean_cost, jobs, load }
function Dispatcher:on_shares(now, dispatchers, shares)
  self.news_at, self.dispatchers = now, max(1, dispatchers)
  local largest = 0
  for _, node in ipairs(self.nodes) do
    local share = shares[node.name]
    if share then
      node.known, node.seen_at = true, now
      node.granted, node.bound_jobs = share.granted, share.bound_jobs
      node.mean_cost, node.jobs, node.load = share.mean_cost, share.jobs, share.load
    elseif node.known and now - node.seen_at > self.lease then
      node.known = false
    end
    if node.known then
      largest = max(largest, node.bound_jobs)
    end
  end
  if self.scheduler then
    local news = {}
    for i, node in ipairs(self.nodes) do
      local live = node.known and node.granted > 0
      -- A live node keeps a weight, however small its bound is.
      local weight = live and max(1, floor(100 * node.bound_jobs / largest + 0.5)) or 0
      news[i] = { weight = weight, jobs = node.jobs, load = node.load }
    end
    self.scheduler:on_news(news)
  end
end

--- The ring in force; positions of its nodes among the servers are looked up once.
function Dispatcher:on_ring(ring)
  local place = {}
  for i, node in ipairs(self.nodes) do
    place[node.name] = i
  end
  local places = {}
  for index, name in ipairs(ring.names) do
    places[index - 1] = place[name]
  end
  self.ring, self.places = ring, places
end

--- Whether a node has an agent that reports.
function Dispatcher:knows(name)
  for _, node in ipairs(self.nodes) do
    if node.name == name then
      return node.known
    end
  end
  return false
end

--- Whether what is known is too old to act on: the backend's own `balance` takes over.
function Dispatcher:is_stale(now)
  return now - self.news_at > self.age_limit
end

-- A request larger than the whole share is admitted alone, or it would never be.
local function fits(node, cost)
  return node.known and (node.requests == 0 or node.in_flight + cost <= node.granted)
end

-- The node that is filled least, of those that take the request.
function Dispatcher:_least_filled(cost, is_up)
  local best, least
  for i, node in ipairs(self.nodes) do
    if fits(node, cost) and is_up(node.name) then
      local filled = (node.in_flight + cost) / max(node.granted, 1e-9)
      if not best or filled < least then
        best, least = i, filled
      end
    end
  end
  return best
end

function Dispatcher:_by_ring(hash, cost, is_up)
  local wanted
  local index = ring_of.choose(self.ring, hash, function(owner)
    local place = self.places[owner]
    wanted = wanted or place
    local node = place and self.nodes[place]
    return node and fits(node, cost) and is_up(node.name)
  end)
  return index and self.places[index], wanted
end

function Dispatcher:_by_scheduler(cost, is_up)
  local wanted
  for _ = 1, 2 * #self.nodes do
    local place = schedule.next_among(self.scheduler, self.dispatchers, self.random)
    if not place then
      break
    end
    wanted = wanted or place
    if fits(self.nodes[place], cost) and is_up(self.nodes[place].name) then
      return place, wanted
    end
  end
  return self:_least_filled(cost, is_up), wanted
end

--- Places a request.
-- @param hash integer 32 bits of the key, or nil
-- @param cost number items it is thought to touch
-- @param is_up function of a server's name
-- @return entry to hand to `finish`; or nil and "full", "down"; or nil alone where the proxy is to
--   decide by itself
function Dispatcher:admit(now, hash, cost, is_up)
  if self:is_stale(now) or (self.policy == "fc_hash" and not self.ring) then
    return nil
  end
  cost = min(max(cost, 0), MOST_COST)
  local place, wanted
  if self.policy == "fc_hash" and hash then
    place, wanted = self:_by_ring(hash, cost, is_up)
  elseif self.scheduler then
    place, wanted = self:_by_scheduler(cost, is_up)
  else
    place = self:_least_filled(cost, is_up)
  end
  local asked = self.nodes[wanted or place]
  if asked then
    asked.wanted = asked.wanted + cost
  end
  if not place then
    local live = 0
    for _, node in ipairs(self.nodes) do
      live = live + (node.known and is_up(node.name) and 1 or 0)
    end
    if live == 0 then
      return nil
    end
    if not asked then
      -- Nobody in particular was wanted, so everybody's share is too small.
      for _, node in ipairs(self.nodes) do
        if node.known then
          node.wanted = node.wanted + cost / live
        end
      end
    end
    self.refused = self.refused + 1
    return nil, "full"
  end
  local node = self.nodes[place]
  node.in_flight, node.requests = node.in_flight + cost, node.requests + 1
  self.admitted = self.admitted + 1
  return { node = node, cost = cost, at = now }
end

local function release(self, entry)
  local node = entry.node
  entry.done = true
  node.requests = node.requests - 1
  -- Sums of fractions drift; an empty node has nothing in flight.
  node.in_flight = node.requests > 0 and max(node.in_flight - entry.cost, 0) or 0
  if self.scheduler and self.scheduler.finished then
    for place, other in ipairs(self.nodes) do
      if other == node then
        self.scheduler:finished(place)
      end
    end
  end
end

--- A request ended with an answer. `server` is where it went in the end, after redispatches.
-- @param failed boolean the answer was an error of the node's
-- @param items number what it really touched, or nil
function Dispatcher:finish(entry, now, server, failed, items)
  if entry.done then
    return
  end
  release(self, entry)
  local node = entry.node
  if server and server ~= node.name then
    for _, other in ipairs(self.nodes) do
      if other.name == server then
        node = other
      end
    end
  end
  local delay = max(now - entry.at, 0)
  if failed then
    node.failed = node.failed + 1
    return
  end
  node.count, node.sum = node.count + 1, node.sum + delay
  node.cost = node.cost + (items or entry.cost)
  local bucket = 0
  if delay > FIRST_BUCKET then
    bucket = min(math.ceil(log(delay / FIRST_BUCKET) / log(BUCKET_RATIO)), BUCKETS)
  end
  node.buckets[bucket] = (node.buckets[bucket] or 0) + 1
end

--- A request ended without an answer: the client left, or the stream broke. It says nothing of delay
-- but counts as failed, so that a node that never answers is not thought fast.
function Dispatcher:abandon(entry)
  if not entry.done then
    release(self, entry)
    entry.node.failed = entry.node.failed + 1
    self.leaked = self.leaked + 1
  end
end

--- What goes to Redis once a period: node, demand and observation of each node, flat.
-- Observations are counters since the start: "1 <count> <sum s> <failed> <cost> <bucket:count,…|->".
function Dispatcher:report()
  local flat = {}
  for _, node in ipairs(self.nodes) do
    node.demand = node.demand + DEMAND_SMOOTHING * (node.wanted - node.demand)
    node.wanted = 0
    local buckets = {}
    for bucket = 0, BUCKETS do
      if node.buckets[bucket] then
        buckets[#buckets + 1] = ("%d:%d"):format(bucket, node.buckets[bucket])
      end
    end
    flat[#flat + 1] = node.name
    flat[#flat + 1] = ("%.6g"):format(node.demand)
    flat[#flat + 1] = ("1 %d %.6f %d %.0f %s"):format(
      node.count, node.sum, node.failed, node.cost, #buckets > 0 and table.concat(buckets, ",") or "-"
    )
  end
  return flat
end

return M
