-- What both function libraries begin with; `library.py` puts it in front of each.

local MAX_LEASE_MS = 3600000
local MAX_NUMBER = 1e15
local MAX_NAME = 128
local MAX_RECORD_BYTES = 1024

local function fail(text)
  return redis.error_reply("ERR plimsoll: " .. text)
end

local function now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function number(text, low, high)
  local value = tonumber(text)
  -- NaN is the only value that differs from itself.
  if value == nil or value ~= value or value < low or value > high then
    return nil
  end
  return value
end

local function whole(text, low, high)
  local value = number(text, low, high)
  return value and value == math.floor(value) and value or nil
end

local function exact(value)
  return string.format("%.17g", value)
end

-- A parser that remembers what it made of up to `most` texts: they are read far more often than written.
local function remembering(most, parse)
  local known, count = {}, 0
  return function(text)
    local found = known[text]
    if found == nil then
      if count == most then
        known, count = {}, 0
      end
      found = parse(text) or false
      known[text], count = found, count + 1
    end
    return found
  end
end

local is_good_name = remembering(8192, function(text)
  return text:find("^[%w._:/%-]+$") ~= nil
end)

local function is_name(text)
  return type(text) == "string" and #text <= MAX_NAME and is_good_name(text)
end

-- The values of any number of fields; false where there is none.
local function get_all(key, fields)
  if #fields > 0 and #fields <= 1000 then
    return redis.call("HMGET", key, unpack(fields))
  end
  local values = {}
  for first = 1, #fields, 1000 do
    for i, value in ipairs(redis.call("HMGET", key, unpack(fields, first, math.min(first + 999, #fields)))) do
      values[first + i - 1] = value
    end
  end
  return values
end

local function set_all(key, flat)
  for first = 1, #flat, 1000 do
    redis.call("HSET", key, unpack(flat, first, math.min(first + 999, #flat)))
  end
end

local function pairs_of(flat)
  local i = -1
  return function()
    i = i + 2
    return flat[i], flat[i + 1]
  end
end

local function drop(key, fields)
  for first = 1, #fields, 1000 do
    redis.call("HDEL", key, unpack(fields, first, math.min(first + 999, #fields)))
  end
end
