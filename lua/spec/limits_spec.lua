package.path = "lua/?.lua;lua/?/init.lua;" .. package.path

local limiter_of = require("plimsoll.limits.limiter")
local ring_of = require("plimsoll.ring")

local function share(granted, jobs, cost)
  return { granted = granted, bound_jobs = jobs, mean_cost = cost or 1 }
end

local function new()
  return limiter_of.new({ period = 1, age_limit = 10, lease = 3 })
end

local function limit_of(limiter, name, now)
  local _, limit = limiter.wanted(name, now or 0)
  return limit
end

local function weight_of(limiter, name)
  local _, _, weight = limiter.wanted(name, 0)
  return weight
end

-- Counters of servers by name: cumulative requests and requests in flight.
local function counters(arrived, in_flight, unplaced)
  local servers = {}
  for name, count in pairs(arrived) do
    servers[name] = { arrived = count, in_flight = in_flight and in_flight[name] or 0 }
  end
  return { servers = servers, unplaced = unplaced or 0 }
end

-- Report to Redis, by node: demand and held.
local function told(limiter, now_there)
  local flat, by_name = limiter.report(now_there), {}
  for i = 1, #flat, 3 do
    local demand, held = flat[i + 1]:match("^(%S+)/(%S+)$")
    by_name[flat[i]] = { demand = tonumber(demand), held = tonumber(held) }
    assert.equal("3 0 0.000000 0 0 - - 0 0 -", flat[i + 2])
  end
  return by_name
end

describe("a limit", function()
  it("is one while the share has lapsed, and the share again after two seconds without news", function()
    local limiter = new()
    limiter.on_shares(0, { node1 = share(8, 20) })
    -- The clock may have run on meanwhile.
    limiter.lapse(1, 30)
    limiter.on_time(32)
    assert.equal(1, limit_of(limiter, "node1", 32))
    limiter.on_shares(32, { node1 = share(5, 20) })
    assert.equal(5, limit_of(limiter, "node1", 32))
    limiter.lapse(33, 33)
    limiter.on_time(35.1)
    assert.equal(5, limit_of(limiter, "node1", 35.1))
    -- Of a share that was stale before there is nothing to lapse.
    limiter.lapse(43, 43)
    assert.is_nil(limiter.wanted("node1", 43))
  end)

  it("is a share in whole requests, at least one and never more than the bound", function()
    local cases = {
      { share(800, 20, 80), 10 },
      { share(879.999, 20, 80), 10 },
      -- As sums of shares drift.
      { share(880 - 1e-9, 20, 80), 11 },
      { share(40, 20, 80), 1 },
      { share(0, 20, 80), 1 },
      { share(0.5, 0.5), 1 },
      { share(9000, 20, 80), 20 },
      { share(1e15, 1e15), 2147483647 },
      { share(1e15, 1e15, 1e-300), 2147483647 },
    }
    for number, case in ipairs(cases) do
      local limiter = new()
      limiter.on_shares(0, { node1 = case[1] })
      assert.equal(case[2], limit_of(limiter, "node1"), "case " .. number)
      assert.equal("integer", math.type(limit_of(limiter, "node1")))
    end
  end)

  it("sums over proxies to the bound and one request each at most", function()
    math.randomseed(1)
    for _ = 1, 2000 do
      local proxies, cost = math.random(1, 8), math.random() * 200 + 0.01
      local jobs = math.random() * 40 + 0.01
      -- Any parts of the bound that together are no more than it.
      local parts, sum = {}, 0
      for i = 1, proxies do
        parts[i] = math.random()
        sum = sum + parts[i]
      end
      local limits = 0
      for i = 1, proxies do
        local limiter = new()
        limiter.on_shares(0, { node1 = share(parts[i] / sum * jobs * cost, jobs, cost) })
        limits = limits + limit_of(limiter, "node1")
      end
      assert.is_true(limits <= jobs + proxies, ("%d of %g with %d"):format(limits, jobs, proxies))
    end
  end)
end)

describe("a weight", function()
  local function weights(owners, names, shares)
    local limiter = new()
    limiter.on_shares(0, shares)
    limiter.on_ring(assert(ring_of.new(1, names, owners)))
    local found = {}
    for i, name in ipairs(names) do
      found[i] = weight_of(limiter, name)
    end
    return found
  end
  local both = { node1 = share(1, 1), node2 = share(1, 1) }

  it("is a node's slots in percent of the most that one has", function()
    assert.same({ 100, 50 }, weights("\0\0\1", { "node1", "node2" }, both))
    assert.same({ 67, 100 }, weights("\0\0\1\1\1", { "node1", "node2" }, both))
  end)

  it("is never 0 while the node has a slot", function()
    assert.same({ 100, 1 }, weights(("\0"):rep(5000) .. "\1", { "node1", "node2" }, both))
  end)

  it("is unknown with a ring without any live node", function()
    assert.same({}, weights("\0", { "other" }, both))
    local limiter = new()
    limiter.on_shares(0, both)
    assert.is_nil(weight_of(limiter, "node1"))
  end)

  it("is relative to live nodes only", function()
    local shares = { node1 = share(1, 1), node2 = share(0, 0) }
    local limiter = new()
    limiter.on_shares(0, shares)
    limiter.on_ring(assert(ring_of.new(1, { "node1", "node2" }, "\0\1\1")))
    assert.equal(100, weight_of(limiter, "node1"))
    assert.equal("out", (limiter.wanted("node2", 0)))
  end)
end)

