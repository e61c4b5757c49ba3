package.path = "lua/?.lua;lua/?/init.lua;" .. package.path

local loads_of = require("plimsoll.placement.loads")

local function told(loads)
  local costs, count = {}, 0
  local text = loads.take()
  for word, cost in text:gmatch("(%S+) (%S+)") do
    costs[word], count = tonumber(cost), count + 1
  end
  return costs, count, text
end

describe("loads", function()
  it("are reported by entry, once", function()
    local loads = loads_of.new()
    loads.add("=orders", "orders", 2)
    loads.add("=orders", "orders", 3)
    loads.add("*7", "x", 1.5)
    assert.same({ ["=orders"] = 5, ["*7:x"] = 1.5 }, (told(loads)))
    assert.equal("-", loads.take())
  end)

  it("name the hottest sets of a rest, and sum up the others", function()
    local loads = loads_of.new()
    for i = 1, 200 do
      loads.add("*3", "n" .. i, i)
    end
    local costs, count = told(loads)
    assert.equal(65, count)
    assert.equal(200, costs["*3:n200"])
    assert.equal(137, costs["*3:n137"])
    assert.is_nil(costs["*3:n136"])
    assert.equal(136 * 137 / 2, costs["*3"])
  end)

  it("stay bounded for any number of names, and lose no cost", function()
    local loads = loads_of.new()
    for i = 1, 20000 do
      loads.add("*" .. i % 64, "n" .. i, 1)
    end
    local costs, count = told(loads)
    assert.equal(128, count)
    local sum = 0
    for _, cost in pairs(costs) do
      sum = sum + cost
    end
    assert.equal(20000, sum)
  end)

  it("report the coldest of many entries later", function()
    local loads = loads_of.new()
    for i = 1, 2000 do
      loads.add("=n" .. i, "n" .. i, i)
    end
    local costs, count = told(loads)
    assert.equal(896, count)
    assert.equal(2000, costs["=n2000"])
    assert.is_nil(costs["=n1104"])
    costs, count = told(loads)
    assert.equal(896, count)
    assert.equal(1104, costs["=n1104"])
    told(loads)
    assert.equal("-", loads.take())
  end)

  it("are dropped by clear", function()
    local loads = loads_of.new()
    loads.add("=a", "a", 1)
    loads.clear()
    assert.equal("-", loads.take())
  end)
end)
