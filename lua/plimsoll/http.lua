--- One HTTP request over a HAProxy socket, for tasks. HAProxy 2.6's own client breaks when its caller ends.

local address_of = require("plimsoll.address")
local deadline = require("plimsoll.deadline")
local reader_of = require("plimsoll.reader")

local M = {}

local MAX_LINE, MAX_HEADERS = 8192, 100

local function read_head(socket)
  local line, problem = socket:receive("*l")
  local status = line and #line <= MAX_LINE and tonumber(line:match("^HTTP/1%.[01] (%d%d%d)"))
  if not status then
    return nil, line and "no HTTP answer" or problem or "closed"
  end
  local headers = {}
  for _ = 1, MAX_HEADERS do
    line, problem = socket:receive("*l")
    if not line or #line > MAX_LINE then
      return nil, problem or "a header that is too long"
    elseif line == "" or line == "\r" then
      return status, headers
    end
    local name, value = line:match("^([^:%s]+):%s*(.-)%s*$")
    if name then
      headers[name:lower()] = value
    end
  end
  return nil, "too many headers"
end

-- Status, headers and body; or nil and the error.
local function ask(socket, request, max_bytes, timeout)
  local good, problem = socket:send(request)
  if not good then
    return nil, problem
  end
  local status, headers = read_head(socket)
  if not status or max_bytes == 0 then
    return status, headers
  end
  local length = status == 304 and 0 or tonumber(headers["content-length"])
  if not length or length > max_bytes then
    return nil, length and "a body that is too long" or "a body without its length"
  elseif length == 0 then
    return status, headers, ""
  end
  local body
  body, problem = reader_of.new(socket, timeout):receive(length)
  if not body then
    return nil, problem
  end
  return status, headers, body
end

--- Sends a complete request, which must request the connection's close, and reads the response.
-- @param tcp function returns a new socket
-- @param address string "address:port"
-- @param timeout number seconds for connecting, and for the whole response
-- @param max_bytes integer of the body; 0 to skip it
-- @return status, headers by lower-case name, body; or nil and the error
function M.exchange(tcp, address, timeout, request, max_bytes)
  local host, port = address_of.split(address)
  local socket = tcp()
  socket:settimeout(timeout)
  local status, headers, body = deadline.within(timeout, socket, socket.connect, host, port)
  if status then
    status, headers, body = deadline.within(timeout, socket, ask, request, max_bytes, timeout)
  end
  socket:close()
  if not status then
    return nil, type(headers) == "string" and headers or "closed"
  end
  return status, headers, body
end

return M
