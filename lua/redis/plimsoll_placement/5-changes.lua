-- read(agent, epoch, lease_ms, request_limit_ms, with_loads, plan, passed_ms): all that the keeper goes by, and its
-- lease anew.
--   request_limit_ms: who has gone for longer leaves no doubt.
--   with_loads: 1 to take the loads told so far. plan: what was planned last, for people.
--   passed_ms: by the keeper's own clock, which nobody sets, since its last claim, open or read was answered.
-- { generation, version, open_in_ms, ahead, wishes, dispatchers, gone, id, age_ms, version, joined at, busy, … of each
-- dispatcher, id, age_ms, … of each that has gone, set, cost, … }; generation is empty where there is no table.
--   ahead: a version that somebody acted on and Redis does not know, or 0. wishes: "set node …", told once.
local function read(keys, args)
  local epoch, bad = parse_agent(args)
  if bad then return bad end
  local lease, request_limit = whole(args[3], 1, MAX_LEASE_MS), whole(args[4], 0, MAX_LEASE_MS)
  local with_loads, plan, passed = whole(args[5], 0, 1), args[6], whole(args[7], 0, MAX_LEASE_MS)
  if not lease then return fail("lease_ms must be a whole number within 1..3600000") end
  if not request_limit then return fail("request_limit_ms must be a whole number within 0..3600000") end
  if not with_loads then return fail("with_loads must be 0 or 1") end
  if not plan or #plan > MAX_PLAN then return fail("plan must be at most " .. MAX_PLAN .. " bytes") end
  if not passed then return fail("passed_ms must be a whole number within 0..3600000") end
  local now = tell_time(keys)
  local other = fenced(keys, args[1], epoch, now)
  if other then
    return other
  end
  local wishes = redis.call("HGET", keys[1], "wishes")
  local clock = math.min(read_clock(keys) + passed, MAX_VERSION)
  redis.call("HSET", keys[1], "keeper_end", exact(now + lease), "plan", plan, "clock", exact(clock))
  redis.call("HDEL", keys[1], "wishes")
  local dispatchers, count = look_at_dispatchers(keys, clock)
  local gone = look_at_gone(keys, clock, request_limit)
  local meta = read_meta(keys)
  local reply = {
    meta and meta.generation or "", meta and meta.version or 0, meta and open_in(meta) or 0,
    meta and meta.ahead or 0, wishes or "", count, #gone / 2,
  }
  append(reply, dispatchers)
  append(reply, gone)
  if with_loads == 1 then
    for set, cost in pairs_of(redis.call("HGETALL", keys[6])) do
      if #set <= MAX_NAME + 4 and is_loaded(set) and number(cost, 0, MAX_NUMBER) then
        append(reply, { set, cost })
      end
    end
    redis.call("DEL", keys[6])
  end
  return reply
end

