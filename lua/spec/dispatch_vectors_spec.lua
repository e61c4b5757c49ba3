-- Replays the decisions of Rust's dispatcher from agent/core/vectors/dispatch.json.

package.path = "lua/?.lua;" .. package.path

local dispatcher_of = require("plimsoll.dispatcher")
local json = require("dkjson")
local ring_of = require("plimsoll.ring")

local file = assert(io.open("agent/core/vectors/dispatch.json"))
local data, _, problem = json.decode(file:read("a"), 1, json.null)
file:close()
assert(data, problem)

local function told(value)
  if value ~= json.null then
    return value
  end
end

local function replay(case)
  local state = case.seed
  local settings = {
    policy = case.policy, age_limit = case.age_limit, lease = case.lease, spill = case.spill,
    cost = { min = case.least_cost },
    news = { update = case.update, phase = case.phase },
    scheduler = { arrivals = 100, max_nodes = 3, interval = 0.1, artificial = 0.05 },
  }
  local dispatcher = assert(dispatcher_of.new(settings, case.servers, function()
    state = (state * 1664525 + 1013904223) & 0xffffffff
    return state
  end))
  local holders = {}
  for number, step in ipairs(case.steps) do
    local at = ("step %d, %s"):format(number, step["do"])
    if step["do"] == "shares" then
      local shares = {}
      for _, node in ipairs(step.nodes) do
        shares[node[1]] = {
          granted = node[2], bound_jobs = node[3], mean_cost = node[4], jobs = node[5], load = node[6],
        }
      end
      assert.equal(step.given_up, dispatcher.on_shares(step.now, step.dispatchers, shares), at)
    elseif step["do"] == "lapse" then
      dispatcher.lapse(step.since, step.now)
    elseif step["do"] == "time" then
      dispatcher.on_time(step.now)
    elseif step["do"] == "ring" then
      dispatcher.on_ring(assert(ring_of.new(step.version, step.names, string.char(table.unpack(step.owners)))))
    elseif step["do"] == "admit" then
      local holder = {}
      holders[#holders + 1] = holder
      local server, reason = dispatcher.admit(step.now, told(step.hash), step.cost, holder, nil, step.class)
      assert.equal(told(step.verdict), server or reason, at)
      holder.server = server
    elseif step["do"] == "finish" then
      local holder = holders[step.request + 1]
      local items, jobs, load = told(step.items), told(step.jobs), told(step.load)
      dispatcher.finish(holder, step.now, holder.server, step.status, items, jobs, load)
    elseif step["do"] == "abandon" then
      dispatcher.abandon(holders[step.request + 1], told(step.left_at))
    elseif step["do"] == "report" then
      dispatcher.end_period()
      local report, found = dispatcher.report(), {}
      for i = 1, #report, 3 do
        local demand, held = report[i + 1]:match("^(.*)/(.*)$")
        found[report[i]] = { demand = tonumber(demand), held = tonumber(held), observation = report[i + 2] }
      end
      for _, node in ipairs(step.nodes) do
        local own = found[node[1]]
        assert.near(node[2], own.demand, 1e-5 * math.max(1, node[2]), at)
        assert.near(node[3], own.held, 1e-5 * math.max(1, node[3]), at)
        assert.equal(node[4], own.observation, at)
      end
    else
      error(at .. ": is not known")
    end
  end
end

describe("the dispatcher's vectors", function()
  for number, case in ipairs(data.cases) do
    it(case.policy .. " decides as Rust does, case " .. number, function()
      replay(case)
    end)
  end
end)
