package.path = "lua/?.lua;" .. package.path

local follower_of = require("plimsoll.follower")
local ring_of = require("plimsoll.ring")
local servers_of = require("plimsoll.servers")

-- Stub of the HAProxy functions that they need.
local function with_core(fake)
  _G.core = fake
  finally(function()
    _G.core = nil
  end)
end

describe("the follower", function()
  it("keeps a change received while it reads an older table", function()
    with_core({})
    local taken
    local follower = follower_of.new({ cluster = "c", redis = {} }, "lb/1", "i", {
      on_ring = function(ring)
        taken = ring.version
      end,
    })
    follower:take_ring(assert(ring_of.new(4, { "node1" }, "\0\0")))
    follower.calls = {
      call = function()
        follower:on_change("4 5 0=node1,1=node2 1:1:1")
        return { 4, 2, "node1", "\0\0" }
      end,
    }
    assert.is_true(follower:fetch_ring())
    assert.equal(5, taken)
  end)
end)

describe("the watch over servers", function()
  it("continues after a server was deleted", function()
    local stats = { status = "UP", weight = 100, scur = 2, qcur = 1 }
    local deleted = false
    local backend = { servers = {} }
    for _, name in ipairs({ "node1", "node2" }) do
      backend.servers[name] = {
        get_stats = function()
          if name == "node2" or not deleted then
            return stats
          end
        end,
      }
    end
    local rounds, told = 0, {}
    with_core({
      backends = { queries = backend },
      msleep = function()
        rounds = rounds + 1
        deleted = true
        if rounds == 2 then
          error("enough", 0)
        end
      end,
    })
    local servers = assert(servers_of.new("queries"))
    local dispatcher = {
      on_server = function(place, _, up, count)
        told[#told + 1] = { place, up, count }
      end,
    }
    assert.has_error(function()
      servers:watch(dispatcher, os.time)
    end, "enough")
    assert.same({ { 1, true, 3 }, { 2, true, 3 }, { 1, false, 0 }, { 2, true, 3 } }, told)
  end)
end)
