--- The settings table and its validation.

local address_of = require("plimsoll.address")

local M = {}

local POLICIES = {
  "fc_hash", "fc_prop", "round_robin", "weighted_round_robin", "weighted_random", "basic_li", "job_informed",
  "load_informed", "limits",
}

local UPDATES = { "periodic", "continuous", "on_access" }

local function one_of(list)
  return function(value)
    for _, known in ipairs(list) do
      if value == known then
        return true
      end
    end
    return false, "must be one of " .. table.concat(list, ", ")
  end
end

local function number(low, high, unit)
  return function(value)
    local good = type(value) == "number" and value >= low and value <= high
    return good, ("must be a number within %g..%g%s"):format(low, high, unit and " " .. unit or "")
  end
end

local function text(value)
  return type(value) == "string" and value ~= "", "must be a string that is not empty"
end

local function name(most)
  return function(value)
    local good = type(value) == "string" and #value <= most and value:find("^[%w._:/%-]+$") ~= nil
    return good, ("must be 1..%d of A-Za-z0-9._:/-"):format(most)
  end
end

local function flag(value)
  return type(value) == "boolean", "must be true or false"
end

local function address(value)
  local good = address_of.split(value) ~= nil
  return good, 'must be "address:port", with an IP address (HAProxy resolves no names at run time)'
end

local function addresses(value)
  local message = 'must be a list of "address:port", with IP addresses (HAProxy resolves no names at run time)'
  if type(value) ~= "table" or #value == 0 or #value > 16 then
    return false, message
  end
  for _, entry in ipairs(value) do
    if not address(entry) then
      return false, message .. ", has " .. tostring(entry)
    end
  end
  return true
end

-- Check of each key, its default (nil for none), and whether it is required.
local PLACEMENT = {
  cluster = { check = name(120) },
  backend = { check = name(1000), required = true },
  wait = { check = number(0, 30, "s"), default = 0.5 },
}

local SCHEMA = {
  cluster = { check = name(120), required = true },
  backend = { check = name(1000) },
  -- Thread and run are appended to it, and Redis' limit is 128.
  proxy = { check = name(100) },
  policy = { check = one_of(POLICIES), default = "fc_hash" },
  period = { check = number(0.1, 60, "s"), default = 1 },
  lease = { check = number(0.3, 3600, "s"), default = 3 },
  age_limit = { check = number(0.3, 3600, "s"), default = 10 },
  spill = { check = number(0, 1), default = 0.5 },
  redis = {
    required = true,
    table = {
      addresses = { check = addresses, required = true },
      sentinel = { check = text },
      user = { check = text },
      password = { check = text, secret = true },
      tls = { check = flag, default = false },
      timeout = { check = number(0.01, 60, "s"), default = 1 },
    },
  },
  cost = {
    table = {
      default = { check = number(1e-6, 1e9), default = 1 },
      min = { check = number(1e-6, 1e9), default = 1 },
      max = { check = number(1e-6, 1e9) },
      routes = { check = number(1, 1e6), default = 1000 },
    },
  },
  news = {
    table = {
      update = { check = one_of(UPDATES), default = "periodic" },
      phase = { check = number(0, 3600, "s"), default = 0 },
    },
  },
  scheduler = {
    table = {
      arrivals = { check = number(1, 1e9), default = 100 },
      max_nodes = { check = number(1, 255), default = 3 },
      interval = { check = number(0, 1e9), default = 0.1 },
      artificial = { check = number(0, 1e9), default = 0.01 },
    },
  },
  placement = { optional = true, table = PLACEMENT },
}

--- The settings with defaults for a table of checks, or nil and the error with the key's name.
local function resolve(schema, given, path)
  local result = {}
  for key in pairs(given) do
    if not schema[key] then
      local known = {}
      for other in pairs(schema) do
        known[#known + 1] = other
      end
      table.sort(known)
      return nil, ("%s%s: unknown key, expected one of %s"):format(path, tostring(key), table.concat(known, ", "))
    end
  end
  for key, rule in pairs(schema) do
    local value = given[key]
    if value == nil and rule.required then
      return nil, path .. key .. ": is missing"
    end
    if rule.table and not (rule.optional and value == nil) then
      value = value == nil and {} or value
      if type(value) ~= "table" then
        return nil, path .. key .. ": must be a table"
      end
      local inner, problem = resolve(rule.table, value, path .. key .. ".")
      if not inner then
        return nil, problem
      end
      result[key] = inner
    elseif value ~= nil then
      local good, problem = rule.check(value)
      if not good then
        local shown = rule.secret and "a " .. type(value) or tostring(value)
        return nil, ("%s%s: %s, is %s"):format(path, key, problem, shown)
      end
      result[key] = value
    else
      result[key] = rule.default
    end
  end
  return result
end

-- Settings of `plimsoll.updates`.
local UPDATES_SCHEMA = {
  agents = { check = addresses, required = true },
  service = { check = name(128) },
  token = { check = text, secret = true },
  forward = { check = address, required = true },
  period = { check = number(0.1, 60, "s"), default = 1 },
  age_limit = { check = number(0.3, 3600, "s"), default = 5 },
  timeout = { check = number(0.01, 60, "s"), default = 1 },
  max_items = { check = number(1, 1e6), default = 1e5 },
  max_bytes = { check = number(1024, 2 ^ 30, "bytes"), default = 16 * 2 ^ 20 },
}

--- The settings of `plimsoll.updates`, likewise.
function M.resolve_updates(given)
  if type(given) ~= "table" then
    return nil, "settings must be a table"
  end
  local settings, problem = resolve(UPDATES_SCHEMA, given, "")
  if settings and settings.token and settings.token:find("[^ -~]") then
    return nil, "token: must be printable ASCII characters"
  end
  return settings, problem
end

--- The settings with defaults, or nil and the error with the key's name.
function M.resolve(given)
  if type(given) ~= "table" then
    return nil, "settings must be a table"
  end
  local settings, problem = resolve(SCHEMA, given, "")
  if not settings then
    return nil, problem
  end
  if settings.placement then
    settings.placement.cluster = settings.placement.cluster or settings.cluster
  elseif not settings.backend then
    return nil, "backend: is missing"
  end
  if settings.lease < 2 * settings.period then
    return nil, "lease: must be at least two periods, or one late report loses the shares"
  end
  if given.news ~= nil and (settings.policy:find("^fc_") or settings.policy == "limits") then
    return nil, "news: only the schedulers look at load; policy " .. settings.policy .. " does not"
  end
  if settings.redis.user and not settings.redis.password then
    return nil, "redis.user: needs redis.password"
  end
  return settings
end

return M
