-- What others must leave to it and what is wished, of "held demand"; what cannot be read does not count.
local function parse_share(text)
  local held, wish = (text or ""):match("^(%S+) (%S+)$")
  return number(held, 0, MAX_NUMBER) or 0, number(wish, 0, MAX_NUMBER) or 0
end

-- The same of all proxies together, as kept; nil where it cannot be.
local function parse_sum(text)
  if text and #text == 16 then
    local held, wish = struct.unpack("<dd", text)
    return number(held, 0, MAX_SUM), number(wish, 0, MAX_SUM)
  end
end

-- The same, made anew, without one of the proxies.
local function sum_shares(key, node, proxies, without)
  local fields = {}
  for proxy in pairs(proxies) do
    if proxy ~= without then
      fields[#fields + 1] = node .. " " .. proxy
    end
  end
  local taken, wished = 0, 0
  for _, text in ipairs(get_all(key, fields)) do
    local held, wish = parse_share(text)
    taken, wished = taken + held, wished + wish
  end
  return taken, wished
end

-- A share in whole requests of mean cost, as far as they are free: a part of a request is of use to nobody,
-- and many proxies would keep one each. Of less than one request it is what it is.
-- @param dither number within 0..1, spread evenly over the proxies, so that together they have what is wanted;
--   another at each time, so that in the mean each has
local function in_requests(wanted, free, mean_cost, dither)
  local most = math.min(wanted, free)
  -- Of a billion requests one more or less is nothing, and what is beyond numbers cannot be counted.
  if mean_cost <= 1e-9 * most or most < mean_cost then
    return most
  end
  -- Sums of shares drift by less than this.
  local whole_ones = math.min(math.floor(wanted / mean_cost + dither), math.floor(free / mean_cost + 1e-9))
  return math.min(whole_ones * mean_cost, free)
end

-- How many proxies come before it by name.
local function place_of(proxy, proxies)
  local before = 0
  for name in pairs(proxies) do
    if name < proxy then
      before = before + 1
    end
  end
  return before
end

-- What of the nodes' bounds this proxy may use. Shares go by demand. One is raised only by what the
-- others have given up, so that together they never exceed the bound.
-- The sum over the proxies is kept with each node, or else a call would read all shares of all proxies.
-- Who is new at a node leaves half of what is free, for it is seldom alone: the threads of a proxy start together, and
-- what one holds the others would have to wait for. At a node that is back, others may hold what it does not know of.
-- In every call one node's is made anew, in turn, so that none is wrong for long.
-- Of a share that falls, the proxy goes on holding what it may have in flight until it hears of that: or else
-- the others would fill the node on top of it.
-- @param asked list of { name, demand, told, held, node }; each gets its `granted`, as text
local function grant(keys, asked, proxy, proxies, count, now)
  local names, fields = {}, {}
  for i, entry in ipairs(asked) do
    names[i] = entry.name
    fields[i] = entry.name .. " " .. proxy
  end
  local sums, owns = get_all(keys[5], names), get_all(keys[4], fields)
  local shares, new_sums = {}, {}
  local turn = now % math.max(#asked, 1) + 1
  -- They change their rounding one after the other, so that at any time it is spread evenly.
  local place = place_of(proxy, proxies)
  local round = place + math.floor(now / ROUNDED_MS + place / count)
  for i, entry in ipairs(asked) do
    local held, wish = parse_share(owns[i])
    local all_held, all_wish = parse_sum(sums[i])
    local taken, sum
    if i ~= turn and all_held and all_wish and all_held - held >= CANCELLED * all_held then
      taken, sum = all_held - held, math.max(all_wish - wish, 0)
    else
      taken, sum = sum_shares(keys[4], entry.name, proxies, proxy)
    end
    local bound, demand = entry.node.bound, entry.demand
    local most = math.max(bound, MAX_TIMES_OTHERS * sum)
    if demand > most then
      demand, entry.told = most, exact(most)
    end
    sum = sum + demand
    -- Above nothing, so that shares are numbers.
    local floor = FLOOR_DEMAND * math.max(sum, bound, 1e-9) / count
    local wanted = bound * (demand + floor) / (sum + floor * count)
    local free = math.max(0, bound - taken)
    if not owns[i] then
      wanted = math.min(wanted, free / 2)
    end
    local granted = math.min(wanted, free)
    if count > 1 then
      granted = in_requests(wanted, free, entry.node.mean_cost, (round + i) * GOLDEN % 1)
    end
    entry.granted = exact(granted)
    local kept, kept_text = math.min(entry.held, held), entry.granted
    if kept > granted then
      kept_text = exact(kept)
    else
      kept = granted
    end
    shares[2 * i - 1], shares[2 * i] = fields[i], kept_text .. " " .. entry.told
    new_sums[2 * i - 1], new_sums[2 * i] = names[i], struct.pack("<dd", taken + kept, sum)
  end
  set_all(keys[4], shares)
  set_all(keys[5], new_sums)
end
