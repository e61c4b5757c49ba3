package.path = "lua/?.lua;" .. package.path

local dispatcher_of = require("plimsoll.dispatcher")
local ring_of = require("plimsoll.ring")

local SERVERS = { "node1", "node2", "node3" }

local function share(granted, more)
  local result = { granted = granted, bound_jobs = granted, mean_cost = 1, jobs = 0, load = 0 }
  for key, value in pairs(more or {}) do
    result[key] = value
  end
  return result
end

local function fresh(policy, shares, settings)
  settings = settings or {}
  settings.policy, settings.age_limit, settings.lease, settings.cost = policy, 10, 3, { min = 0.1 }
  settings.spill = 0.8
  settings.news = settings.news or { update = "periodic", phase = 0 }
  local state = 1
  local dispatcher = assert(dispatcher_of.new(settings, SERVERS, function()
    state = (state * 1103515245 + 12345) & 0xffffffff
    return state
  end))
  dispatcher.on_shares(0, 1, shares)
  return dispatcher
end

-- Names of servers, and holders of requests.
local function counted(dispatcher, times, cost)
  local counts, holders = {}, {}
  for _ = 1, times do
    local holder = {}
    local name = dispatcher.admit(0, nil, cost or 1, holder)
    if name then
      counts[name] = (counts[name] or 0) + 1
      holders[#holders + 1] = holder
    end
  end
  return counts, holders
end

local function refusal(dispatcher, now)
  local name, reason = dispatcher.admit(now or 0, nil, 1, {})
  assert.is_nil(name)
  return reason
end

describe("admission", function()
  it("fills each node up to its share and refuses further requests", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10), node2 = share(20) })
    local counts, holders = counted(dispatcher, 40)
    assert.same({ node1 = 10, node2 = 20 }, counts)
    assert.equal("full", refusal(dispatcher))
    assert.equal(11, dispatcher.refused)
    assert.equal(30, #holders)
  end)

  it("fills nodes evenly", function()
    local dispatcher = fresh("fc_prop", { node1 = share(100), node2 = share(200), node3 = share(300) })
    assert.same({ node1 = 10, node2 = 20, node3 = 30 }, (counted(dispatcher, 60)))
  end)

  it("admits a request larger than a share alone", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local holder = {}
    assert.equal("node1", dispatcher.admit(0, nil, 50, holder))
    assert.equal("full", refusal(dispatcher))
    dispatcher.finish(holder, 1, "node1", 200, 50)
    assert.equal("node1", (dispatcher.admit(1, nil, 1, {})))
  end)

  it("leaves the decision to the proxy without a fresh snapshot", function()
    local dispatcher = fresh("fc_prop", { node1 = share(1) })
    local _, holders = counted(dispatcher, 1)
    assert.is_nil(refusal(dispatcher, 10.5))
    dispatcher.on_shares(10.6, 1, { node1 = share(1) })
    assert.equal("full", refusal(dispatcher, 10.7))
    assert.equal(1, #holders)
  end)

  it("never chooses a server that is down, and leaves the decision to the proxy if all are", function()
    local dispatcher = fresh("fc_prop", { node1 = share(100), node2 = share(100) })
    dispatcher.on_server(1, 0, false, 0)
    assert.same({ node2 = 5 }, (counted(dispatcher, 5)))
    dispatcher.on_server(2, 0, false, 5)
    assert.is_nil(refusal(dispatcher))
    dispatcher.on_server(1, 0, true, 0)
    assert.same({ node1 = 5 }, (counted(dispatcher, 5)))
  end)

  it("does not choose a server whose node left", function()
    local dispatcher = fresh("fc_prop", { node1 = share(100), node2 = share(100) })
    dispatcher.on_shares(3.5, 1, { node2 = share(100) })
    assert.same({ node2 = 4 }, (counted(dispatcher, 4)))
    assert.is_false(dispatcher.knows("node1"))
    assert.is_false(dispatcher.knows("node9"))
  end)

  it("keeps shares for a lease when Redis restarts empty, then leaves the decision to the proxy", function()
    local dispatcher = fresh("fc_prop", { node1 = share(2) })
    dispatcher.on_shares(1, 1, {})
    assert.is_true(dispatcher.knows("node1"))
    local counts, holders = counted(dispatcher, 2)
    assert.same({ node1 = 2 }, counts)
    assert.equal("full", refusal(dispatcher, 1))
    dispatcher.on_shares(3.5, 1, {})
    assert.is_nil(refusal(dispatcher, 3.6))
    assert.equal(2, #holders)
  end)

  it("limits absurd costs", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    for _, cost in ipairs({ -5, 1e300, math.huge }) do
      local holder = {}
      assert.equal("node1", (dispatcher.admit(0, nil, cost, holder)))
      dispatcher.finish(holder, 0, "node1", 200, nil)
      assert.same({ 0, 0 }, { dispatcher.usage("node1") })
    end
  end)

  it("counts a least cost for a request without cost", function()
    local dispatcher = fresh("fc_prop", { node1 = share(1) })
    assert.same({ node1 = 10 }, (counted(dispatcher, 20, 0)))
  end)
end)

describe("accounting", function()
  local function all_returned(dispatcher)
    assert.same({ 0, 0 }, { dispatcher.usage("node1") })
  end

  it("returns to 0 however requests end", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local _, holders = counted(dispatcher, 10, 0.5)
    for i, holder in ipairs(holders) do
      if i % 2 == 0 then
        dispatcher.finish(holder, 1, "node1", 200, 1)
        dispatcher.abandon(holder)
      else
        dispatcher.abandon(holder)
        dispatcher.finish(holder, 1, "node1", 200, 1)
      end
    end
    all_returned(dispatcher)
    assert.equal(5, dispatcher.abandoned)
    assert.matches("^3 5 5.0+ 5 5 ", dispatcher.report()[3])
  end)

  it("releases only requests whose streams are gone", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local _, holders = counted(dispatcher, 10)
    for i = 1, 4 do
      holders[i] = nil
    end
    collectgarbage()
    -- They were last seen alive at 0.5 s; that they left is no failure of the node's.
    assert.is_true(dispatcher.collect(0.5))
    assert.equal(6, select(2, dispatcher.usage("node1")))
    assert.equal("3 0 0.000000 0 0 - 35:4 10 0 6", dispatcher.report()[3])
    for i = 5, 10 do
      dispatcher.finish(holders[i], 1, "node1", 200)
    end
    all_returned(dispatcher)
    assert.is_false(dispatcher.collect(2))
  end)

  it("accepts coroutines as holders", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local streams = {}
    for i = 1, 6 do
      streams[i] = coroutine.create(function()
        dispatcher.admit(0, nil, 1, coroutine.running())
        coroutine.yield()
        dispatcher.finish(coroutine.running(), 1, "node1", 200)
      end)
      coroutine.resume(streams[i])
    end
    coroutine.resume(streams[1])
    streams[2] = nil
    collectgarbage()
    dispatcher.collect(0)
    assert.equal(4, select(2, dispatcher.usage("node1")))
    assert.matches("^3 1 ", dispatcher.report()[3])
    assert.equal(1, dispatcher.abandoned)
  end)

  it("counts a stream that is admitted twice once", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local holder = {}
    dispatcher.admit(0, nil, 1, holder)
    dispatcher.admit(0, nil, 1, holder)
    assert.equal(1, select(2, dispatcher.usage("node1")))
    dispatcher.finish(holder, 1, "node1", 200)
    all_returned(dispatcher)
  end)

  it("adopts HAProxy's count after it was lower for a second", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local _, holders = counted(dispatcher, 5)
    dispatcher.on_server(1, 0.1, true, 2)
    dispatcher.on_server(1, 0.6, true, 3)
    assert.equal(5, select(2, dispatcher.usage("node1")))
    dispatcher.on_server(1, 1.2, true, 2)
    assert.equal(3, select(2, dispatcher.usage("node1")))
    for _, holder in ipairs(holders) do
      dispatcher.finish(holder, 2, "node1", 200)
    end
    all_returned(dispatcher)
  end)

  it("keeps its count if HAProxy's was as high in between", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local _, holders = counted(dispatcher, 5)
    dispatcher.on_server(1, 0.1, true, 2)
    dispatcher.on_server(1, 0.6, true, 5)
    dispatcher.on_server(1, 1.2, true, 2)
    assert.equal(5, select(2, dispatcher.usage("node1")))
    assert.equal(5, #holders)
  end)

  it("counts a redispatched request at its final server", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10), node2 = share(10) })
    local holder = {}
    dispatcher.on_server(2, 0, false, 0)
    dispatcher.admit(0, nil, 1, holder)
    dispatcher.finish(holder, 0.5, "node2", 200, 7)
    local flat = dispatcher.report()
    assert.matches("^3 0 ", flat[3])
    assert.matches("^3 1 0.5%d+ 0 7 ", flat[6])
    all_returned(dispatcher)
  end)

  it("reports cumulative counters, and demand with refused requests", function()
    local dispatcher = fresh("fc_prop", { node1 = share(2) })
    local holder = {}
    dispatcher.admit(0, nil, 1, holder)
    local other = {}
    dispatcher.admit(0, nil, 1, other)
    dispatcher.admit(0, nil, 1, {})
    dispatcher.finish(holder, 0.25, "node1", 200, 80)
    dispatcher.end_period()
    local flat = dispatcher.report()
    assert.equal("node1", flat[1])
    -- Half of three, and one is still under way of a share of two.
    assert.equal("1.5/2", flat[2])
    assert.equal("3 1 0.250000 0 80 31:1 - 3 1 1", flat[3])
    -- 1 ms · 1.2^31 is 0.285 s, and 1.2^30 is 0.237 s.
    assert.equal("3 1 0.250000 0 80 31:1 - 3 1 1", dispatcher.report()[3])
  end)

  it("holds the known share, and the cost in flight of a larger former one", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local function held()
      return tonumber(dispatcher.report()[2]:match("/(.*)$"))
    end
    assert.equal(10, held())
    local _, holders = counted(dispatcher, 8)
    assert.is_false(dispatcher.on_shares(0, 2, { node1 = share(9.5) }))
    assert.equal(9.5, held())
    assert.is_true(dispatcher.on_shares(0, 2, { node1 = share(5) }))
    assert.equal(8, held())
    for _, holder in ipairs(holders) do
      dispatcher.finish(holder, 0.1, "node1", 200, 1)
    end
    assert.equal(5, held())
    -- Without news for a lease it sends nothing there.
    dispatcher.on_shares(100, 2, {})
    assert.equal(0, held())
  end)

  it("reports no demand once it has decayed", function()
    local dispatcher = fresh("fc_prop", { node1 = share(1000) })
    local _, holders = counted(dispatcher, 1000)
    for _, holder in ipairs(holders) do
      dispatcher.finish(holder, 0.25, "node1", 200, 1)
    end
    dispatcher.end_period()
    assert.equal("500/1000", dispatcher.report()[2])
    -- A least cost is 0.1 here, and 500 is halved 23 times to be less than a thousandth of it.
    for _ = 1, 22 do
      dispatcher.end_period()
      assert.is_not.equal("0/1000", dispatcher.report()[2])
    end
    dispatcher.end_period()
    assert.equal("0/1000", dispatcher.report()[2])
  end)

  it("does not count a failure as a response", function()
    local dispatcher = fresh("fc_prop", { node1 = share(2) })
    local holder = {}
    dispatcher.admit(0, nil, 1, holder)
    dispatcher.finish(holder, 0.001, "node1", 503, nil)
    assert.equal("3 0 0.000000 1 0 - - 1 0 0", dispatcher.report()[3])
  end)

  it("returns the items to learn for a route", function()
    local dispatcher = fresh("fc_prop", { node1 = share(10) })
    local holders = { {}, {}, {} }
    dispatcher.admit(0, nil, 1, holders[1], "quotes")
    dispatcher.admit(0, nil, 1, holders[2], "quotes")
    dispatcher.admit(0, nil, 1, holders[3])
    assert.same({ 7, "quotes" }, { dispatcher.finish(holders[1], 1, "node1", 200, 7) })
    assert.is_nil(dispatcher.finish(holders[2], 1, "node1", 200))
    assert.same({ 7 }, { dispatcher.finish(holders[3], 1, "node1", 200, 7) })
  end)
