-- How long a new version of the ring keeps a thread of HAProxy, in ms: the worst of a hundred, for a table
-- that was read whole and for a published change.
package.path = "lua/?.lua;" .. package.path

local dispatcher_of = require("plimsoll.dispatcher")
local ring_of = require("plimsoll.ring")

local SLOTS, NODES, ROUNDS = 16384, 100, 100

local names, owners = {}, {}
for node = 1, NODES do
  names[node] = "node" .. node
end
for slot = 1, SLOTS do
  owners[slot] = string.char((slot * 7919) % NODES)
end
owners = table.concat(owners)
local settings = { policy = "fc_hash", age_limit = 10, lease = 3, spill = 0.7, cost = { min = 1 } }
local dispatcher = dispatcher_of.new(settings, names, math.random)

local listed, runs = {}, {}
for node, name in ipairs(names) do
  listed[node] = (node - 1) .. "=" .. name
end
-- The most that the function library publishes as a change.
for run = 1, 256 do
  runs[run] = ("%d:1:%d"):format(run * 64 - 1, run % NODES)
end
local message = ("1 2 %s %s"):format(table.concat(listed, ","), table.concat(runs, ","))
local held = ring_of.new(1, names, owners)

local function worst(step)
  local most = 0
  for _ = 1, ROUNDS do
    local start = os.clock()
    dispatcher.on_ring(step())
    most = math.max(most, os.clock() - start)
  end
  return 1000 * most
end

print(("%.3f %.3f"):format(
  worst(function()
    return assert(ring_of.new(2, names, owners))
  end),
  worst(function()
    local change = assert(ring_of.parse_change(message))
    return assert(ring_of.apply(held, change.from, change.to, change.names, change.runs))
  end)
))
