--- What the requests of one dispatcher showed of one node: counters since the start.
-- agent/core/src/dispatch/observed.rs reads the line and says what is in it; agent/core/vectors/observations.json
-- pins that both agree.

local max, log = math.max, math.log

local M = {}
local Observation = {}
Observation.__index = Observation

-- Buckets end at 1 ms · 1.2^i; the last has all that are above the ends of the others.
local FIRST_END, BUCKETS = 0.001, 57
local PER_LOG = 1 / log(1.2)
local OFFSET = log(FIRST_END) * PER_LOG

local function no_counts()
  local counts = {}
  for bucket = 1, BUCKETS do
    counts[bucket] = 0
  end
  return counts
end

function M.new()
  return setmetatable({
    count = 0, sum = 0, failed = 0, cost = 0, delays = no_counts(), ages = no_counts(),
  }, Observation)
end

local function count_in(counts, seconds)
  local bucket = 1
  if seconds > FIRST_END then
    -- The ceiling, without a call.
    bucket = 1 - ((OFFSET - log(seconds) * PER_LOG) // 1 | 0)
    if bucket > BUCKETS then
      bucket = BUCKETS
    end
  end
  counts[bucket] = counts[bucket] + 1
end

--- An answer came.
-- @param delay number s
-- @param cost number items the request touched
function Observation:answered(delay, cost)
  self.count, self.sum, self.cost = self.count + 1, self.sum + delay, self.cost + cost
  count_in(self.delays, delay)
end

--- The node failed a request, which says nothing of delay.
function Observation:failure()
  self.failed = self.failed + 1
end

--- A request's client left at this age, in s, and had no answer.
function Observation:left(age)
  count_in(self.ages, age)
end

local function text_of(counts)
  local pairs_of = {}
  for bucket, count in ipairs(counts) do
    if count > 0 then
      pairs_of[#pairs_of + 1] = ("%d:%d"):format(bucket - 1, count)
    end
  end
  return #pairs_of > 0 and table.concat(pairs_of, ",") or "-"
end

--- "2 <count> <sum s> <failed> <cost> <delays> <ages of those who left>"
function Observation:text()
  return ("2 %d %.6f %d %.0f %s %s"):format(
    self.count, max(self.sum, 0), self.failed, self.cost, text_of(self.delays), text_of(self.ages)
  )
end

return M
