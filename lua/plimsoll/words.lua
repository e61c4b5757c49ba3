--- The texts that the configuration hands to Lua, one a request and one an answer.
-- A converter costs a third of an action, which builds HAProxy's whole transaction for Lua; it gets one
-- text and gives one back.

local find, match, sub, byte = string.find, string.match, string.sub, string.byte
local tonumber = tonumber

local M = {}

local SPACE, DASH = byte(" -", 1, 2)
-- Of items, and of jobs and load.
local MAX_ANSWERS, MAX_NUMBER = 1000, 1e9
-- No text is a number.
local COUNT = 1

--- "<hash: 8 hexadecimal digits, or -> [<cost> [<route>]]"; a cost that is empty is not told.
-- @return hash integer, or nil for "-", or false where it cannot be read
-- @return cost number or nil
-- @return route string or nil
function M.request(text)
  -- Most are "<hash> <cost>".
  local hash, cost = tonumber(sub(text, 1, 8), 16), tonumber(sub(text, 10))
  if hash and cost and hash >= 0 then
    local space, digit = byte(text, 9, 10)
    if space == SPACE and digit ~= SPACE then
      return hash, cost
    end
  end
  local first = find(text, " ", 1, true)
  local word = first and sub(text, 1, first - 1) or text
  if byte(word) == DASH then
    hash = nil
  else
    hash = #word == 8 and tonumber(word, 16) or false
  end
  if not first then
    return hash
  end
  local second = find(text, " ", first + 1, true)
  local route = second and sub(text, second + 1)
  cost = tonumber(sub(text, first + 1, second and second - 1 or -1))
  return hash, cost, route ~= "" and route or nil
end

local Answers = {}
Answers.__index = Answers

--- "<status> <server> [<items> [<jobs> [<load>]]]"; what is no number within 0 and 1e9 is not told. What was read is
-- remembered: the texts are few.
-- @return table text to { status integer, server string, items, jobs, load: number or nil }
function M.answers()
  return setmetatable({ [COUNT] = 0 }, Answers)
end

-- One that is infinite would be in the sums for ever. NaN is not within anything.
local function bounded(word)
  local value = tonumber(word)
  return value and value >= 0 and value <= MAX_NUMBER and value or nil
end

--- Reads a text that is not remembered.
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