-- Of "set state …": the entries, the names to drop, and all words; nil and what is wrong.
local function parse_entries(text, may_drop)
  local flat, dropped, words, set = {}, {}, {}, nil
  for word in text:gmatch("%S+") do
    words[#words + 1] = word
    if not set then
      if #word > MAX_NAME + 1 or not is_set(word) then
        return nil, WHAT_A_SET_IS
      end
      set = word
    else
      if word == "-" and may_drop and set:sub(1, 1) == "=" then
        dropped[#dropped + 1] = set
      elseif #word <= MAX_NAME + 1 and is_state(word) then
        flat[#flat + 1], flat[#flat + 2] = set, word
      else
        return nil, "the state of " .. set .. " must be the name of a node, or > and that"
      end
      set = nil
    end
    if #words > 2 * MAX_ENTRIES then
      return nil, "there are more than " .. MAX_ENTRIES .. " entries"
    end
  end
  if set then
    return nil, "object set " .. set .. " has no state"
  end
  return flat, dropped, words
end

-- open(agent, epoch, generation, version, wait_ms, ids, entries): a table that does not go on from the one before.
--   wait_ms: nobody is told of it before, as somebody may still act on another one.
--   ids: blank-separated, dispatchers that may do so for as long as nobody says that they are dead.
--   entries: "set state …" with every rest.
local function open(keys, args)
  local epoch, bad = parse_agent(args)
  if bad then return bad end
  local generation, version, wait = args[3], whole(args[4], 1, MAX_VERSION), whole(args[5], 0, MAX_WAIT_MS)
  if not is_word(generation, 64) then return fail(BAD_GENERATION) end
  if not version then return fail("version must be a whole number within 1..2^53-1") end
  if not wait then return fail("wait_ms must be a whole number within 0..14400000") end
  local ids = args[6] or ""
  if #ids > MAX_DISPATCHERS * (MAX_ID + 1) then return fail("there are too many ids") end
  for id in ids:gmatch("%S+") do
    if not name_of(id) then return fail(BAD_ID) end
  end
  local flat, problem = parse_entries(args[7] or "", false)
  if not flat then return fail(problem) end
  local is_there = {}
  for set in pairs_of(flat) do
    is_there[set] = true
  end
  for rest = 0, RESTS - 1 do
    if not is_there["*" .. rest] then return fail("rest *" .. rest .. " has no state") end
  end
  local now = tell_time(keys)
  local other = fenced(keys, args[1], epoch, now)
  if other then
    return other
  end
  if redis.call("HGET", keys[1], "generation") == generation then
    return fail("generation " .. generation .. " has been: a table that does not go on needs another")
  end
  redis.call("DEL", keys[2], keys[3], keys[5], keys[6])
  redis.call("HDEL", keys[1], "ahead", "wishes", "lasts")
  set_all(keys[2], flat)
  local lease = whole(redis.call("HGET", keys[1], "lease") or "", 1, MAX_LEASE_MS) or MAX_LEASE_MS
  local holds = redis.call("HGET", keys[1], "when_lost") == "hold"
  for id in ids:gmatch("%S+") do
    if redis.call("HEXISTS", keys[4], id) == 0 and redis.call("HEXISTS", keys[7], id) == 0 then
      write_dispatcher(keys, id, { version = 0, joined = 0, lease = lease, holds = holds })
    end
  end
  -- Of the versions that they told none is of this table.
  for id, text in pairs_of(redis.call("HGETALL", keys[4])) do
    local known = parse_dispatcher(text)
    if known then
      known.version, known.joined = 0, 0
      write_dispatcher(keys, id, known)
    end
  end
  redis.call("HSET", keys[1], "generation", generation, "version", exact(version), "sure", exact(epoch),
    "opens_at", exact(read_clock(keys) + wait))
  members_changed(keys)
  redis.call("PUBLISH", keys[1], generation .. " " .. exact(version) .. " full")
  return 1
end

-- publish(agent, epoch, generation, delta): the table goes on from "from" to "to" of "from to set state …".
-- An error that begins with FENCED: there is another keeper. With BEHIND: the table in Redis is not at "from", or seems
-- to have lost changes.
local function publish(keys, args)
  local epoch, bad = parse_agent(args)
  if bad then return bad end
  local generation, delta = args[3], args[4] or ""
  if not is_word(generation, 64) then return fail(BAD_GENERATION) end
  local from, to, entries = delta:match("^(%d+) (%d+) (.+)$")
  from, to = whole(from, 1, MAX_VERSION), whole(to, 1, MAX_VERSION)
  if not from or not to or to <= from then
    return fail("a change is two versions within 1..2^53-1, the second one higher, and entries")
  end
  local flat, dropped, words = parse_entries(entries, true)
  if not flat then return fail(dropped) end
  local now = tell_time(keys)
  local other = fenced(keys, args[1], epoch, now)
  if other then
    return other
  end
  local meta = read_meta(keys)
  if not meta or meta.generation ~= generation or meta.version ~= from then
    return refuse("BEHIND", "the table here is " .. (meta and meta.generation .. " " .. exact(meta.version) or "none")
      .. ", and not " .. generation .. " " .. exact(from))
  end
  if meta.ahead > 0 and not meta.is_sure then
    return refuse("BEHIND", "somebody knows version " .. exact(meta.ahead) .. ", the table here is at " .. exact(from))
  end
  drop(keys[2], dropped)
  set_all(keys[2], flat)
  local text = exact(from) .. " " .. exact(to) .. " " .. table.concat(words, " ")
  if term_of(from) ~= term_of(to) then
    local lasts = {}
    for word in meta.lasts:gmatch("%d+") do
      lasts[#lasts + 1] = word
    end
    lasts[#lasts + 1] = exact(from)
    meta.lasts = table.concat(lasts, " ", math.max(1, #lasts - MAX_LASTS + 1))
  end
  redis.call("HSET", keys[1], "version", exact(to), "sure", exact(epoch), "lasts", meta.lasts)
  if #text > MAX_DELTA_BYTES then
    redis.call("DEL", keys[3])
    redis.call("PUBLISH", keys[1], generation .. " " .. exact(to) .. " full")
  else
    redis.call("RPUSH", keys[3], text)
    redis.call("LTRIM", keys[3], -LOGGED, -1)
    redis.call("PUBLISH", keys[1], generation .. " " .. text)
  end
  return to
end

-- heed(agent, epoch): the keeper has looked at the table, and knows better than who told a version that is not.
local function heed(keys, args)
  local epoch, bad = parse_agent(args)
  if bad then return bad end
  local now = tell_time(keys)
  local other = fenced(keys, args[1], epoch, now)
  if other then
    return other
  end
  redis.call("HDEL", keys[1], "ahead")
  return 1
end

-- settle(agent, epoch, server): what was on its way when another server was replaced by this one is so no more.
local function settle(keys, args)
  local epoch, bad = parse_agent(args)
  if bad then return bad end
  local server = args[3]
  if not is_word(server, 64) or server:find("#", 1, true) then return fail(BAD_SERVER) end
  local now = tell_time(keys)
  local other = fenced(keys, args[1], epoch, now)
  if other then
    return other
  end
  redis.call("HSET", keys[1], "server", server)
  return 1
end
