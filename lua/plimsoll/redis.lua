--- A connection to the Redis master. Only for tasks: every call may wait.

local address_of = require("plimsoll.address")
local deadline = require("plimsoll.deadline")
local reader_of = require("plimsoll.reader")
local resp = require("plimsoll.resp")

local M = {}
local Connection = {}
Connection.__index = Connection

--- @param settings table the `redis` settings
-- @param tcp function returns a new HAProxy socket (core.tcp)
-- @param purpose string for log messages
function M.new(settings, tcp, purpose)
  return setmetatable({ settings = settings, tcp = tcp, purpose = purpose, at = 0 }, Connection)
end

-- @param silence number seconds for which the connection may be silent
local function open(self, address, silence)
  local host, port = address_of.split(address)
  if not host then
    return nil, "no IP address and port"
  end
  local timeout, socket = self.settings.timeout, self.tcp()
  -- Changed only within long answers: deadline.lua and reader.lua say why.
  socket:settimeout(silence + timeout)
  local connect = self.settings.tls and socket.connect_ssl or socket.connect
  local good, problem = deadline.within(timeout, socket, connect, host, port)
  if not good then
    socket:close()
    return nil, problem or "no connection"
  end
  return socket
end

local function read(socket, timeout)
  local reader = reader_of.new(socket, timeout)
  local answer, problem, said = resp.read(reader)
  if answer ~= nil or said then
    reader:finish()
  end
  return answer, problem, said
end

local function exchange(socket, request, timeout)
  local sent, problem = socket:send(request)
  if not sent then
    return nil, problem or "closed"
  end
  return read(socket, timeout)
end

-- @param silence number seconds for which the connection may be silent
local function ask(self, socket, silence, ...)
  local timeout = self.settings.timeout
  return deadline.within(timeout, socket, exchange, resp.encode(...), silence + timeout)
end

local function log_in(self, socket, silence)
  local settings = self.settings
  if not settings.password then
    return true
  end
  local answer, problem
  if settings.user then
    answer, problem = ask(self, socket, silence, "AUTH", settings.user, settings.password)
  else
    answer, problem = ask(self, socket, silence, "AUTH", settings.password)
  end
  return answer, problem
end

-- The address to use next: from a MOVED, from a sentinel, or the next one of the list.
local function next_address(self)
  if self.moved then
    local moved = self.moved
    self.moved = nil
    return moved
  end
  local addresses = self.settings.addresses
  self.at = self.at % #addresses + 1
  local address = addresses[self.at]
  if not self.settings.sentinel then
    return address
  end
  local socket, problem = open(self, address, 0)
  if not socket then
    return nil, "sentinel " .. address .. ": " .. problem
  end
  local master
  master, problem = ask(self, socket, 0, "SENTINEL", "get-master-addr-by-name", self.settings.sentinel)
  socket:close()
  if type(master) ~= "table" or type(master[1]) ~= "string" or type(master[2]) ~= "string" then
    return nil, ("sentinel %s does not know %s: %s"):format(address, self.settings.sentinel, problem or "nil")
  end
  return master[1] .. ":" .. master[2]
end

--- Connects and logs in; true, or nil and the error.
-- @param silence number seconds for which the connection may be silent while no call waits for its answer
function Connection:connect(silence)
  self:close()
  local address, problem = next_address(self)
  if not address then
    return nil, problem
  end
  local socket
  socket, problem = open(self, address, silence)
  if not socket then
    return nil, address .. ": " .. problem
  end
  local good
  good, problem = log_in(self, socket, silence)
  if not good then
    socket:close()
    return nil, address .. ": " .. problem
  end
  self.socket, self.address, self.silence = socket, address, silence
  return true
end

function Connection:close()
  if self.socket then
    self.socket:close()
    self.socket = nil
  end
end

--- Calls a command; the answer, or nil and the error. The connection is closed after a network error, and after an
-- answer that another server is, or may be, the right one.
function Connection:call(...)
  local answer, problem, said = ask(self, self.socket, self.silence, ...)
  if answer ~= nil then
    return answer
  end
  problem = self.address .. ": " .. tostring(problem)
  local moved = said and problem:match("MOVED %d+ (%S+)")
  if moved then
    -- Without a host it is another port of the same host.
    self.moved = moved:sub(1, 1) == ":" and self.address:match("^(.*):") .. moved or moved
  end
  local other = moved or problem:find("READONLY") or problem:find("NOREPLICAS") or problem:find("LOADING")
  if not said or other or problem:find("NOAUTH") then
    self:close()
  end
  return nil, problem
end

--- The next message of a subscription; nil and the error if the silence lasts too long.
function Connection:receive()
  local timeout = self.silence + self.settings.timeout
  local answer, problem = deadline.within(self.silence, self.socket, read, timeout)
  if answer == nil then
    self:close()
  end
  return answer, problem
end

--- Sends without waiting for the answer.
function Connection:send(...)
  return deadline.within(self.settings.timeout, self.socket, self.socket.send, resp.encode(...))
end

return M
