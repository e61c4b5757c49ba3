-- Replays Rust's counted and learned costs from agent/core/vectors/costs.json.

package.path = "lua/?.lua;" .. package.path

local cost_of = require("plimsoll.cost")
local json = require("dkjson")

local file = assert(io.open("agent/core/vectors/costs.json"))
local data, _, problem = json.decode(file:read("a"))
file:close()
assert(data, problem)

describe("the costs' vectors", function()
  it("are counted and learned as in Rust", function()
    for number, case in ipairs(data.cases) do
      local costs = cost_of.new(case.default, case.routes, case.most)
      for at, step in ipairs(case.steps) do
        if step[1] == "learn" then
          costs:learn(step[2], step[3])
        else
          local found = step[1] == "told" and costs:told(step[2]) or costs:expected(step[2])
          assert.near(step[3], found, 1e-9 * step[3], ("case %d, step %d"):format(number, at))
        end
      end
    end
  end)
end)
