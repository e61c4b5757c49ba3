package.path = "lua/?.lua;" .. package.path

local coalescer_of = require("plimsoll.coalescer")

local function fresh(periods, settings, agents)
  settings = settings or {}
  local all = {
    max_items = settings.max_items or 1000, max_bytes = settings.max_bytes or 1e6, age_limit = 5,
  }
  local c = coalescer_of.new(all, agents or 1)
  c:at(100)
  c:on_periods(1, periods or { A = 2, B = 3 })
  return c
end

-- An update that passed and was accepted.
local function pass(c, item, sequence)
  local holder = {}
  assert.equal("pass", c:arrived(item, sequence, holder))
  c:ended(item, holder, true)
end

local function hold(c, item, update, sequence)
  assert.equal("hold", c:arrived(item, sequence, {}))
  return c:hold(item, update, sequence)
end

local function texts(due)
  local found = {}
  for _, entry in ipairs(due) do
    found[entry.item] = entry.update
  end
  return found
end

describe("pushed updates", function()
  it("pass for items with their usual period", function()
    local c = fresh({})
    for _ = 1, 5 do
      pass(c, "A")
    end
    assert.equal(0, c.items)
  end)

  it("wait for their period, the latest replacing others, and are then forwarded", function()
    local c = fresh()
    pass(c, "A")
    c:at(100.5)
    local due, replaced = hold(c, "A", "one")
    assert.near(1.5, due, 1e-9)
    assert.is_false(replaced)
    due, replaced = hold(c, "A", "two")
    assert.near(1.5, due, 1e-9)
    assert.is_true(replaced)
    c:at(101.4)
    assert.same({}, c:due(8))
    c:at(102.1)
    assert.same({ A = "two" }, texts(c:due(8)))
    assert.same({}, c:due(8), "once")
    c:flushed("A", "two", true)
    assert.equal(0, c.held)
    assert.equal(0, c.bytes)
    c:at(102.2)
    assert.near(1.9, hold(c, "A", "three"), 1e-9)
  end)

  it("of one item are forwarded one at a time", function()
    local c = fresh()
    local first = {}
    assert.equal("pass", c:arrived("A", nil, first))
    assert.near(0, hold(c, "A", "second"), 1e-9)
    c:at(100.5)
    assert.same({}, c:due(8))
    c:ended("A", first, true)
    c:at(101.5)
    c:at(102.4)
    assert.same({}, c:due(8))
    c:at(102.6)
    assert.same({ A = "second" }, texts(c:due(8)))
    -- While it is in flight.
    hold(c, "A", "third")
    c:flushed("A", "second", true)
    assert.equal(1, c.held)
    assert.equal("hold", c:arrived("A", nil, {}))
  end)

  it("that waited are kept if a newer one fails, and dropped if it is accepted", function()
    local c = fresh()
    pass(c, "A")
    hold(c, "A", "older")
    c:at(101)
    c:at(102)
    c:at(102.01)
    local newer = {}
    assert.equal("pass", c:arrived("A", nil, newer))
    c:ended("A", newer, false)
    assert.equal(1, c.held)
    c:at(102.2)
    assert.same({ A = "older" }, texts(c:due(8)))
    c:flushed("A", "older", false)
    assert.equal(1, c.held)
    newer = {}
    c:at(102.4)
    assert.equal("pass", c:arrived("A", nil, newer))
    c:ended("A", newer, true)
    assert.equal(0, c.held)
  end)

  it("that the service does not accept are retried with backoff", function()
    local c = fresh()
    pass(c, "A")
    hold(c, "A", "one")
    local tries, clock = {}, 100
    while clock < 130 do
      clock = clock + 0.05
      c:at(clock)
      if #c:due(8) > 0 then
        tries[#tries + 1] = clock
        c:flushed("A", "one", false)
      end
    end
    assert.is_true(#tries >= 8 and #tries <= 14, #tries)
    for i = 3, #tries do
      assert.is_true(tries[i] - tries[i - 1] <= 5.2)
    end
    assert.equal(1, c.held)
  end)

  it("that are late or duplicate are refused", function()
    local c = fresh()
    pass(c, "A", 7)
    assert.equal("stale", c:arrived("A", 7, {}))
    assert.equal("stale", c:arrived("A", 6, {}))
    hold(c, "A", "nine", 9)
    assert.equal("stale", c:arrived("A", 8, {}))
    hold(c, "A", "ten", 10)
    c:at(101)
    c:at(102)
    c:at(102.1)
    assert.same({ A = "ten" }, texts(c:due(8)))
  end)

  it("of a feed with restarted numbers pass after a minute, or at once after one without a number", function()
    local c = fresh({ A = 0.5 })
    local clock = 100
    local function wait(seconds)
      for _ = 1, seconds do
        clock = clock + 1
        c:at(clock)
        c:on_periods(1, nil)
      end
    end
    pass(c, "A", 2 ^ 53 - 1)
    wait(58)
    assert.equal("stale", c:arrived("A", 1, {}))
    wait(2)
    pass(c, "A", 1)
    assert.equal("stale", c:arrived("A", 1, {}))
    wait(1)
    pass(c, "A", 1e9)
    wait(1)
    pass(c, "A")
    wait(1)
    pass(c, "A", 1)
    hold(c, "A", "huge", 1e9)
    hold(c, "A", "new", nil)
    hold(c, "A", "two", 2)
  end)

  it("that wait for a newer one in flight are dropped with it", function()
    local c = fresh()
    local holder = {}
    assert.equal("pass", c:arrived("A", 9, holder))
    hold(c, "A", "eight", 8)
    c:ended("A", holder, true)
    assert.equal(0, c.held)
    assert.equal("stale", c:arrived("A", 9, {}))
    hold(c, "A", "ten", 10)
  end)

  it("that failed may be sent again", function()
    local c = fresh()
    local holder = {}
    assert.equal("pass", c:arrived("A", 7, holder))
    c:ended("A", holder, false)
    pass(c, "A", 7)
  end)

  it("are forwarded at once when their item's usual period returns", function()
    local c = fresh()
    pass(c, "A")
    pass(c, "B")
    hold(c, "A", "one")
    hold(c, "B", "two")
    c:at(100.2)
    c:on_periods(1, { B = 3 })
    c:at(100.3)
    assert.same({ A = "one" }, texts(c:due(8)))
    c:flushed("A", "one", true)
    assert.equal(1, c.items)
    pass(c, "A")
    pass(c, "A")
    assert.equal("hold", c:arrived("B", nil, {}))
  end)

  it("are forwarded at once when an agent has been silent for long", function()
    local c = fresh()
    pass(c, "A")
    hold(c, "A", "one")
    for second = 101, 107 do
      c:at(second)
    end
    c:expire()
    c:at(107.1)
    assert.same({ A = "one" }, texts(c:due(8)))
    pass(c, "B")
    -- Its answer is unchanged.
    c:on_periods(1, nil)
    pass(c, "B")
    assert.equal("hold", c:arrived("B", nil, {}))
  end)

  it("use the shortest period that any agent requests", function()
    local c = fresh({ A = 2, B = 3 }, nil, 2)
    assert.same({}, c.periods, "the second has said nothing")
    c:on_periods(2, { A = 1.5, C = 9 })
    assert.same({ A = 1.5 }, c.periods)
  end)

  it("are refused if there is no room, and waiting ones stay", function()
    local c = fresh(nil, { max_bytes = 10 })
    pass(c, "A")
    pass(c, "B")
    hold(c, "A", "12345678")
    assert.is_nil(hold(c, "B", "123"))
    assert.is_truthy(hold(c, "A", "1234567890"))
    assert.is_nil(hold(c, "A", "12345678901"))
    c:at(101)
    c:at(102.1)
    c:at(103)
    assert.same({ A = "1234567890" }, texts(c:due(8)))
  end)

  it("of items beyond the maximum pass", function()
    local c = fresh({ A = 2, B = 2, C = 2 }, { max_items = 2 })
    pass(c, "A")
    pass(c, "B")
    pass(c, "C")
    pass(c, "C")
    assert.equal("hold", c:arrived("A", nil, {}))
    assert.equal(2, c.items)
  end)

  it("tolerate clock jumps", function()
    local c = fresh()
    pass(c, "A")
    c:at(101)
    hold(c, "A", "one")
    c:at(-1e9)
    assert.same({}, c:due(8))
    c:at(1e9)
    assert.same({ A = "one" }, texts(c:due(8)), "a second has passed")
  end)

  it("are all forwarded when the process ends", function()
    local c = fresh()
    pass(c, "A")
    pass(c, "B")
    hold(c, "A", "one")
    hold(c, "B", "two")
    assert.equal(1, #c:due(1, true))
    c:flushed("A", "one", true)
    c:flushed("B", "two", true)
    assert.equal(1, c.held)
    assert.equal(1, #c:due(8, true))
  end)
end)

describe("any order of events", function()
  -- The service accepts updates late or never, and clients push numbers: the newest one is there in the end.
  for seed = 1, 40 do
    it("keeps the latest value and never goes back to an older one, seed " .. seed, function()
      math.randomseed(seed)
      local items = { "A", "B", "C" }
      local c = fresh({ A = 0.5, B = 2, C = 3 })
      local stored, latest, under_way = {}, {}, {}
      local clock, number = 100, 0
      local function finish(i)
        local job = table.remove(under_way, i)
        local good = math.random() < 0.8
        if good then
          -- No older one may follow.
          assert.is_true((stored[job.item] or 0) <= job.number, job.item)
          stored[job.item] = job.number
        elseif job.holder then
          -- Its sender was notified, and sends it again.
          latest[job.item] = latest[job.item] == job.number and stored[job.item] or latest[job.item]
        end
        if job.holder then
          c:ended(job.item, job.holder, good)
        else
          c:flushed(job.item, job.update, good)
        end
      end
      local function step(pushes)
        clock = clock + math.random() * 0.2
        c:at(clock)
        for _, entry in ipairs(c:due(2)) do
          local job = { item = entry.item, update = entry.update, number = tonumber(entry.update) }
          under_way[#under_way + 1] = job
        end
        if pushes then
          local item = items[math.random(#items)]
          number = number + 1
          local holder = {}
          local verdict = c:arrived(item, nil, holder)
          if verdict == "pass" then
            under_way[#under_way + 1] = { item = item, holder = holder, number = number }
          else
            assert.is_truthy(c:hold(item, tostring(number)))
          end
          latest[item] = number
        end
        if #under_way > 0 and math.random() < 0.5 then
          finish(math.random(#under_way))
        end
      end
      for i = 1, 600 do
        step(true)
        if i % 50 == 0 then
          c:on_periods(1, { A = math.random() * 3, B = math.random() * 4, C = 3 })
        end
        c:on_periods(1, nil)
      end
      for _ = 1, 3000 do
        step(false)
        c:on_periods(1, nil)
      end
      assert.equal(0, c.held)
      assert.equal(0, c.bytes)
      for item, newest in pairs(latest) do
        assert.is_true(stored[item] >= newest, ("%s: %d of %d"):format(item, stored[item], newest))
      end
    end)
  end
end)
