-- Replays Rust's decisions in agent/core/vectors.

package.path = "lua/?.lua;" .. package.path

local json = require("dkjson")
local ring = require("plimsoll.ring")
local schedule = require("plimsoll.schedule")

local function cases(name)
  local file = assert(io.open("agent/core/vectors/" .. name))
  local text = file:read("a")
  file:close()
  local data, _, problem = json.decode(text, 1, json.null)
  assert(data, problem)
  return data.cases
end

local function owners_of(runs)
  local pieces = {}
  for i = 1, #runs, 2 do
    pieces[#pieces + 1] = string.rep(string.char(runs[i]), runs[i + 1])
  end
  return table.concat(pieces)
end

local function names_of(sizes)
  local names = {}
  for i in ipairs(sizes) do
    names[i] = "node" .. i
  end
  return names
end

describe("the ring's vectors", function()
  it("map every hash to Rust's slots and probes", function()
    for _, case in ipairs(cases("keys.json")) do
      for i, slots in ipairs({ 1, 3, 1000, 16384, 65536 }) do
        assert.equal(case.slots[i], ring.slot(case.hash, slots))
      end
      for i, probe in ipairs({ 1, 2, 63 }) do
        assert.equal(case.probes[i], ring.probe_hash(case.hash, probe))
      end
    end
  end)

  it("give every hash Rust's candidates, in order", function()
    for _, case in ipairs(cases("candidates.json")) do
      local table_of = assert(ring.new(1, names_of(case.sizes), owners_of(case.owners)))
      local found = {}
      ring.choose(table_of, case.hash, function(index)
        found[#found + 1] = index
      end)
      assert.same(case.candidates, found)
    end
  end)

  it("apply changes from one table to the next", function()
    for _, case in ipairs(cases("changes.json")) do
      local before, after = owners_of(case.before), owners_of(case.after)
      local runs = {}
      for slot = 1, #before do
        if before:byte(slot) ~= after:byte(slot) then
          runs[#runs + 1] = { slot - 1, 1, after:byte(slot) }
        end
      end
      assert.equal(case.moves, #runs)
      local most = 0
      for i = 1, 255 do
        if before:find(string.char(i - 1), 1, true) or after:find(string.char(i - 1), 1, true) then
          most = i
        end
      end
      local names = {}
      for i = 1, most do
        names[i] = "n" .. i
      end
      local held = assert(ring.new(4, names, before))
      assert.equal(after, assert(ring.apply(held, 4, 5, names, runs)).owners)
    end
  end)
end)

describe("the schedulers' vectors", function()
  local settings = { arrivals = 100, max_nodes = 3, interval = 0.1, artificial = 0.05 }
  for number, case in ipairs(cases("schedules.json")) do
    it(case.policy .. " chooses like Rust, case " .. number, function()
      local scheduler = assert(schedule.new(case.policy, settings))
      for _, phase in ipairs(case.phases) do
        local news = {}
        for i, weight in ipairs(phase.weights) do
          news[i] = { weight = weight, jobs = phase.jobs[i], load = phase.loads[i] }
        end
        scheduler:on_news(news)
        local used = 0
        local function random()
          used = used + 1
          return phase.random[used]
        end
        for i, chosen in ipairs(phase.chosen) do
          local got = schedule.next_among(scheduler, case.dispatchers, random)
          assert.equal(chosen ~= json.null and chosen + 1 or nil, got, "choice " .. i)
        end
        assert.equal(#phase.random, used)
      end
    end)
  end
end)
