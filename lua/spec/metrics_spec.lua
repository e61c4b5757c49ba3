package.path = "lua/?.lua;" .. package.path

local dispatcher_of = require("plimsoll.dispatcher")
local metrics = require("plimsoll.metrics")

local SETTINGS = {
  policy = "fc_prop", age_limit = 10, lease = 3, spill = 0.5, cost = { min = 1 },
}

local function fresh(granted)
  local dispatcher = assert(dispatcher_of.new(SETTINGS, { "node1", "node2" }, function()
    return 0
  end))
  local shares = {}
  for name, cost in pairs(granted) do
    shares[name] = { granted = cost, bound_jobs = cost, mean_cost = 1, jobs = 0, load = 0 }
  end
  dispatcher.on_shares(0, 1, shares)
  return dispatcher
end

local function shown(...)
  local threads = {}
  for i, dispatcher in ipairs({ ... }) do
    threads[i] = assert(metrics.read(metrics.text(dispatcher.figures(2)), 2))
  end
  return metrics.render("stocks", { "node1", "node2" }, threads)
end

local function value(text, name, node)
  local labels = '{plimsoll_cluster="stocks"' .. (node and (',node="' .. node .. '"') or "") .. "} "
  local pattern = ("\nplimsoll_" .. name .. labels):gsub("%p", "%%%0") .. "([^\n]+)"
  return tonumber(text:match(pattern))
end

describe("metrics", function()
  it("aggregate the threads", function()
    local one, two = fresh({ node1 = 2 }), fresh({ node1 = 1, node2 = 3 })
    local holders = {}
    for _, dispatcher in ipairs({ one, one, one, two }) do
      local holder = {}
      holders[#holders + 1] = holder
      dispatcher.admit(1, nil, 1, holder)
    end
    one.finish(holders[1], 1.5, "node1", 200, 7)
    one.abandon(holders[2])
    two.finish(holders[4], 1.5, "node2", 503)
    local text = shown(one, two)
    assert.equal(3, value(text, "admitted_total"))
    assert.equal(1, value(text, "refused_total"))
    assert.equal(1, value(text, "abandoned_total"))
    assert.equal(0, value(text, "undecided_total"))
    assert.equal(0, value(text, "in_flight_requests"))
    assert.equal(3, value(text, "node_share_cost", "node1"))
    assert.equal(3, value(text, "node_share_cost", "node2"))
    assert.equal(1, value(text, "node_answered_total", "node1"))
    assert.equal(1, value(text, "node_failed_total", "node1"))
    assert.equal(1, value(text, "node_failed_total", "node2"))
    assert.equal(7, value(text, "node_cost_total", "node1"))
    assert.equal(2, value(text, "news_age_seconds"))
  end)

  it("count requests in flight as placed", function()
    local dispatcher = fresh({ node1 = 10, node2 = 10 })
    dispatcher.admit(1, nil, 4, {})
    dispatcher.admit(1, nil, 2.5, {})
    local text = shown(dispatcher)
    assert.equal(2, value(text, "admitted_total"))
    assert.equal(2, value(text, "in_flight_requests"))
    assert.equal(6.5, value(text, "in_flight_cost"))
    assert.equal(4, value(text, "node_in_flight_cost", "node1"))
  end)

  it("count by class once there is a lower one", function()
    local one, two = fresh({ node1 = 4 }), fresh({ node1 = 4 })
    for _, class in ipairs({ 0, 0, 2, 2 }) do
      one.admit(1, nil, 1, {}, nil, class)
    end
    one.admit(1, nil, 1, {}, nil, 3)
    two.admit(1, nil, 1, {}, nil, 1)
    local text = shown(one, two)
    local function of(name, class)
      local pattern = '\nplimsoll_class_%s_total{plimsoll_cluster="stocks",class="%d"} (%%d+)'
      return tonumber(text:match(pattern:format(name, class)))
    end
    -- Those before the first of a lower class are not counted.
    assert.same({ 0, 1, 2, 0 }, { of("admitted", 0), of("admitted", 1), of("admitted", 2), of("admitted", 3) })
    assert.same({ 0, 0, 0, 1 }, { of("refused", 0), of("refused", 1), of("refused", 2), of("refused", 3) })
    two.admit(1, nil, 1, {}, nil, 0)
    text = shown(one, two)
    assert.equal(1, of("admitted", 0))
    assert.is_nil(shown(fresh({ node1 = 1 })):find("class", 1, true))
  end)

  it("have no age before the first snapshot, and count undecided requests", function()
    local dispatcher = assert(dispatcher_of.new(SETTINGS, { "node1", "node2" }, function()
      return 0
    end))
    assert.is_nil(dispatcher.admit(1, nil, 1, {}))
    local text = shown(dispatcher)
    assert.is_nil(value(text, "news_age_seconds"))
    assert.equal(1, value(text, "undecided_total"))
    assert.equal(0, value(text, "node_share_cost", "node1"))
  end)

  it("show the oldest ring version of all threads", function()
    local one, two = fresh({ node1 = 1 }), fresh({ node1 = 1 })
    for version, dispatcher in pairs({ [12] = one, [11] = two }) do
      dispatcher.on_ring({ version = version, names = { "node1" }, owners = ("\0"):rep(256), slots = 256 })
    end
    assert.equal(11, value(shown(one, two), "proxy_ring_version"))
    assert.equal(0, value(shown(one, fresh({ node1 = 1 })), "proxy_ring_version"))
  end)

  it("keep all digits of a large counter", function()
    local figures = { 1e15 - 1, 0, 0, 1, 0.25 }
    for _ = 1, 8 + 12 do
      figures[#figures + 1] = 0
    end
    assert.same(figures, metrics.read(metrics.text(figures), 2))
  end)

  it("ignore a text for other servers", function()
    assert.is_nil(metrics.read("1 2 3", 2))
    assert.is_nil(metrics.read("", 0))
    assert.equal("", metrics.render("stocks", { "node1" }, {}))
  end)
end)
