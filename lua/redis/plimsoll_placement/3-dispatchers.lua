-- A dispatcher is no more.
local function remove(keys, id, idle)
  redis.call("HDEL", keys[4], id)
  redis.call("HDEL", keys[5], id)
  if not idle then
    note_gone(keys, id)
  end
  members_changed(keys)
end

-- join(id): { "open", generation, version, lease_ms, request_limit_ms, when_lost, set, state, … }, or { "wait", ms }
-- where no table is in force: let nobody in, and ask again then.
--   id: NAME#INSTANCE. Another one of the same name is dead, and replaced by this.
local function join(keys, args)
  local id = args[1]
  local name = name_of(id)
  if not name then return fail(BAD_ID) end
  tell_time(keys)
  local meta = read_meta(keys)
  if not meta or (meta.ahead > 0 and not meta.is_sure) then
    return { "wait", WAIT_MS }
  end
  if meta.opens_at > meta.clock then
    return { "wait", open_in(meta) }
  end
  if redis.call("HEXISTS", keys[4], id) == 1 or redis.call("HEXISTS", keys[7], id) == 1 then
    return fail("dispatcher " .. id .. " has joined before: an id is never used twice")
  end
  local entries, is_whole = read_table(keys)
  if not is_whole then
    return damaged(keys, meta)
  end
  local count = 0
  for _, other in ipairs(redis.call("HKEYS", keys[4])) do
    if name_of(other) == name then
      remove(keys, other, false)
    else
      count = count + 1
    end
  end
  if count >= MAX_DISPATCHERS then
    return fail("the cluster has " .. MAX_DISPATCHERS .. " dispatchers, which is the most")
  end
  write_dispatcher(keys, id, {
    version = meta.version, joined = meta.version, lease = meta.lease, holds = meta.when_lost == "hold",
  })
  members_changed(keys)
  local reply = { "open", meta.generation, meta.version, meta.lease, meta.request_limit, meta.when_lost }
  append(reply, entries)
  return reply
end

-- A blank-separated list, "-" for none; nil where it is too long or has what it must not have.
local function parse_busy(text)
  if text == "-" then
    return ""
  end
  if not text or #text > MAX_BUSY * (MAX_NAME + 2) then
    return nil
  end
  local sets = {}
  for set in text:gmatch("%S+") do
    if #sets == MAX_BUSY or #set > MAX_NAME + 1 or not is_set(set) then
      return nil
    end
    sets[#sets + 1] = set
  end
  return table.concat(sets, " ")
end

local function parse_loads(text)
  if text == "-" then
    return {}, {}
  end
  if not text or #text > MAX_PAIRS * (MAX_NAME + 32) then
    return nil
  end
  local sets, costs, set = {}, {}, nil
  for word in text:gmatch("%S+") do
    if not set then
      if #sets == MAX_PAIRS or #word > MAX_NAME + 4 or not is_loaded(word) then
        return nil
      end
      set = word
    else
      local cost = number(word, 0, MAX_NUMBER)
      if not cost then
        return nil
      end
      sets[#sets + 1], costs[#costs + 1], set = set, cost, nil
    end
  end
  if not set then
    return sets, costs
  end
end

-- Adds what one dispatcher told to what others did. Where there is no room for a name it counts for its rest.
local function add_loads(keys, sets, costs)
  if #sets == 0 then
    return
  end
  local room = MAX_LOADS - redis.call("HLEN", keys[6])
  local sums, order = {}, {}
  local function add(set, cost)
    if not sums[set] then
      order[#order + 1], sums[set] = set, 0
    end
    sums[set] = sums[set] + cost
  end
  for i, known in ipairs(get_all(keys[6], sets)) do
    local set = sets[i]
    if not known and not sums[set] then
      room = room - 1
      set = room >= 0 and set or set:match("^(%*%d+)")
    end
    if set then
      add(set, costs[i])
    end
  end
  local flat = {}
  for i, known in ipairs(get_all(keys[6], order)) do
    local sum = sums[order[i]] + (number(known or "", 0, MAX_NUMBER) or 0)
    flat[2 * i - 1], flat[2 * i] = order[i], string.format("%.9g", math.min(sum, MAX_NUMBER))
  end
  set_all(keys[6], flat)
end

-- report(id, generation, version, busy, loads): { "ok", version, delta, … }, or { "table", generation, version, set,
-- state, … } for who missed too much. An error that begins with UNKNOWN: let nobody in, join anew under a new id.
--   busy: blank-separated sets that are leaving and of which something is under way or in doubt there, or "-".
--   loads: set and cost of what began since the last report, blank-separated, or "-".
local function report(keys, args)
  local id, generation, version = args[1], args[2], whole(args[3], 0, MAX_VERSION)
  if not name_of(id) then return fail(BAD_ID) end
  if not is_word(generation, 64) then return fail(BAD_GENERATION) end
  if not version then return fail(BAD_VERSION) end
  local busy = parse_busy(args[4])
  if not busy then
    return fail("busy must be - or at most " .. MAX_BUSY .. " sets: " .. WHAT_A_SET_IS)
  end
  local sets, costs = parse_loads(args[5])
  if not sets then
    return fail("loads must be - or at most " .. MAX_PAIRS
      .. " pairs of a set, =NAME, *N or *N:NAME, and a cost within 0..1e15")
  end
  tell_time(keys)
  local known = parse_dispatcher(redis.call("HGET", keys[4], id))
  if not known then
    return refuse("UNKNOWN", "dispatcher " .. id .. " has not joined, or was taken for gone: join anew under a new id")
  end
  local meta = read_meta(keys)
  if not meta or meta.generation ~= generation then
    return refuse("UNKNOWN", "generation " .. generation .. " is not in force: join anew under a new id")
  end
  if not has_been(meta, version) then
    note_ahead(keys, meta, version)
    -- It has acted on that one.
    remove(keys, id, false)
    return refuse("UNKNOWN", "version " .. exact(version) .. " is not known here, the table is at "
      .. exact(meta.version) .. ": join anew under a new id")
  end
  local reply = news(keys, meta, generation, version, { "ok", meta.version }, { "table" })
  if reply.err then
    return reply
  end
  known.heard, known.version = nil, version
  write_dispatcher(keys, id, known)
  if busy == "" then
    redis.call("HDEL", keys[5], id)
  else
    redis.call("HSET", keys[5], id, busy)
  end
  add_loads(keys, sets, costs)
  return reply
end

-- leave(id, idle): 1, or 0 where it was not known.
--   idle: 1 where nothing of it is under way or in doubt, else 0.
local function leave(keys, args)
  local id, idle = args[1], whole(args[2], 0, 1)
  if not name_of(id) then return fail(BAD_ID) end
  if not idle then return fail("idle must be 0 or 1") end
  tell_time(keys)
  if redis.call("HEXISTS", keys[4], id) == 0 then
    return 0
  end
  remove(keys, id, idle == 1)
  return 1
end
