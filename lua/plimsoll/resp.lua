--- Redis' protocol (RESP2) over a socket with `send`, and `receive` of a line or a number of bytes.
-- Every received length has a limit, and so has their sum in one answer.

local M = {}

local MAX_BYTES = 4 << 20
local MAX_ITEMS = 65536
local DEEPEST = 4

--- Encodes a command.
function M.encode(...)
  local words = { ... }
  local pieces = { "*" .. #words .. "\r\n" }
  for _, word in ipairs(words) do
    word = tostring(word)
    pieces[#pieces + 1] = "$" .. #word .. "\r\n" .. word .. "\r\n"
  end
  return table.concat(pieces)
end

-- @param left table remaining bytes and items of the answer
local function read(socket, depth, left)
  local line, problem = socket:receive("*l")
  if not line then
    return nil, problem or "closed"
  end
  line = line:gsub("\r$", "")
  local kind, rest = line:sub(1, 1), line:sub(2)
  if kind == "+" then
    return rest
  elseif kind == "-" then
    return nil, rest, true
  elseif kind == ":" then
    local value = math.tointeger(tonumber(rest))
    if not value then
      return nil, "not a number: " .. rest:sub(1, 40)
    end
    return value
  end
  local length = math.tointeger(tonumber(rest))
  if kind == "$" then
    if not length or length > left.bytes then
      return nil, "a string of " .. rest:sub(1, 40) .. " bytes"
    elseif length < 0 then
      return false
    end
    left.bytes = left.bytes - length
    local body
    body, problem = socket:receive(length + 2)
    if not body or #body ~= length + 2 then
      return nil, problem or "closed"
    end
    return body:sub(1, length)
  elseif kind == "*" then
    if not length or length > left.items or depth >= DEEPEST then
      return nil, "a list of " .. rest:sub(1, 40) .. " items"
    elseif length < 0 then
      return false
    end
    left.items = left.items - length
    local items = {}
    for i = 1, length do
      local item, why, said = read(socket, depth + 1, left)
      if item == nil then
        if not said then
          return nil, why
        end
        item = { error = why }
      end
      items[i] = item
    end
    return items
  end
  return nil, "not Redis: " .. line:sub(1, 40)
end

--- The next answer: a string, integer, table, false for nil. Or nil and the error; the third value is true if Redis
-- returned the error and the connection is still usable.
function M.read(socket)
  return read(socket, 0, { bytes = MAX_BYTES, items = MAX_ITEMS })
end

return M
