--- A backend's servers in HAProxy: reads their counters, and sets their weights and limits.
--
-- A server has one writer. While it is limited here, its agent-check is off; in every other state it is on, so that
-- drains, failures of the node and fresh limits arrive by the agent-check.

local LOWEST_CLASS = require("plimsoll.class").LOWEST
local servers_of = require("plimsoll.servers")
local in_one_piece = require("plimsoll.whole")

local M = {}
local Backend = {}
Backend.__index = Backend

local UNSEEN = -1
-- Counters of a node's responses other than failures.
local ANSWERS = { "hrsp_1xx", "hrsp_2xx", "hrsp_3xx", "hrsp_4xx", "hrsp_other" }

--- @param limiter table decides on weights and limits
-- @return the backend, or nil and the error
function M.new(name, limiter)
  local found, problem = servers_of.names(name)
  if problem then
    return nil, problem
  end
  local self = setmetatable({ name = name, limiter = limiter, records = {} }, Backend)
  for _, server in ipairs(found) do
    self:record(server)
  end
  return self
end

-- Names of the servers in order. HAProxy 2.8 and later list servers added at run time; those beyond the maximum stay
-- unchanged.
function Backend:names()
  local names = servers_of.names(self.name)
  return names
end

function Backend:server(name)
  return core.backends[self.name].servers[name]
end

-- Record of a server: its configured limit, whether its weight or limit was set here, whether its agent-check is on,
-- and whether its weight can only be none or all.
function Backend:record(name)
  local record = self.records[name]
  if not record then
    local server = self:server(name)
    record = { configured = server:get_maxconn(), is_set = false, is_asked = true, is_static = false }
    self.records[name] = record
    -- A server-state file may have left it off.
    server:agent_enable()
  end
  return record
end

--- Counters of requests, cumulative and in flight.
function Backend:counters()
  local servers, failed = {}, 0
  for _, name in ipairs(self:names()) do
    local stats = self:server(name):get_stats()
    if stats then
      -- For HAProxy, refused requests are failed connections.
      servers[name] = { arrived = stats.stot + stats.econ + stats.qcur, in_flight = stats.scur }
      failed = failed + stats.econ
    end
  end
  local all = core.backends[self.name]:get_stats()
  return { servers = servers, unplaced = math.max(0, all.econ - failed) }
end

--- Figures in the order of `plimsoll.metrics`; -1 for those that this policy does not measure.
function Backend:figures(now)
  local age, ring = self.limiter.news(now)
  local figures = { UNSEEN, UNSEEN, UNSEEN, ring, age }
  for _ = 1, 2 * (LOWEST_CLASS + 1) do
    figures[#figures + 1] = UNSEEN
  end
  for _, name in ipairs(self:names()) do
    local stats, answered = self:server(name):get_stats(), 0
    for _, field in ipairs(ANSWERS) do
      answered = answered + stats[field]
    end
    figures[#figures + 1] = self.limiter.share(name, now)
    figures[#figures + 1] = self.limiter.cost_of(name, stats.scur)
    figures[#figures + 1] = stats.scur
    figures[#figures + 1] = answered
    figures[#figures + 1] = stats.hrsp_5xx + stats.eresp
    figures[#figures + 1] = UNSEEN
  end
  return figures
end

local function set_weight(record, server, weight)
  if weight == nil or server:get_weight() == weight then
    return
  end
  -- A static balance algorithm accepts only none or all.
  if (weight == 0 or not record.is_static) and server:set_weight(weight) == nil then
    return
  end
  record.is_static = true
  server:set_weight("100%")
end

local function set_limit(server, limit)
  if server:get_maxconn() ~= limit then
    server:set_maxconn(limit)
  end
end

local function ask_agent(record, server, ask)
  if record.is_asked ~= ask then
    record.is_asked = ask
    if ask then
      server:agent_enable()
    else
      server:agent_disable()
    end
  end
end

local function limit(record, server, requests, weight)
  record.is_set = true
  ask_agent(record, server, false)
  set_limit(server, requests)
  set_weight(record, server, weight)
end

local function take_out(record, server)
  record.is_set = true
  ask_agent(record, server, true)
  set_weight(record, server, 0)
end

local function hand_back(record, server)
  record.is_set = false
  ask_agent(record, server, true)
  server:set_weight("100%")
  -- Until its agent's first answer the last limit stays; without an agent-check it would stay forever.
  if not server:get_stats().agent_status then
    server:set_maxconn(record.configured)
  end
end

local function apply(self, name, now)
  local server = self:server(name)
  local stats = server and server:get_stats()
  if not stats then
    -- Deleted at run time; another one with its name may be added.
    self.records[name] = nil
    return
  end
  local record = self:record(name)
  local wanted, requests, weight = self.limiter.wanted(name, now)
  if not servers_of.takes_work(stats.status) then
    -- The agent may have to end this state; if an operator or a check caused it, the agent's answers have no effect.
    ask_agent(record, server, true)
  elseif wanted == "limited" then
    limit(record, server, requests, weight)
  elseif wanted == "out" then
    take_out(record, server)
  elseif record.is_set then
    hand_back(record, server)
  end
end

--- Applies weight and limit to a server.
function Backend:apply(name, now)
  in_one_piece(function()
    apply(self, name, now)
  end)
end

function Backend:apply_all(now)
  for _, name in ipairs(self:names()) do
    self:apply(name, now)
  end
end

--- Reapplies weights and limits forever, as operators or a delayed agent's answer may have changed them, or the
-- snapshot may have become too old; a task.
function Backend:watch(now)
  servers_of.take_turns(function()
    return self:names()
  end, function(name)
    self:apply(name, now())
  end)
end

return M
