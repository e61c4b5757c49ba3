--- State and decisions of one dispatcher (a thread of a proxy). No I/O, no HAProxy: time, randomness and the
-- state of HAProxy's servers are passed in.
--
-- A request in flight has a slot in arrays, so that admission builds no table. Its holder is an object that
-- lives as long as the request, a HAProxy stream's coroutine: if the holder is collected without a call of
-- `finish`, the request ended without a response.
--
-- State of the request path is in locals and in arrays by place (a server's position, from 1), since HAProxy
-- counts every instruction, which makes each expensive. Requests are never interrupted, but tasks are after
-- 10,000 instructions: functions called by tasks change the state atomically.

local board_of = require("plimsoll.board")
local choice_of = require("plimsoll.choice")
local class_of = require("plimsoll.class")
local lapse_of = require("plimsoll.lapse")
local observation_of = require("plimsoll.observation")
local ring_of = require("plimsoll.ring")
local schedule = require("plimsoll.schedule")
local in_one_piece = require("plimsoll.whole")

local byte = string.byte
local answered = observation_of.answered
local floor, max, min, huge = math.floor, math.max, math.min, math.huge

local M = {}

-- Policies that place by the bound alone; the others are schedulers.
local BOUND_POLICIES = { fc_prop = true, fc_hash = true }
-- Weight of the newest period in a node's demand.
local DEMAND_SMOOTHING = 0.5
-- Demand, as a multiple of the least cost, below which it is 0: otherwise dispatchers whose demand decays
-- would keep parts of the bound.
local MIN_DEMAND = 1e-3
-- Relative fall of all shares above which the dispatcher reports at once: others wait for what it gives up.
local GIVEN_UP = 0.1
local MAX_COST = 1e9
-- Time for which HAProxy must have counted fewer requests before its count is adopted.
local SURPLUS_SECONDS = 1

--- @param settings table policy, age_limit (s), lease (s), spill, cost.min, scheduler (its settings), news (settings
--   of the update algorithm)
-- @param servers table the names of the backend's servers, in its order
-- @param random function integers of 32 bits
-- @return the dispatcher, or nil and the error
function M.new(settings, servers, random)
  local by_hash, least_cost, age_limit = settings.policy == "fc_hash", settings.cost.min, settings.age_limit
  local spill = settings.spill
  local scheduler, finished, board
  if not BOUND_POLICIES[settings.policy] then
    local problem
    scheduler, problem = schedule.new(settings.policy, settings.scheduler)
    if not scheduler then
      return nil, problem
    end
    finished = scheduler.finished
    board = board_of.new(settings.news)
  end
  local self = { refused = 0, abandoned = 0, undecided = 0 }
  local placed = 0
  local dispatchers, news_at = 1, -huge
  local lapse
  local ring, ring_owners, ring_slots, ring_places = nil, "", 0, {}

  local nodes, place_of_name, observed = {}, {}, {}
  -- Cost in flight, its maximum (none if the node is not open), requests, demand of the period.
  local in_flight, room, requests, wanted = {}, {}, {}, {}
  -- Bound of each node, in cost.
  local bounds = {}
  -- Maximum bound, and the demand for each open node from requests that no node in particular refused.
  local max_bound, wanted_of_each = 0, 0
  for place, name in ipairs(servers) do
    place_of_name[name] = place
    nodes[place] = {
      known = false, up = true, open = false, granted = 0, lapsed = false, bound_jobs = 0, jobs = 0, load = 0,
      demand = 0, surplus = 0, surplus_since = huge,
    }
    observed[place] = observation_of.new()
    in_flight[place], room[place], requests[place], wanted[place], bounds[place] = 0, -huge, 0, 0, 0
  end

  -- Before the first request of a lower class than the highest, nothing is to be left free.
  local classes, has_classes = class_of.new(nodes, room), false

  -- Slots: place (0: free), cost, time of admission, route. Threads are weak keys.
  local place_of, cost_of, at_of, route_of = {}, {}, {}, {}
  local free, free_count = {}, 0
  local slot_of = setmetatable({}, { __mode = "k" })

  local function set_open(place)
    local node = nodes[place]
    -- A bound of 0 means that the node is down or drained.
    node.open = node.known and node.up and node.bound_jobs > 0
    room[place] = node.open and (node.lapsed and 0 or node.granted) or -huge
  end

  local function take_shares(now, others, shares)
    news_at, dispatchers, lapse.since = now, max(1, others), nil
    local largest, had, given_up = 0, 0, 0
    max_bound = 0
    for place, node in ipairs(nodes) do
      local share = shares[servers[place]]
      if share then
        local before = node.known and node.granted or 0
        had, given_up = had + before, given_up + max(0, before - share.granted)
        node.known, node.seen_at, node.lapsed = true, now, false
        node.granted, node.bound_jobs, node.jobs, node.load = share.granted, share.bound_jobs, share.jobs, share.load
        bounds[place] = share.bound_jobs * share.mean_cost
      elseif node.known and now - node.seen_at > settings.lease then
        node.known = false
      end
      set_open(place)
      if node.known then
        largest, max_bound = max(largest, node.bound_jobs), max(max_bound, bounds[place])
      end
    end
    if scheduler then
      local news = {}
      for place, node in ipairs(nodes) do
        local live = node.known and node.granted > 0
        -- A live node keeps a weight of at least 1.
        local weight = live and max(1, floor(100 * node.bound_jobs / largest + 0.5)) or 0
        news[place] = { weight = weight, jobs = node.jobs, load = node.load }
      end
      if board:heard(now, news) then
        scheduler:on_news(board.posted)
      end
    end
    return given_up > GIVEN_UP * had
  end

  --- Applies the snapshot of a period: the live nodes and this dispatcher's share of each bound. A missing node keeps
  -- its share for a lease: Redis may have restarted empty, and the node's agent reports again in a moment.
  -- @param others integer number of dispatchers, including this one
  -- @param shares table name to { granted, bound_jobs, mean_cost, jobs, load }
  -- @return boolean whether so much is given up that it should be reported before the period ends
  function self.on_shares(now, others, shares)
    local given_up
    in_one_piece(function()
      given_up = take_shares(now, others, shares)
    end)
    return given_up
  end

  lapse = lapse_of.new(age_limit, function(lapsed)
    for place, node in ipairs(nodes) do
      node.lapsed = lapsed
      set_open(place)
    end
  end)

  --- Takes the room of all nodes away until the next snapshot, but for two seconds at most: others may have been
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

  --- Sets the ring in force; its nodes are looked up once.
  function self.on_ring(new)
    local places = {}
    for index, name in ipairs(new.names) do
      places[index - 1] = place_of_name[name]
    end
    in_one_piece(function()
      ring, ring_owners, ring_slots, ring_places = new, new.owners, new.slots, places
    end)
  end

  --- Whether a node has an agent that reports.
  function self.knows(name)
    local place = place_of_name[name]
    return place ~= nil and nodes[place].known
  end

  local takes, least_filled, lender, by_scheduler = choice_of(nodes, in_flight, room, requests, random)

  -- The place with room, and the first open candidate, of a key whose owner has none left or is unknown.
  local function beyond_owner(hash, cost, place, reserve)
    if place and takes(place, cost, reserve) then
      return place, place
    end
    -- The rest of a node's room is for its own keys. Otherwise, with all nodes full, every finished request
    -- would make room for any key, and caches would keep nothing for long.
    place = place and nodes[place].open and place
    local index = ring_of.choose(ring, hash, function(candidate)
      local other = ring_places[candidate]
      if not other or not nodes[other].open then
        return false
      end
      place = place or other
      return takes(other, cost, reserve, spill)
    end)
    if not place then
      -- No node of the ring is open, but others may have room.
      return least_filled(cost, reserve)
    end
    return index and ring_places[index], place
  end

  local function refuse(asked, class, cost)
    local open = 0
    for _, node in ipairs(nodes) do
      open = open + (node.open and 1 or 0)
    end
    if open == 0 then
      self.undecided = self.undecided + 1
      return nil
    end
    if asked then
      -- For no more than the bound, each.
      local bound = bounds[asked]
      wanted[asked] = wanted[asked] + (cost < bound and cost or bound)
    else
      -- No node in particular was tried, so the shares of all are too small.
      wanted_of_each = wanted_of_each + min(cost / open, max_bound)
    end
    if has_classes then
      classes.refused(asked, class, cost, open)
    end
    self.refused = self.refused + 1
    return nil, "full"
  end

  --- Places a request.
  -- @param hash integer 32 bits of the key, or nil
  -- @param cost number estimated items that it touches
  -- @param holder an object that lives as long as the request
  -- @param route string to learn the cost of, or nil
  -- @param class integer from 0, the highest and the default, to 3; lower classes are refused first
  -- @return the server's name; or nil and "full"; or nil alone if the proxy is to decide by itself
  function self.admit(now, hash, cost, holder, route, class)
    -- Of a proxy that was stopped for long, the snapshot may be stale as well; it refuses until it has asked.
    if (now - news_at > age_limit and not lapse.since) or (by_hash and not ring) then
      self.undecided = self.undecided + 1
      return nil
    end
    if slot_of[holder] then
      self.abandon(holder, 0)
    end
    if cost < least_cost then
      cost = least_cost
    elseif cost > MAX_COST then
      cost = MAX_COST
    end
    local reserve
    if class and class > 0 then
      reserve, has_classes = classes.reserves[class], true
    end
    local place, asked
    if by_hash and hash then
      asked = ring_places[byte(ring_owners, ((hash * ring_slots) >> 32) + 1)]
      -- The common case.
      if asked and not reserve and in_flight[asked] + cost <= room[asked] then
        place = asked
      else
        place, asked = beyond_owner(hash, cost, asked, reserve)
      end
    elseif scheduler then
      place, asked = by_scheduler(scheduler, dispatchers, cost, reserve)
    else
      place = least_filled(cost, reserve)
    end
    place = place or has_classes and not reserve and lender(cost, classes)
    if not place then
      return refuse(asked, class or 0, cost)
    end
    asked = asked or place
    local bound = bounds[asked]
    wanted[asked] = wanted[asked] + (cost < bound and cost or bound)
    if has_classes then
      classes.admitted(asked, class or 0, cost)
    end
    placed = placed + 1
    in_flight[place] = in_flight[place] + cost
    requests[place] = requests[place] + 1
    local slot
    if free_count > 0 then
      slot = free[free_count]
      free_count = free_count - 1
    else
      slot = #place_of + 1
    end
    place_of[slot], cost_of[slot], at_of[slot], route_of[slot] = place, cost, now, route
    slot_of[holder] = slot
    return servers[place]
  end

  local function release(slot)
    local place = place_of[slot]
    local left = requests[place] - 1
    place_of[slot] = 0
    free_count = free_count + 1
    free[free_count] = slot
    requests[place] = left
    -- Sums of fractions drift, but an empty node has nothing in flight.
    in_flight[place] = left > 0 and in_flight[place] - cost_of[slot] or 0
    if finished then
      finished(scheduler, place)
    end
    return place
  end

  --- Ends a request with a node's response.
  -- @param server string the final server, after retries and redispatches
  -- @param status number of the response; 500 and above counts as the node's failure
  -- @param items number that the request touched, or nil
  -- @param jobs number of requests in the node, if the response states it; likewise load
  -- @return items and route to learn the cost of, or nil
  function self.finish(holder, now, server, status, items, jobs, load)
    local slot = slot_of[holder]
    if not slot then
      return
    end
    slot_of[holder] = nil
    -- As release, without a call.
    local place, cost, count = place_of[slot], cost_of[slot], free_count + 1
    local left = requests[place] - 1
    place_of[slot], free[count], free_count = 0, slot, count
    requests[place], in_flight[place] = left, left > 0 and in_flight[place] - cost or 0
    if finished then
      finished(scheduler, place)
    end
    if server ~= servers[place] then
      place = place_of_name[server] or place
    end
    if (jobs or load) and board and board:accessed(now, place, jobs, load) then
      scheduler:on_news(board.posted)
    end
    if status >= 500 then
      return observed[place]:failure()
    end
    local delay = now - at_of[slot]
    answered(observed[place], delay > 0 and delay or 0, items or cost)
    return items, route_of[slot]
  end

  local function abandon(slot, left_at)
    local seen = observed[release(slot)]
    if left_at then
      seen:left(max(left_at - at_of[slot], 0))
    else
      seen:failure()
    end
    self.abandoned = self.abandoned + 1
  end

  --- Ends a request without a response. If the node gave none, it counts as failed and not as a delay, so that a node
  -- that never responds does not look fast. A client that left is no failure of the node, but a long wait shows that
  -- it is slow.
  -- @param left_at number time at or before which the client left; nil if the node did not respond
  function self.abandon(holder, left_at)
    local slot = slot_of[holder]
    if slot then
      slot_of[holder] = nil
      abandon(slot, left_at)
    end
  end

  local function collect(alive_at)
    local held, busy = {}, false
    for _, slot in pairs(slot_of) do
      held[slot], busy = true, true
    end
    for slot, place in ipairs(place_of) do
      if place > 0 and not held[slot] then
        abandon(slot, alive_at)
      end
    end
    return busy
  end

  --- Abandons the requests whose holders were collected, as their clients left.
  -- @param alive_at number a time at which the holders collected since the last call still existed
  -- @return boolean whether any request is in flight
  function self.collect(alive_at)
    local busy
    in_one_piece(function()
      busy = collect(alive_at)
    end)
    return busy
  end

  -- Abandons the oldest of a node's requests that were admitted before a time.
  local function forget(place, count, before)
    local found = {}
    for holder, slot in pairs(slot_of) do
      if place_of[slot] == place and at_of[slot] < before then
        found[#found + 1] = { holder = holder, at = at_of[slot] }
      end
    end
    table.sort(found, function(a, b)
      return a.at < b.at
    end)
    for i = 1, min(count, #found) do
      -- The real request, and so its age, is unknown.
      self.abandon(found[i].holder, 0)
    end
  end

  local function take_server(place, now, up, count)
    local node = nodes[place]
    node.up = up
    set_open(place)
    local surplus = requests[place] - count
    if surplus <= 0 then
      node.surplus_since = huge
    elseif node.surplus_since == huge then
      node.surplus, node.surplus_since = surplus, now
    else
      node.surplus = min(node.surplus, surplus)
      if now - node.surplus_since >= SURPLUS_SECONDS then
        forget(place, node.surplus, node.surplus_since)
        node.surplus_since = huge
      end
    end
  end

  --- Processes HAProxy's state of a server. HAProxy counts the requests of all threads, so its count is at least this
  -- thread's; if it is lower for a while, the oldest requests have ended.
  -- @param up boolean whether the server takes new requests
  -- @param count integer requests running or queued there
  function self.on_server(place, now, up, count)
    in_one_piece(function()
      take_server(place, now, up, count)
    end)
  end

  --- This dispatcher's use of a node's bound.
  -- @return cost in flight, requests in flight
  function self.usage(name)
    local place = place_of_name[name]
    return in_flight[place], requests[place]
  end

  --- Ends a period: its demand is smoothed into the reported one. To be called once a period.
  function self.end_period()
    local of_each = wanted_of_each
    wanted_of_each = 0
    for place, node in ipairs(nodes) do
      in_one_piece(function()
        local more = node.open and of_each or 0
        node.demand = node.demand + DEMAND_SMOOTHING * (wanted[place] + more - node.demand)
        if node.demand < MIN_DEMAND * least_cost then
          node.demand = 0
        end
        wanted[place] = 0
        classes.end_period(place, least_cost)
      end)
    end
  end

  --- Report for Redis, once a period and when much is given up: a flat list of node, demand with the maximum cost in
  -- flight until the next snapshot, and observation of each node.
  function self.report()
    local flat = {}
    for place, node in ipairs(nodes) do
      in_one_piece(function()
        local held = max(in_flight[place], node.known and node.granted or 0)
        flat[#flat + 1] = servers[place]
        flat[#flat + 1] = ("%.6g/%.6g"):format(node.demand, held)
        flat[#flat + 1] = observed[place]:text(placed + self.refused, self.refused, requests[place])
      end)
    end
    return flat
  end

  --- Metrics of the dispatcher, in the order of `plimsoll.metrics`.
  function self.figures(now)
    local figures
    -- A request that moves meanwhile would be counted twice, and the sum would fall afterwards.
    in_one_piece(function()
      local age = news_at > -huge and max(now - news_at, 0) or -1
      figures = { self.refused, self.undecided, self.abandoned, ring and ring.version or 0, age }
      classes.figures(figures)
      for place, node in ipairs(nodes) do
        local seen = observed[place]
        figures[#figures + 1] = node.open and node.granted or 0
        figures[#figures + 1] = in_flight[place]
        figures[#figures + 1] = requests[place]
        figures[#figures + 1] = seen.count
        figures[#figures + 1] = seen.failed
        figures[#figures + 1] = seen.cost
      end
    end)
    return figures
  end

  return self
end

return M
