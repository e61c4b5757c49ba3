-- Replays Rust's decisions in agent/core/vectors/placement.json.

package.path = "lua/?.lua;lua/?/init.lua;" .. package.path

local follower_of = require("plimsoll.placement.follower")
local json = require("dkjson")

local LIMIT = 10
local TERMS = { request_limit = LIMIT, lease = 3, hold = false }

local function cases()
  local file = assert(io.open("agent/core/vectors/placement.json"))
  local text = file:read("a")
  file:close()
  local data, _, problem = json.decode(text, 1, json.null)
  assert(data, problem)
  return data.cases
end

local function run(steps)
  local now, tickets, count = 0, {}, 0
  local follower = follower_of.new(function(_, rest)
    return rest
  end)
  local does = {
    join = function(step)
      assert.is_true(follower.joined("g", step.version, step.entries, 1, TERMS))
    end,
    table = function(step)
      assert.is_true(follower.on_table(step.version, step.entries, 1))
    end,
    delta = function(step)
      assert.equal(step.gap ~= json.null and step.gap or nil, follower.on_delta(step.text))
    end,
    suspend = function()
      follower.suspend()
    end,
    route = function(step)
      local ticket = follower.route(now, os.time, step.name, step.rest)
      assert.equal(step.node ~= json.null and step.node or nil, ticket and ticket.node)
      if ticket then
        tickets[count], count = ticket, count + 1
      end
    end,
    answered = function(step)
      follower.answered(tickets[step.ticket])
    end,
    unanswered = function(step)
      follower.unanswered(tickets[step.ticket], now)
    end,
    later = function()
      now = now + LIMIT
    end,
  }
  for number, step in ipairs(steps) do
    does[step.op](step)
    local version, busy = follower.report(now)
    if busy then
      table.sort(busy)
    end
    local what = ("step %d, %s"):format(number, step.op)
    if step.idle ~= nil then
      assert.equal(step.told, version, what)
      assert.same(step.busy, busy, what)
      local under_way, in_doubt = follower.at_work()
      assert.equal(step.idle, under_way == 0 and in_doubt == 0, what)
    end
  end
end

describe("the follower's vectors", function()
  for number, case in ipairs(cases()) do
    it("route and report like Rust, case " .. number, function()
      run(case.steps)
    end)
  end
end)

describe("a version beyond 2^53 - 1", function()
  it("is refused", function()
    local follower = follower_of.new(function()
      return 0
    end)
    local entries = {}
    for rest = 0, follower_of.RESTS - 1 do
      entries[#entries + 1] = "*" .. rest
      entries[#entries + 1] = "node1"
    end
    local last = (1 << 53) - 1
    assert.is_nil(follower.joined("g", last + 1, entries, 1, TERMS))
    assert.is_true(follower.joined("g", last - 1, entries, 1, TERMS))
    assert.equal("wrong", follower.on_delta(("%d %d *0 node2"):format(last - 1, last + 1)))
    assert.is_nil(follower.on_delta(("%d %d *0 node2"):format(last - 1, last)))
    assert.equal(last, follower.version())
  end)
end)