describe("a server", function()
  it("is out when its node is drained or its agent silent, while others live", function()
    local limiter = new()
    limiter.on_shares(0, { node1 = share(9, 9), node2 = share(9, 9), node3 = share(0, 0) })
    limiter.on_shares(3, { node1 = share(9, 9) })
    assert.equal("limited", (limiter.wanted("node2", 3)))
    limiter.on_shares(3.1, { node1 = share(9, 9) })
    assert.equal("limited", (limiter.wanted("node1", 3.1)))
    assert.equal("out", (limiter.wanted("node2", 3.1)))
    assert.equal("out", (limiter.wanted("node3", 3.1)))
    assert.is_nil(limiter.wanted("nobody", 3.1))
    limiter.on_shares(7, {})
    assert.is_nil(limiter.wanted("node1", 7))
    assert.is_nil(limiter.wanted("node3", 7))
  end)

  it("is left to the first tier if the snapshot is too old, and limited again with the next", function()
    local limiter = new()
    assert.is_nil(limiter.wanted("node1", 0))
    limiter.on_shares(0, { node1 = share(9, 9) })
    assert.equal("limited", (limiter.wanted("node1", 10)))
    assert.is_nil(limiter.wanted("node1", 10.1))
    limiter.on_shares(60, { node1 = share(9, 9) })
    assert.equal("limited", (limiter.wanted("node1", 60)))
  end)

  it("with a mean cost of 0 is unknown", function()
    local limiter = new()
    limiter.on_shares(0, { node1 = share(9, 9, 0), node2 = share(9, 9) })
    assert.is_nil(limiter.wanted("node1", 0))
    assert.equal(9, limit_of(limiter, "node2"))
  end)
end)

describe("demand", function()
  it("is the smoothed arrivals in mean costs, including unplaced requests", function()
    local limiter = new()
    limiter.on_shares(0, { node1 = share(90, 9, 10), node2 = share(90, 9, 10) })
    limiter.end_period(counters({ node1 = 1000, node2 = 0 }))
    assert.equal(0, told(limiter, counters({ node1 = 1000 })).node1.demand)
    local now_there = counters({ node1 = 1008, node2 = 0 }, nil, 4)
    limiter.end_period(now_there)
    local found = told(limiter, now_there)
    assert.equal(50, found.node1.demand)
    assert.equal(10, found.node2.demand)
  end)

  it("is per second for any period", function()
    local limiter = limiter_of.new({ period = 0.25, age_limit = 10, lease = 3 })
    limiter.on_shares(0, { node1 = share(9, 9) })
    for periods = 0, 4 do
      limiter.end_period(counters({ node1 = 10 * periods }))
    end
    assert.is_near(20, told(limiter, counters({ node1 = 40 })).node1.demand, 0.001)
  end)

  it("continues after counters restart, and decays", function()
    local limiter = new()
    limiter.on_shares(0, { node1 = share(9, 9) })
    limiter.end_period(counters({ node1 = 1000 }, nil, 50))
    for _, arrived in ipairs({ 1064, 3 }) do
      limiter.end_period(counters({ node1 = arrived }))
    end
    assert.equal(16, told(limiter, counters({ node1 = 3 })).node1.demand)
    for _ = 1, 30 do
      limiter.end_period(counters({ node1 = 3 }))
    end
    assert.equal(0, told(limiter, counters({ node1 = 3 })).node1.demand)
  end)

  it("is reported with the maximum in flight: the share or the present cost", function()
    local limiter = new()
    limiter.on_shares(0, { node1 = share(90, 9, 10) })
    assert.equal(90, told(limiter, counters({ node1 = 0 }, { node1 = 4 })).node1.held)
    assert.equal(120, told(limiter, counters({ node1 = 0 }, { node1 = 12 })).node1.held)
  end)

  it("is reported early if much of the shares is given up", function()
    local limiter = new()
    assert.is_false(limiter.on_shares(0, { node1 = share(100, 100) }))
    assert.is_false(limiter.on_shares(1, { node1 = share(95, 100) }))
    assert.is_true(limiter.on_shares(2, { node1 = share(80, 100) }))
  end)
end)
