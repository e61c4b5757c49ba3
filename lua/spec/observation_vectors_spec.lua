-- Compares lines for the same events with Rust's in agent/core/vectors/observations.json.

package.path = "lua/?.lua;" .. package.path

local json = require("dkjson")
local observation_of = require("plimsoll.observation")

local file = assert(io.open("agent/core/vectors/observations.json"))
local data, _, problem = json.decode(file:read("a"), 1, json.null)
file:close()
assert(data, problem)

local take = {
  answered = function(seen, delay, items)
    seen:answered(delay, items)
  end,
  left = function(seen, age)
    seen:left(age)
  end,
  failed = function(seen)
    seen:failure()
  end,
}

describe("the observation's vectors", function()
  it("match Rust's lines", function()
    for number, case in ipairs(data.cases) do
      local seen = observation_of.new()
      for _, event in ipairs(case.events) do
        take[event[1]](seen, event[2], event[3])
      end
      local jobs = case.jobs ~= json.null and case.jobs or nil
      assert.equal(case.text, seen:text(case.asked, case.refused, jobs), "case " .. number)
    end
  end)
end)