end)

describe("the shared ring", function()
  local owners = string.rep("\0", 500) .. string.rep("\1", 500)

  local function on_ring(shares)
    local dispatcher = fresh("fc_hash", shares)
    dispatcher.on_ring(assert(ring_of.new(3, { "node2", "node3" }, owners)))
    return dispatcher
  end

  it("places by key, mapping owners by name and not by position", function()
    local dispatcher = on_ring({ node2 = share(100), node3 = share(100) })
    assert.equal("node2", (dispatcher.admit(0, 0, 1, {})))
    assert.equal("node3", (dispatcher.admit(0, 0xffffffff, 1, {})))
  end)

  it("spills over if the owner is full, down or unknown to the proxy", function()
    local holder = {}
    local dispatcher = on_ring({ node2 = share(1), node3 = share(100) })
    assert.equal("node2", (dispatcher.admit(0, 0, 1, holder)))
    assert.equal("node3", (dispatcher.admit(0, 0, 1, {})))
    dispatcher = on_ring({ node2 = share(100), node3 = share(100) })
    dispatcher.on_server(2, 0, false, 0)
    assert.equal("node3", (dispatcher.admit(0, 0, 1, holder)))
    dispatcher = on_ring({ node3 = share(100) })
    assert.equal("node3", (dispatcher.admit(0, 0, 1, holder)))
  end)

  it("refuses if all owners of slots are full", function()
    local holders = { {}, {} }
    local dispatcher = on_ring({ node2 = share(1), node3 = share(1) })
    dispatcher.admit(0, 0, 1, holders[1])
    dispatcher.admit(0, 0, 1, holders[2])
    local name, reason = dispatcher.admit(0, 0, 1, {})
    assert.is_nil(name)
    assert.equal("full", reason)
  end)

  it("leaves the decision to the proxy before the first ring", function()
    local dispatcher = fresh("fc_hash", { node1 = share(10) })
    assert.is_nil((dispatcher.admit(0, 0, 1, {})))
  end)

  it("places a request without a key by bounds", function()
    local dispatcher = on_ring({ node2 = share(100), node3 = share(100) })
    assert.is_truthy((dispatcher.admit(0, nil, 1, {})))
  end)
end)

