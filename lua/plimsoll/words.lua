--- Texts that the configuration passes to Lua, one per request and one per response.
-- A converter costs a third of an action, which builds HAProxy's whole transaction for Lua; it takes one text and
-- returns one.

local LOWEST = require("plimsoll.class").LOWEST

local find, match, sub = string.find, string.match, string.sub
local min = math.min
local tonumber = tonumber

local M = {}

-- Maximum remembered texts of responses, and maximum of items, jobs and load.
local MAX_ANSWERS, MAX_NUMBER = 1000, 1e9
local MAX_HASH, MAX_DIGITS = 0xffffffff, 10
-- A key that no text equals, as it is a number.
local COUNT = 1

-- A class that is no number is the lowest one.
local function class_in(text)
  local class = #text <= MAX_DIGITS and tonumber(text, 10) or LOWEST
  return text == "" and 0 or class >= 0 and min(class, LOWEST) or LOWEST
end

--- Parses "<hash: an integer below 2^32, or ->[/<class>] [<cost> [<route>]]" with an optional empty class or cost. The
-- hash alone is fastest.
-- @return hash integer, or nil for "-", or false if malformed
-- @return cost number or nil
-- @return route string or nil
-- @return class integer from 0 to 3, or nil
function M.request(text)
  local alone = #text <= MAX_DIGITS and tonumber(text, 10)
  if alone then
    return alone >= 0 and alone <= MAX_HASH and alone
  end
  local first = find(text, " ", 1, true)
  local word = first and sub(text, 1, first - 1) or text
  local slash = find(word, "/", 1, true)
  local class, hash
  if slash then
    word, class = sub(word, 1, slash - 1), class_in(sub(word, slash + 1))
  end
  if word ~= "-" then
    hash = #word <= MAX_DIGITS and tonumber(word, 10) or -1
    hash = hash >= 0 and hash <= MAX_HASH and hash
  end
  if not first then
    return hash, nil, nil, class
  end
  local second = find(text, " ", first + 1, true)
  local cost = tonumber(sub(text, first + 1, second and second - 1 or -1))
  if not second then
    return hash, cost, nil, class
  end
  local route = sub(text, second + 1)
  return hash, cost, route ~= "" and route or nil, class
end

local Answers = {}
Answers.__index = Answers

--- Parses "<status> <server> [<items> [<jobs> [<load>]]]"; values that are not within 0 and 1e9 are ignored. Results
-- are remembered, as there are few different texts.
-- @return table text to { status integer, server string, items, jobs, load: number or nil }
function M.answers()
  return setmetatable({ [COUNT] = 0 }, Answers)
end

-- An infinite value would stay in the sums forever; NaN is not within any range.
local function bounded(word)
  local value = tonumber(word)
  return value and value >= 0 and value <= MAX_NUMBER and value or nil
end

--- Parses a text that is not remembered.
function Answers:read(text)
  local first = find(text, " ", 1, true)
  local second = first and find(text, " ", first + 1, true)
  local answer = { status = 0, server = "" }
  if second then
    answer.status = tonumber(sub(text, 1, first - 1)) or 0
    answer.server = sub(text, first + 1, second - 1)
    local items, jobs, load = match(text, "^(%S*) ?(%S*) ?(%S*)", second + 1)
    answer.items, answer.jobs, answer.load = bounded(items), bounded(jobs), bounded(load)
  end
  if self[COUNT] >= MAX_ANSWERS then
    for known in pairs(self) do
      self[known] = nil
    end
    self[COUNT] = 0
  end
  self[COUNT] = self[COUNT] + 1
  self[text] = answer
  return answer
end

return M
