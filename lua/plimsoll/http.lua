--- One HTTP request over a socket of HAProxy's, for tasks. HAProxy 2.6's own client breaks where its caller ends.

local address_of = require("plimsoll.address")

local M = {}

local MOST_LINE, MOST_HEADERS = 8192, 100

local function read_head(socket)
  local line, problem = socket:receive("*l")
  local status = line and #line <= MOST_LINE and tonumber(line:match("^HTTP/1%.[01] (%d%d%d)"))
  if not status then
    return nil, line and "no HTTP answer" or problem or "closed"
  end
  local headers = {}
  for _ = 1, MOST_HEADERS do
    line, problem = socket:receive("*l")
    if not line or #line > MOST_LINE then
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

--- Sends a whole request, which has to ask for the connection's close, and reads the answer.
-- @param tcp function a new socket
-- @param address string "address:port"
-- @param timeout number seconds without anything
-- @param most_bytes integer of the body; 0: it is not read
-- @return status, headers by lower-case name, body; or nil and why
function M.exchange(tcp, address, timeout, request, most_bytes)
  local host, port = address_of.split(address)
  local socket = tcp()
  socket:settimeout(timeout)
  local good, problem = socket:connect(host, port)
  local status, headers, body
  if good then
    good, problem = socket:send(request)
  end
  if good then
    status, headers = read_head(socket)
    problem = headers
  end
  if status and most_bytes > 0 then
    local length = tonumber(headers["content-length"])
    if status == 304 then
      body = ""
    elseif not length or length > most_bytes then
      status, problem = nil, length and "a body that is too long" or "a body without its length"
    elseif length == 0 then
      body = ""
    else
      body, problem = socket:receive(length)
      status = body and #body == length and status
    end
  end
  socket:close()
  if not status then
    return nil, type(problem) == "string" and problem or "closed"
  end
  return status, headers, body
end

return M
