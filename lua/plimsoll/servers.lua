--- Passes HAProxy's state of the backend's servers to the dispatcher.

local M = {}
local Servers = {}
Servers.__index = Servers

-- Reading a server takes about 10 µs, so only a few are read at a time.
local EVERY_MS, AT_ONCE = 100, 20
-- Maximum nodes of a ring, and of a dispatcher's report to Redis.
local MAX_NODES = 255

--- The names of a backend's servers in order, and the error if there are too many, of which these are the first; nil if
-- HAProxy has no such backend.
function M.names(backend_name)
  local backend = core.backends[backend_name]
  if not backend then
    return nil, "backend: there is no backend " .. backend_name
  end
  local names, problem = {}, nil
  for name in pairs(backend.servers) do
    names[#names + 1] = name
  end
  table.sort(names)
  if #names > MAX_NODES then
    problem = ("backend: %s has %d servers, the most is %d"):format(backend_name, #names, MAX_NODES)
    names = table.move(names, 1, MAX_NODES, 1, {})
  end
  return names, problem
end

--- The servers of a backend; nil and the error if HAProxy has no such backend.
function M.new(backend_name)
  local names, problem = M.names(backend_name)
  if problem then
    return nil, problem
  end
  return setmetatable({ names = names, servers = core.backends[backend_name].servers, had = {} }, Servers)
end

--- Whether a server with this status takes new requests: "UP", "UP 1/3" while checks fail, "no check"; not DOWN, MAINT,
-- DRAIN, NOLB.
function M.takes_work(status)
  return status:find("^UP") ~= nil or status == "no check"
end

--- Visits a few servers at a time in turn, forever.
-- @param names function returns the names of all servers
-- @param look function takes a name and its place
function M.take_turns(names, look)
  local at = 0
  while true do
    local all = names()
    for _ = 1, math.min(AT_ONCE, #all) do
      at = at % #all + 1
      look(all[at], at)
    end
    core.msleep(EVERY_MS)
  end
end

local function look(self, place, dispatcher, now)
  local stats = self.servers[self.names[place]]:get_stats()
  if not stats then
    -- Deleted at run time, which HAProxy after 2.6 permits.
    return dispatcher.on_server(place, now, false, 0)
  end
  local up = M.takes_work(stats.status) and stats.weight > 0
  dispatcher.on_server(place, now, up, stats.scur + stats.qcur)
end

--- Passes the servers' states on, forever; a task.
function Servers:watch(dispatcher, now)
  M.take_turns(function()
    return self.names
  end, function(_, place)
    look(self, place, dispatcher, now())
  end)
end

--- Resets servers of lost agents to their configured weight, as HAProxy keeps a dead agent's last answer forever.
-- @param told function takes the name of each
function Servers:reset_lost(dispatcher, told)
  for name, server in pairs(self.servers) do
    local known = dispatcher.knows(name)
    if self.had[name] and not known then
      server:set_weight("100%")
      told(name)
    end
    self.had[name] = known
  end
end

return M
