--- Texts that the configuration passes to Lua, one per request and one per response.
-- A converter costs a third of an action, which builds HAProxy's whole transaction for Lua; it takes one text and
-- returns one.

local find, match, sub = string.find, string.match, string.sub
local tonumber, type = tonumber, type

local M = {}

-- Maximum remembered texts of responses, and maximum of items, jobs and load.
local MAX_ANSWERS, MAX_NUMBER = 1000, 1e9
local MAX_HASH, MAX_DIGITS = 0xffffffff, 10
-- A key that no text equals, as it is a number.
local COUNT = 1

--- Parses "<hash: an integer below 2^32, or -> [<cost> [<route>]]" with an optional empty cost, or the hash alone as an
-- integer, which is fastest.
-- @return hash integer, or nil for "-", or false if malformed
-- @return cost number or nil
-- @return route string or nil
function M.request(text)
  if type(text) == "number" then
    return text >= 0 and text <= MAX_HASH and text
  end
  local first = find(text, " ", 1, true)
  local word = first and sub(text, 1, first - 1) or text
  local hash
  if word ~= "-" then
    hash = #word <= MAX_DIGITS and tonumber(word, 10) or -1
    hash = hash >= 0 and hash <= MAX_HASH and hash
  end
  if not first then
    return hash
  end
  local second = find(text, " ", first + 1, true)
  local cost = tonumber(sub(text, first + 1, second and second - 1 or -1))
  if not second then
    return hash, cost
  end
  local route = sub(text, second + 1)
  return hash, cost, route ~= "" and route or nil
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
