--- HAProxy's own view of the backend's servers, told to the dispatcher.

local M = {}
local Servers = {}
Servers.__index = Servers

-- A look takes about 10 µs, so a few at a time.
local EVERY_MS, AT_ONCE = 100, 20
-- A ring has no more nodes, and Redis takes no more from a dispatcher.
local MAX_NODES = 255

--- The servers of a backend; nil and why where HAProxy has none of that name.
function M.new(backend_name)
  local backend = core.backends[backend_name]
  if not backend then
    return nil, "backend: there is no backend " .. backend_name
  end
  local names = {}
  for name in pairs(backend.servers) do
    names[#names + 1] = name
  end
  if #names > MAX_NODES then
    return nil, ("backend: %s has %d servers, the most is %d"):format(backend_name, #names, MAX_NODES)
  end
  table.sort(names)
  return setmetatable({ names = names, servers = backend.servers, at = 0, had = {} }, Servers)
end

local function look(self, place, dispatcher, now)
  local stats = self.servers[self.names[place]]:get_stats()
  if not stats then
    -- Deleted at run time, which HAProxy later than 2.6 allows.
    return dispatcher.on_server(place, now, false, 0)
  end
  local status = stats.status
  -- "UP", "UP 1/3" on its way down, "no check"; not DOWN, MAINT, DRAIN, NOLB.
  local up = (status:find("^UP") or status == "no check") and stats.weight > 0
  dispatcher.on_server(place, now, up and true or false, stats.scur + stats.qcur)
end

--- Looks for ever; a task.
function Servers:watch(dispatcher, now)
  while true do
    for _ = 1, math.min(AT_ONCE, #self.names) do
      self.at = self.at % #self.names + 1
      look(self, self.at, dispatcher, now())
    end
    core.msleep(EVERY_MS)
  end
end

--- HAProxy keeps a dead agent's last word for ever: its server goes back to the configured weight.
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