describe("the schedulers", function()
  local policies = {
    "round_robin", "weighted_round_robin", "weighted_random", "basic_li", "job_informed", "load_informed",
  }
  for _, policy in ipairs(policies) do
    it(policy .. " respects the bounds", function()
      local settings = { scheduler = { arrivals = 100, max_nodes = 3, interval = 0.1, artificial = 0.01 } }
      local shares = { node1 = share(4, { jobs = 3, load = 0.5 }), node2 = share(8), node3 = share(1) }
      local dispatcher = fresh(policy, shares, settings)
      local counts, holders = counted(dispatcher, 30)
      assert.same({ node1 = 4, node2 = 8, node3 = 1 }, counts)
      assert.equal(13, #holders)
    end)
  end

  it("admit a request alone if no node has a share", function()
    local dispatcher = fresh("round_robin", { node1 = share(0, { bound_jobs = 1 }) })
    assert.equal("node1", (dispatcher.admit(0, nil, 1, {})))
  end)

  it("place nothing on a drained node", function()
    local dispatcher = fresh("round_robin", { node1 = share(0), node2 = share(0, { bound_jobs = 1 }) })
    local name = dispatcher.admit(0, nil, 1, {})
    assert.equal("node2", name)
    name = dispatcher.admit(0, nil, 1, {})
    assert.is_nil(name)
  end)

  it("refuses an unknown name", function()
    local dispatcher, problem = dispatcher_of.new({ policy = "fastest", cost = { min = 1 } }, SERVERS)
    assert.is_nil(dispatcher)
    assert.matches("fastest", problem)
  end)
end)
