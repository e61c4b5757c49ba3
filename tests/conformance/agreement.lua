-- For tests/conformance/test_agreement.py: the policy as it runs in HAProxy, and a service that says for many
-- keys at once where it sends each, hashed by HAProxy's converters.
-- luacheck: globals core

local ring_of = require("plimsoll.ring")

local char = string.char

-- What the configuration calls.
local policy = {}
local register = core.register_converters
core.register_converters = function(name, callback)
  policy[name] = callback
  register(name, callback)
end

-- The newest ring that came from Redis. A table that was read while a change came is older than that, and the
-- policy drops it.
local ring
local new = ring_of.new
ring_of.new = function(...)
  local made, problem = new(...)
  if made and (not ring or made.version >= ring.version) then
    ring = made
  end
  return made, problem
end

-- The same as `key_of` of test_agreement.py.
local function key_of(n)
  local kind = n % 4
  if kind == 0 then
    return "S" .. n
  elseif kind == 1 then
    return ("order-%d-"):format(n) .. ("x"):rep(n % 97)
  end
  local odd = n // 4 % 256
  -- These end a line, and a part of the path.
  if odd == 10 or odd == 47 then
    odd = 126
  end
  return kind == 2 and char(odd) .. n or n .. char(odd, 255)
end

local function refuse(applet, status, text)
  applet:set_status(status)
  applet:add_header("content-length", tostring(#text))
  applet:start_response()
  applet:send(text)
end

-- Called by `gsub`, this cannot be interrupted, as no converter can; a service is, now and then.
local function place(hash)
  local server = policy.plimsoll_admit(hash)
  policy.plimsoll_finish(("200 %s 1"):format(server))
  return server
end

-- /owners/<version>/<first>/<count>: a byte for each key.
core.register_service("owners", "http", function(applet)
  local version, first, count = applet.path:match("^/owners/(%d+)/(%d+)/(%d+)$")
  local asked, conv = ring, applet.c
  if not asked or asked.version ~= tonumber(version) then
    return refuse(applet, 404, "another version")
  end
  local owners, names = {}, asked.names
  for n = tonumber(first), first + count - 1 do
    local key = conv:field("/stock/" .. key_of(n), 3, "/")
    local hash = tostring(conv:xxh32(key))
    local owner = ring_of.owner(asked, tonumber(hash))
    local server = hash:gsub(".+", place)
    if server ~= names[(owner or ring_of.NOBODY) + 1] then
      return refuse(applet, 500, ("key %d: the policy says %s, the ring %s"):format(n, server, owner))
    end
    owners[#owners + 1] = char(owner)
  end
  applet:set_status(200)
  applet:add_header("names", table.concat(names, ","))
  applet:add_header("content-length", tostring(#owners))
  applet:start_response()
  applet:send(table.concat(owners))
end)
