--- Demand per object set, for reports to the keeper.
--
-- Of the names that share a rest only the hottest are reported individually, so that those can get entries of their
-- own. Memory is bounded for any number of names.

local M = {}

local byte = string.byte
local NAMED = byte("=")
-- Maximum pairs in a report, and of them names that share a rest.
local MAX_PAIRS, MAX_SHARING, RESTS = 1024, 64, 64
-- Maximum names that share a rest and are counted individually; further ones in a period count for the rest only.
local MAX_COUNTED = 4096

-- The hottest of `costs`, at most `most`, hottest first; and a list of the others.
local function hottest(costs, most)
  local top, others = {}, {}
  for key, cost in pairs(costs) do
    local last = top[most]
    if last and costs[last] >= cost then
      others[#others + 1] = key
    else
      local low, high = 1, #top + 1
      while low < high do
        local middle = (low + high) // 2
        if costs[top[middle]] >= cost then
          low = middle + 1
        else
          high = middle
        end
      end
      table.insert(top, low, key)
      if #top > most then
        others[#others + 1] = table.remove(top)
      end
    end
  end
  return top, others
end

function M.new()
  local self = {}
  -- Costs by word on the wire, with "=" or "*"; costs of names that share a rest, and their rests.
  local sums, sharing, rest_of, counted = {}, {}, {}, 0

  --- Counts a request that begins.
  -- @param word string the entry that it belongs to
  function self.add(word, name, cost)
    if byte(word) == NAMED then
      sums[word] = (sums[word] or 0) + cost
      return
    end
    local sum = sharing[name]
    if sum then
      sharing[name] = sum + cost
    elseif counted < MAX_COUNTED then
      sharing[name], rest_of[name], counted = cost, word, counted + 1
    else
      sums[word] = (sums[word] or 0) + cost
    end
  end

  --- Discards all counts.
  function self.clear()
    sums, sharing, rest_of, counted = {}, {}, {}, 0
  end

  --- Report of the requests since the last one: `SET COST SET COST …`, or "-". The coldest sets beyond the maximum
  -- follow in a later report.
  function self.take()
    local told, words, rests = {}, {}, {}
    -- Requests continue while this reads.
    local sums_of, sharing_of, rests_of = sums, sharing, rest_of
    self.clear()
    for word, cost in pairs(sums_of) do
      if byte(word) ~= NAMED then
        rests[word] = cost
      end
    end
    for word in pairs(rests) do
      sums_of[word] = nil
    end
    local top, others = hottest(sharing_of, MAX_SHARING)
    for _, name in ipairs(top) do
      local word = rests_of[name] .. ":" .. name
      words[#words + 1], told[word] = word, sharing_of[name]
    end
    for _, name in ipairs(others) do
      local word = rests_of[name]
      rests[word] = (rests[word] or 0) + sharing_of[name]
    end
    for word, cost in pairs(rests) do
      words[#words + 1], told[word] = word, cost
    end
    top, others = hottest(sums_of, MAX_PAIRS - MAX_SHARING - RESTS)
    for _, word in ipairs(top) do
      words[#words + 1], told[word] = word, sums_of[word]
    end
    for _, word in ipairs(others) do
      sums[word] = (sums[word] or 0) + sums_of[word]
    end
    for i, word in ipairs(words) do
      words[i] = ("%s %.6g"):format(word, told[word])
    end
    return #words > 0 and table.concat(words, " ") or "-"
  end

  return self
end

return M
