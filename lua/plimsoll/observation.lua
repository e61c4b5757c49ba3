--- Cumulative observation of one node by one dispatcher.
-- agent/core/src/dispatch/observed.rs documents and parses the text form; agent/core/vectors/observations.json pins
-- that both agree.

local max, log = math.max, math.log

local M = {}
local Observation = {}
Observation.__index = Observation

-- Upper bounds of buckets are 1 ms · 1.2^i; the last bucket has none.
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

local function bucket_of(seconds)
  if seconds <= FIRST_END then
    return 1
  end
  -- The ceiling, without a function call.
  local bucket = 1 - ((OFFSET - log(seconds) * PER_LOG) // 1 | 0)
  return bucket > BUCKETS and BUCKETS or bucket
end

--- Counts a response.
-- @param delay number s
-- @param cost number items the request touched
function Observation:answered(delay, cost)
  self.count, self.sum, self.cost = self.count + 1, self.sum + delay, self.cost + cost
  local counts, bucket = self.delays, 1
  if delay > FIRST_END then
    bucket = bucket_of(delay)
  end
  counts[bucket] = counts[bucket] + 1
end
-- For callers that spare the look-up of a method.
M.answered = Observation.answered

--- Counts a failed request, which has no delay.
function Observation:failure()
  self.failed = self.failed + 1
end

--- Counts a request whose client left at this age, in s, without a response.
function Observation:left(age)
  local counts, bucket = self.ages, bucket_of(age)
  counts[bucket] = counts[bucket] + 1
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

--- "3 <count> <sum s> <failed> <cost> <delays> <ages of those who left> <asked> <refused> <jobs>"
-- @param asked integer decisions of the dispatcher, for all nodes
-- @param refused integer those of them that found no room
-- @param jobs integer requests of the dispatcher that are in the node, or nil if it does not know
function Observation:text(asked, refused, jobs)
  return ("3 %d %.6f %d %.0f %s %s %d %d %s"):format(
    self.count, max(self.sum, 0), self.failed, self.cost, text_of(self.delays), text_of(self.ages),
    asked, refused, jobs or "-"
  )
end

return M
