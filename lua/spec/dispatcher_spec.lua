package.path = "lua/?.lua;" .. package.path

local dispatcher_of = require("plimsoll.dispatcher")
local ring_of = require("plimsoll.ring")

local SERVERS = { "node1", "node2", "node3" }
local UP = function()
  return true
end

local function share(granted, more)
  local result = { granted = granted, bound_jobs = granted, mean_cost = 1, jobs = 0, load = 0 }
  for key, value in pairs(more or {}) do
    result[key] = value
  end
  return result
end

local function fresh(policy, shares, settings)
  settings = settings or {}
  settings.policy, settings.age_limit, settings.lease = policy, 10, 3
  local state = 1
  local dispatcher = assert(dispatcher_of.new(settings, SERVERS, function()
    state = (state * 1103515245 + 12345) & 0xffffffff
    return state
  end))
  dispatcher:on_shares(0, 1, shares)
  return dispatcher
end

local function counted(dispatcher, times, cost, is_up)
  local counts, entries = {}, {}
  for _ = 1, times do
    local entry = dispatcher:admit(0, nil, cost or 1, is_up or UP)
    if entry then
      counts[entry.node.name] = (counts[entry.node.name] or 0) + 1
      entries[#entries + 1] = entry
    end
  end
  return counts, entries
end

describe("admission", function()
  it("fills each node up to its share and refuses what is over", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10), node2 = share(20) })
    assert.same({ node1 = 10, node2 = 20 }, (counted(dispatcher, 40)))
    local entry, reason = dispatcher:admit(0, nil, 1, UP)
    assert.is_nil(entry)
    assert.equal("full", reason)
    assert.equal(11, dispatcher.refused)
  end)

  it("keeps the filling even on the way", function()
    local dispatcher = fresh("fc_prop", { node1 = share(100), node2 = share(200), node3 = share(300) })
    assert.same({ node1 = 10, node2 = 20, node3 = 30 }, (counted(dispatcher, 60)))
  end)

  it("takes a request that is larger than a share alone, and no second one", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local entry = dispatcher:admit(0, nil, 50, UP)
    assert.equal("node1", entry.node.name)
    assert.is_nil((dispatcher:admit(0, nil, 1, UP)))
    dispatcher:finish(entry, 1, "node1", false, 50)
    assert.is_truthy((dispatcher:admit(1, nil, 1, UP)))
  end)

  it("leaves it to the proxy when the news is old, or there is none", function()
    local dispatcher = fresh("fc_prop", { node1 = share(1) })
    counted(dispatcher, 1)
    local entry, reason = dispatcher:admit(10.5, nil, 1, UP)
    assert.is_nil(entry)
    assert.is_nil(reason)
    dispatcher:on_shares(10.6, 1, { node1 = share(1) })
    assert.equal("full", select(2, dispatcher:admit(10.7, nil, 1, UP)))
  end)

  it("never names a server that is down, and leaves it to the proxy when all are", function()
    local dispatcher = fresh("fc_prop", { node1 = share(100), node2 = share(100) })
    local counts = counted(dispatcher, 5, 1, function(name)
      return name == "node2"
    end)
    assert.same({ node2 = 5 }, counts)
    local entry, reason = dispatcher:admit(0, nil, 1, function() end)
    assert.is_nil(entry)
    assert.is_nil(reason)
  end)

  it("does not name a server whose node left", function()
    local dispatcher = fresh("fc_prop", { node1 = share(100), node2 = share(100) })
    dispatcher:on_shares(3.5, 1, { node2 = share(100) })
    assert.same({ node2 = 4 }, (counted(dispatcher, 4)))
    assert.is_false(dispatcher:knows("node1"))
  end)

  it("holds the shares for a lease when Redis comes back empty, then leaves it to the proxy", function()
    local dispatcher = fresh("fc_prop", { node1 = share(2) })
    dispatcher:on_shares(1, 1, {})
    assert.is_true(dispatcher:knows("node1"))
    assert.same({ node1 = 2 }, (counted(dispatcher, 2)))
    assert.equal("full", select(2, dispatcher:admit(1, nil, 1, UP)))
    dispatcher:on_shares(3.5, 1, {})
    local entry, reason = dispatcher:admit(3.6, nil, 1, UP)
    assert.is_nil(entry)
    assert.is_nil(reason)
  end)

  it("is not put out by absurd costs", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    for _, cost in ipairs({ -5, 1e300, math.huge }) do
      local entry = dispatcher:admit(0, nil, cost, UP)
      dispatcher:finish(entry, 0, "node1", false, nil)
      assert.equal(0, dispatcher.nodes[1].in_flight)
    end
  end)
end)

