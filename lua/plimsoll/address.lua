--- Addresses "address:port" with an IP address: HAProxy resolves no names at run time, and raises an error for
--- anything else.

local M = {}

--- Host and port, or nil for a malformed text.
function M.split(text)
  local host, port = tostring(text):match("^%[?([%x.:]+)%]?:(%d+)$")
  port = tonumber(port)
  if port and port >= 1 and port <= 65535 then
    return host, port
  end
end

return M
