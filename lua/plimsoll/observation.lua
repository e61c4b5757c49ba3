--- What the requests of one dispatcher showed of one node: counters since the start.

local max, min, log = math.max, math.min, math.log

local M = {}
local Observation = {}
Observation.__index = Observation

-- Delays are counted in buckets of 1 ms · 1.2^i: 56 of them reach 27 s.
local FIRST_BUCKET, BUCKETS = 0.001, 56
local PER_LOG = 1 / log(1.2)
local OFFSET = log(FIRST_BUCKET) * PER_LOG

function M.new()
  local buckets = {}
  for bucket = 1, BUCKETS + 1 do
    buckets[bucket] = 0
  end
  return setmetatable({ count = 0, sum = 0, failed = 0, cost = 0, buckets = buckets }, Observation)
end

--- An answer came.
-- @param delay number s
-- @param cost number items the request touched
function Observation:answered(delay, cost)
  self.count, self.sum, self.cost = self.count + 1, self.sum + delay, self.cost + cost
  local bucket = 1
  if delay > FIRST_BUCKET then
    -- The ceiling, without a call.
    bucket = min(1 - ((OFFSET - log(delay) * PER_LOG) // 1 | 0), BUCKETS + 1)
  end
  local buckets = self.buckets
  buckets[bucket] = buckets[bucket] + 1
end

--- A request ended without a good answer, which says nothing of delay.
function Observation:failure()
  self.failed = self.failed + 1
end

--- "1 <count> <sum s> <failed> <cost> <bucket:count,…|->"
function Observation:text()
  local pairs_of = {}
  for bucket, count in ipairs(self.buckets) do
    if count > 0 then
      pairs_of[#pairs_of + 1] = ("%d:%d"):format(bucket - 1, count)
    end
  end
  return ("1 %d %.6f %d %.0f %s"):format(
    self.count, max(self.sum, 0), self.failed, self.cost, #pairs_of > 0 and table.concat(pairs_of, ",") or "-"
  )
end

return M
