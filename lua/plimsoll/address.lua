--- "address:port", with an IP address: HAProxy resolves no names at run time, and raises where it is given
--- anything else.

local M = {}

--- Host and port, or nil where a text is none.
function M.split(text)
  local host, port = tostring(text):match("^%[?([%x.:]+)%]?:(%d+)$")
  port = tonumber(port)
  if port and port >= 1 and port <= 65535 then
    return host, port
  end
end

return M