describe("accounting", function()
  it("returns to nothing however requests end", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local _, entries = counted(dispatcher, 10, 0.1)
    for i, entry in ipairs(entries) do
      if i % 2 == 0 then
        dispatcher:finish(entry, 1, "node1", false, 1)
        dispatcher:abandon(entry)
      else
        dispatcher:abandon(entry)
        dispatcher:finish(entry, 1, "node1", false, 1)
      end
    end
    assert.equal(0, dispatcher.nodes[1].in_flight)
    assert.equal(0, dispatcher.nodes[1].requests)
    assert.equal(5, dispatcher.leaked)
    assert.equal(5, dispatcher.nodes[1].count)
  end)

  it("counts a redispatched request where it ended", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10), node2 = share(10) })
    local entry = dispatcher:admit(0, nil, 1, function(name)
      return name == "node1"
    end)
    dispatcher:finish(entry, 0.5, "node2", false, 7)
    assert.equal(0, dispatcher.nodes[1].count)
    assert.equal(1, dispatcher.nodes[2].count)
    assert.equal(7, dispatcher.nodes[2].cost)
    assert.equal(0, dispatcher.nodes[1].in_flight)
  end)

  it("reports counters that only grow, and demand with what was refused", function()
    local dispatcher = fresh("fc_prop", { node1 = share(2) })
    local entry = dispatcher:admit(0, nil, 1, UP)
    dispatcher:admit(0, nil, 1, UP)
    dispatcher:admit(0, nil, 1, UP)
    dispatcher:finish(entry, 0.25, "node1", false, 80)
    local flat = dispatcher:report()
    assert.equal("node1", flat[1])
    assert.equal(1.5, tonumber(flat[2]))
    assert.equal("1 1 0.250000 0 80 31:1", flat[3])
    -- 1 ms · 1.2^31 is 0.285 s, and 1.2^30 is 0.237 s.
    assert.equal("1 1 0.250000 0 80 31:1", dispatcher:report()[3])
  end)

  it("does not count a failure as an answer", function()
    local dispatcher = fresh("fc_prop", { node1 = share(2) })
    dispatcher:finish(dispatcher:admit(0, nil, 1, UP), 0.001, "node1", true, nil)
    assert.equal("1 0 0.000000 1 0 -", dispatcher:report()[3])
  end)
end)

describe("the shared ring", function()
  local owners = string.rep("\0", 500) .. string.rep("\1", 500)

  local function on_ring(shares)
    local dispatcher = fresh("fc_hash", shares)
    dispatcher:on_ring(assert(ring_of.new(3, { "node2", "node3" }, owners)))
    return dispatcher
  end

  it("places by the key, by names and not by positions", function()
    local dispatcher = on_ring({ node2 = share(100), node3 = share(100) })
    assert.equal("node2", dispatcher:admit(0, 0, 1, UP).node.name)
    assert.equal("node3", dispatcher:admit(0, 0xffffffff, 1, UP).node.name)
  end)

  it("spills over when the owner is full, down or unknown to the proxy", function()
    local dispatcher = on_ring({ node2 = share(1), node3 = share(100) })
    assert.equal("node2", dispatcher:admit(0, 0, 1, UP).node.name)
    assert.equal("node3", dispatcher:admit(0, 0, 1, UP).node.name)
    dispatcher = on_ring({ node3 = share(100) })
    assert.equal("node3", dispatcher:admit(0, 0, 1, UP).node.name)
  end)

  it("leaves it to the proxy before the first ring", function()
    local dispatcher = fresh("fc_hash", { node1 = share(10) })
    assert.is_nil((dispatcher:admit(0, 0, 1, UP)))
  end)

  it("places a request without a key by the bounds", function()
    local dispatcher = on_ring({ node2 = share(100), node3 = share(100) })
    assert.is_truthy((dispatcher:admit(0, nil, 1, UP)))
  end)
end)

describe("the schedulers", function()
  local policies = {
    "round_robin", "weighted_round_robin", "weighted_random", "basic_li", "job_informed", "load_informed",
  }
  for _, policy in ipairs(policies) do
    it(policy .. " keeps to the bounds", function()
      local settings = { scheduler = { arrivals = 100, most_nodes = 3, interval = 0.1, artificial = 0.01 } }
      local shares = { node1 = share(4, { jobs = 3, load = 0.5 }), node2 = share(8), node3 = share(1) }
      local dispatcher = fresh(policy, shares, settings)
      assert.same({ node1 = 4, node2 = 8, node3 = 1 }, (counted(dispatcher, 30)))
    end)
  end

  it("refuses a name it does not know", function()
    local dispatcher, problem = dispatcher_of.new({ policy = "fastest" }, SERVERS)
    assert.is_nil(dispatcher)
    assert.matches("fastest", problem)
  end)
end)
