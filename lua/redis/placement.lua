#!lua name=plimsoll_placement

-- Plimsoll's placement: which node is the primary of which object set, and who has to know before one moves.
--
-- Redis 7.0 and later, Valkey. It decides nothing: the keeper, of which there is one, reads what dispatchers say and
-- writes the table; what is here makes each step atomic and refuses a keeper that has been replaced. Nothing that is
-- read back is trusted.
--
-- Keys, all with the prefix P = `plimsoll:{cluster}:placement` and so in one hash slot of a Redis Cluster:
--   KEYS[1] P               hash  generation, version, opens_at; lasts (the last versions of terms before), sure (the
--                                 epoch that wrote the version); epoch, keeper, keeper_end, server; lease,
--                                 request_limit, when_lost, margin; members (counts who came and went), ahead (a
--                                 version that somebody told and that there is not), wishes, plan, clock (see below),
--                                 seen (time of the last call)
--   KEYS[2] P:table         hash  set -> "node" or ">node" (it leaves it)
--   KEYS[3] P:log           list  the last changes, as published
--   KEYS[4] P:dispatchers   hash  id -> "heard version joined lease when_lost"
--   KEYS[5] P:busy          hash  id -> sets that are leaving and of which something is under way there
--   KEYS[6] P:loads         hash  set -> cost, of all dispatchers since the keeper read it last
--   KEYS[7] P:gone          hash  id -> when a dispatcher went of which something may be under way still
-- Times are in ms, and but for keeper_end and seen of a clock that only the keeper moves on: when it reads, by what
-- passed for it. The server's own may be set, and it jumps where another server takes over. "-" stands for: since the
-- keeper read last.
--
-- A version is of the term of a keeper, a block of TERM_VERSIONS numbers. Each term draws a later block by lot, so that
-- versions that Redis lost with a failover or a crash have no namesakes.
--
-- Set: `=NAME`, or `*N` for a rest; in loads also `*N:NAME`, a name that has no entry.
--
-- Changes are published on the channel named as KEYS[1]: "<generation> <from> <to> <set> <state> …", with "-" for an
-- entry that goes, or "<generation> <to> full" where reading the table is cheaper.

local VERSION = 2

local MAX_DISPATCHERS = 4096
local MAX_ENTRIES = 16384 + 64
local RESTS = 64
local MAX_LEASE_MS = 3600000
-- What follows a lease, and a lease with that and a request's limit.
local MAX_MARGIN_MS = 2 * MAX_LEASE_MS
local MAX_WAIT_MS = 4 * MAX_LEASE_MS
-- Of costs.
local MAX_NUMBER = 1e15
-- Of versions and counters: Lua's numbers here are doubles.
local MAX_VERSION = 2 ^ 53 - 1
-- As in agent/core.
local TERM_VERSIONS = 16384
-- Terms before of which it is known which versions there were; who is further behind joins anew.
local MAX_LASTS = 64
-- Of what was published and lost: a few terms, of which each is at most 2^34 further.
local MAX_AHEAD = 2 ^ 40
local MAX_NAME = 128
local MAX_ID = 200
local MAX_RECORD_BYTES = 1024
-- Sets that leave at a time, and pairs of loads in one report.
local MAX_BUSY = 1024
local MAX_PAIRS = 1024
-- Loads kept until the keeper reads them.
local MAX_LOADS = 32768
local MAX_WISHES = 64
local MAX_PLAN = 200
local LOGGED = 32
-- A longer change is not kept: who missed it reads the table.
local MAX_DELTA_BYTES = 65536
-- When more have gone the longest gone are forgotten: doubt lasts until the last one's is over.
local MAX_GONE = 256
-- On top of its lease, before a dispatcher that holds is taken for gone, at least.
local MIN_MARGIN_MS = 1000
-- Heard, or gone, since the keeper read last.
local FRESH = "-"
-- Who asks for a table that there is not asks again then.
local WAIT_MS = 500

local function fail(text)
  return redis.error_reply("ERR plimsoll: " .. text)
end

local function refuse(word, text)
  return redis.error_reply(word .. " plimsoll: " .. text)
end

local function now_ms()
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function number(text, low, high)
  local value = tonumber(text)
  -- NaN is the only value that differs from itself.
  if value == nil or value ~= value or value < low or value > high then
    return nil
  end
  return value
end

local function whole(text, low, high)
  local value = number(text, low, high)
  return value and value == math.floor(value) and value or nil
end

local function exact(value)
  return string.format("%.17g", value)
end

-- A parser that remembers what it made of up to `most` texts: they are read far more often than written.
local function remembering(most, parse)
  local known, count = {}, 0
  return function(text)
    local found = known[text]
    if found == nil then
      if count == most then
        known, count = {}, 0
      end
      found = parse(text) or false
      known[text], count = found, count + 1
    end
    return found
  end
end

local function is_node(text)
  return type(text) == "string" and #text <= MAX_NAME and text ~= "-" and text:find("^[%w._:/%-]+$") ~= nil
end

-- "node", or ">node" for one that is being left.
local is_state = remembering(1024, function(text)
  return is_node(text:sub(1, 1) == ">" and text:sub(2) or text)
end)

local function is_rest(text)
  local rest = whole(text, 0, RESTS - 1)
  return rest ~= nil and text == string.format("%d", rest)
end

local function is_object_name(text)
  return #text <= MAX_NAME and text:find("^[!-~]+$") ~= nil
end

-- What an entry may be named.
local is_set = remembering(32768, function(text)
  local kind, rest = text:sub(1, 1), text:sub(2)
  if kind == "=" then
    return is_object_name(rest)
  end
  return kind == "*" and is_rest(rest)
end)

-- What a load may be told of.
local is_loaded = remembering(32768, function(text)
  if is_set(text) then
    return true
  end
  local rest, name = text:match("^%*(%d%d?):(.+)$")
  return rest ~= nil and is_rest(rest) and is_object_name(name)
end)

local function is_word(text, most)
  return type(text) == "string" and #text <= most and text:find("^[!-~]+$") ~= nil
end

-- The part of an id that stays the same after a restart; nil where it is no id.
local function name_of(id)
  return is_word(id, MAX_ID) and id:match("^([^#]+)#[^#]+$") or nil
end

local BAD_ID = "id must be NAME#INSTANCE, 3..200 visible ASCII characters with one #"
local BAD_GENERATION = "generation must be 1..64 visible ASCII characters"
local BAD_VERSION = "version must be a whole number within 0..2^53-1"
local WHAT_A_SET_IS = "an object set is =NAME or *0..*63, NAME 1..128 visible ASCII characters"
local BAD_SERVER = "server must be 1..64 visible ASCII characters, none of them #"
local BAD_EPOCH = "epoch must be a whole number within 0..2^53-1"

-- The values of any number of fields; false where there is none.
local function get_all(key, fields)
  local values = {}
  for first = 1, #fields, 1000 do
    for i, value in ipairs(redis.call("HMGET", key, unpack(fields, first, math.min(first + 999, #fields)))) do
      values[first + i - 1] = value
    end
  end
  return values
end

local function set_all(key, flat)
  for first = 1, #flat, 1000 do
    redis.call("HSET", key, unpack(flat, first, math.min(first + 999, #flat)))
  end
end

local function drop(key, fields)
  for first = 1, #fields, 1000 do
    redis.call("HDEL", key, unpack(fields, first, math.min(first + 999, #fields)))
  end
end

local function pairs_of(flat)
  local i = -1
  return function()
    i = i + 2
    return flat[i], flat[i + 1]
  end
end

local function append(list, more)
  for _, value in ipairs(more) do
    list[#list + 1] = value
  end
end

-- Of "heard version joined lease when_lost": when it was heard last, nil for since the keeper read last; the version it
-- told, that it joined at.
local function parse_dispatcher(text)
  if not text or #text > MAX_RECORD_BYTES then
    return nil
  end
  local heard, version, joined, lease, when_lost = text:match("^(%S+) (%d+) (%d+) (%d+) (%a+)$")
  local found = {
    heard = whole(heard, 0, MAX_VERSION), version = whole(version, 0, MAX_VERSION),
    joined = whole(joined, 0, MAX_VERSION), lease = whole(lease, 0, MAX_LEASE_MS), holds = when_lost == "hold",
  }
  if (found.heard or heard == FRESH) and found.version and found.joined and found.lease then
    return found
  end
end

local function write_dispatcher(keys, id, known)
  local mode = known.holds and "hold" or "serve"
  local heard = known.heard and exact(known.heard) or FRESH
  local words = { heard, exact(known.version), exact(known.joined), exact(known.lease), mode }
  redis.call("HSET", keys[4], id, table.concat(words, " "))
end

-- How long ago by the keeper's clock; 0 for what is from after its last reading, or from a clock of before.
local function since(time, clock)
  return time and math.max(0, clock - time) or 0
end

local function read_clock(keys)
  return whole(redis.call("HGET", keys[1], "clock") or "", 0, MAX_VERSION) or 0
end

-- The keeper's lease runs on the server's clock. Time in which nobody could call does not count, but for a third of a
-- lease; a clock that was set, or another server's after a failover, moves the end of the lease along.
local function tell_time(keys)
  local now = now_ms()
  local fields = redis.call("HMGET", keys[1], "seen", "lease", "keeper_end")
  local seen, lease = whole(fields[1] or "", 1, MAX_VERSION), whole(fields[2] or "", 1, MAX_LEASE_MS) or 0
  redis.call("HSET", keys[1], "seen", exact(now))
  local away = seen and now - seen or 0
  if away > 0 then
    away = math.max(0, away - math.floor(lease / 3))
  end
  local till = away ~= 0 and whole(fields[3] or "", 1, seen + MAX_LEASE_MS)
  if till then
    redis.call("HSET", keys[1], "keeper_end", exact(math.max(1, till + away)))
  end
  return now
end

-- What is in force, or is to be at opens_at; nil where there is nothing, or nothing to be trusted.
local function read_meta(keys)
  local fields = redis.call("HMGET", keys[1], "generation", "version", "opens_at", "lease", "request_limit",
    "when_lost", "ahead", "sure", "epoch", "clock", "lasts")
  local meta = {
    generation = fields[1], version = whole(fields[2] or "", 1, MAX_VERSION),
    opens_at = whole(fields[3] or "", 0, MAX_VERSION),
    lease = whole(fields[4] or "", 1, MAX_LEASE_MS), request_limit = whole(fields[5] or "", 0, MAX_LEASE_MS),
    when_lost = fields[6], ahead = whole(fields[7] or "", 0, MAX_VERSION) or 0,
    -- The version was written by the keeper of now, so that there has been no later one.
    is_sure = fields[8] and fields[8] == fields[9],
    clock = whole(fields[10] or "", 0, MAX_VERSION) or 0, lasts = fields[11] or "",
  }
  local has_all = meta.version and meta.opens_at and meta.lease and meta.request_limit
  if has_all and is_word(meta.generation or "", 64) and (meta.when_lost == "serve" or meta.when_lost == "hold") then
    return meta
  end
end

local function open_in(meta)
  return math.max(0, math.min(meta.opens_at - meta.clock, MAX_WAIT_MS))
end

local function term_of(version)
  return math.floor(version / TERM_VERSIONS)
end

-- Whether the table has been at this version; else it is one that Redis lost, or that never was.
local function has_been(meta, version)
  if version < 1 or version > meta.version then
    return false
  end
  local term = term_of(version)
  if term == term_of(meta.version) then
    return true
  end
  for word in meta.lasts:sub(1, MAX_RECORD_BYTES * 2):gmatch("%d+") do
    local last = whole(word, 1, MAX_VERSION)
    if last and term_of(last) == term then
      return version <= last
    end
  end
  return false
end

-- All entries, and whether they are a table: every rest has a primary.
local function read_table(keys)
  local flat, rests = {}, 0
  if redis.call("HLEN", keys[2]) > 2 * MAX_ENTRIES then
    return flat, false
  end
  for set, state in pairs_of(redis.call("HGETALL", keys[2])) do
    if #set <= MAX_NAME + 1 and is_set(set) and is_state(state) then
      flat[#flat + 1], flat[#flat + 2] = set, state
      rests = rests + (set:sub(1, 1) == "*" and 1 or 0)
    end
  end
  return flat, rests == RESTS
end

-- The changes since a version, oldest first; nil where they are not all known.
local function changes_since(keys, version, newest)
  local found, at = {}, version
  for _, delta in ipairs(redis.call("LRANGE", keys[3], -LOGGED, -1)) do
    local from, to = delta:sub(1, 64):match("^(%d+) (%d+)")
    from, to = whole(from, 0, MAX_VERSION), whole(to, 0, MAX_VERSION)
    if from and to and from == at and to > at then
      found[#found + 1], at = delta, to
    end
  end
  return at == newest and found or nil
end

-- Somebody knows another table than Redis does: it has lost what it had acknowledged. What nobody can have published is
-- not heeded.
local function note_ahead(keys, meta, version)
  if version > meta.ahead and version <= meta.version + MAX_AHEAD then
    redis.call("HSET", keys[1], "ahead", exact(version))
  end
end

-- The keeper is to look.
local function damaged(keys, meta)
  note_ahead(keys, meta, meta.version + 1)
  return fail("the table in Redis is damaged: somebody else wrote to " .. keys[2])
end

-- What somebody lacks that knows this version of this generation: `same`, nothing or changes; `whole`, the table.
local function news(keys, meta, generation, version, same, whole_table)
  if generation == meta.generation and has_been(meta, version) then
    local changes = version == meta.version and {} or changes_since(keys, version, meta.version)
    if changes then
      append(same, changes)
      return same
    end
  end
  append(whole_table, { meta.generation, meta.version })
  local entries, is_whole = read_table(keys)
  if not is_whole then
    return damaged(keys, meta)
  end
  append(whole_table, entries)
  return whole_table
end

local function members_changed(keys)
  local members = whole(redis.call("HGET", keys[1], "members") or "", 0, MAX_VERSION - 1) or 0
  redis.call("HSET", keys[1], "members", exact(members + 1))
end

local function note_gone(keys, id)
  if redis.call("HLEN", keys[7]) >= MAX_GONE then
    local oldest, least
    for other, text in pairs_of(redis.call("HGETALL", keys[7])) do
      local went = whole(text, 0, MAX_VERSION) or MAX_VERSION
      if not least or went < least then
        oldest, least = other, went
      end
    end
    redis.call("HDEL", keys[7], oldest)
  end
  redis.call("HSET", keys[7], id, FRESH)
end

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

-- Who is the keeper: its id, epoch, and for how many ms it still has the lease.
local function read_keeper(keys, now)
  local fields = redis.call("HMGET", keys[1], "keeper", "epoch", "keeper_end")
  local till = whole(fields[3] or "", 0, now + MAX_LEASE_MS) or 0
  local keeper = is_word(fields[1] or "", MAX_ID) and fields[1] or ""
  return keeper, whole(fields[2] or "", 0, MAX_VERSION - 1) or 0, math.max(0, till - now)
end

local function parse_agent(args)
  if not is_word(args[1], MAX_ID) then return nil, fail("agent must be 1..200 visible ASCII characters") end
  local epoch = whole(args[2], 0, MAX_VERSION)
  if not epoch then return nil, fail(BAD_EPOCH) end
  return epoch
end

-- Nil where it is the keeper's newest word; else what to answer.
local function fenced(keys, agent, epoch, now)
  local keeper, newest = read_keeper(keys, now)
  if keeper == "" then
    return refuse("FENCED", "there is no keeper: claim")
  end
  if keeper ~= agent or newest ~= epoch then
    return refuse("FENCED", "epoch " .. exact(epoch) .. " of " .. agent .. " is over: the keeper is " .. keeper
      .. " with epoch " .. exact(newest))
  end
end

-- A new term: every silence begins anew, as nobody knows what dispatchers told the one before, or another server. Where
-- it is another server, somebody may go on by what he told or was told there until a lease after that one stops to
-- take reports: a dispatcher that holds and is not heard stands for all of these.
local function begin_term(keys, lease, server, is_same)
  for id, text in pairs_of(redis.call("HGETALL", keys[4])) do
    local known = name_of(id) and parse_dispatcher(text)
    if known then
      known.heard = nil
      write_dispatcher(keys, id, known)
    end
  end
  local meta = read_meta(keys)
  if meta and meta.when_lost == "hold" and not is_same then
    write_dispatcher(keys, "former-server#" .. server, {
      version = 0, joined = 0, lease = math.max(lease, meta.lease), holds = true,
    })
    members_changed(keys)
  end
end

-- claim(agent, lease_ms, dispatcher_lease_ms, request_limit_ms, when_lost, margin_ms, server): { "keeper", epoch,
-- is_same }, where nobody else has the lease, or { "other", keeper, ms it still has it }.
--   agent: the id of this run of it. dispatcher_lease_ms to when_lost are what dispatchers are told when they join.
--   margin_ms: for so long after its lease a dispatcher that holds may go on, as a server that was replaced may have
--     taken its reports for so long; at least 1000.
--   server: what tells the history of this server's data from those of all others. is_same: 1 where it is the one that
--     was told with `settle`, so that nothing is lost of what was written since, else 0.
local function claim(keys, args)
  local agent, lease, told = args[1], whole(args[2], 1, MAX_LEASE_MS), whole(args[3], 1, MAX_LEASE_MS)
  local request_limit, when_lost = whole(args[4], 0, MAX_LEASE_MS), args[5]
  local margin, server = whole(args[6], MIN_MARGIN_MS, MAX_MARGIN_MS), args[7]
  if not is_word(agent, MAX_ID) then return fail("agent must be 1..200 visible ASCII characters") end
  if not lease then return fail("lease_ms must be a whole number within 1..3600000") end
  if not told then return fail("dispatcher_lease_ms must be a whole number within 1..3600000") end
  if not request_limit then return fail("request_limit_ms must be a whole number within 0..3600000") end
  if when_lost ~= "serve" and when_lost ~= "hold" then return fail("when_lost must be serve or hold") end
  if not margin then return fail("margin_ms must be a whole number within 1000..7200000") end
  if not is_word(server, 64) or server:find("#", 1, true) then return fail(BAD_SERVER) end
  local now = tell_time(keys)
  local keeper, epoch, left = read_keeper(keys, now)
  if keeper ~= "" and keeper ~= agent and left > 0 then
    return { "other", keeper, left }
  end
  local is_same = redis.call("HGET", keys[1], "server") == server
  begin_term(keys, told, server, is_same)
  redis.call(
    "HSET", keys[1],
    "keeper", agent,
    "epoch", exact(epoch + 1),
    "keeper_end", exact(now + lease),
    "lease", exact(told),
    "request_limit", exact(request_limit),
    "when_lost", when_lost,
    "margin", exact(margin)
  )
  -- Costs of nobody knows how long.
  redis.call("DEL", keys[6])
  return { "keeper", epoch + 1, is_same and 1 or 0 }
end

-- resign(agent, epoch): the lease is free at once. 1, or 0 where it is another's.
local function resign(keys, args)
  local epoch, bad = parse_agent(args)
  if bad then return bad end
  local now = tell_time(keys)
  if fenced(keys, args[1], epoch, now) then
    return 0
  end
  redis.call("HSET", keys[1], "keeper_end", "0")
  return 1
end

-- Takes those for gone that hold and have not been heard for too long, and drops what cannot be read.
local function look_at_dispatchers(keys, clock)
  local flat, count = {}, 0
  local margin = whole(redis.call("HGET", keys[1], "margin") or "", MIN_MARGIN_MS, MAX_MARGIN_MS) or MAX_MARGIN_MS
  for id, text in pairs_of(redis.call("HGETALL", keys[4])) do
    local known = name_of(id) and parse_dispatcher(text)
    if not known then
      -- Somebody may serve by it all the same.
      remove(keys, id, name_of(id) == nil)
    elseif known.holds and since(known.heard, clock) > known.lease + margin then
      remove(keys, id, false)
    else
      if not known.heard or known.heard > clock then
        known.heard = clock
        write_dispatcher(keys, id, known)
      end
      count = count + 1
      append(flat, { id, since(known.heard, clock), known.version, known.joined, "" })
    end
  end
  local ids = {}
  for i = 1, count do
    ids[i] = flat[5 * i - 4]
  end
  for i, busy in ipairs(get_all(keys[5], ids)) do
    flat[5 * i] = busy and #busy <= MAX_BUSY * (MAX_NAME + 2) and busy or ""
  end
  return flat, count
end

-- Of those that went: who did so long enough ago is dropped.
local function look_at_gone(keys, clock, request_limit)
  local flat, over = {}, {}
  for id, text in pairs_of(redis.call("HGETALL", keys[7])) do
    local went = whole(text, 0, clock)
    if not went then
      went = clock
      redis.call("HSET", keys[7], id, exact(went))
    end
    if clock - went > request_limit or #id > MAX_ID then
      over[#over + 1] = id
    else
      append(flat, { id, clock - went })
    end
  end
  drop(keys[7], over)
  return flat
end

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

-- follow(generation, version, members): what an agent lacks of the table, so that it can give it back to a Redis that
-- lost it. { "none" }, or { "ok", members, ids, version, delta, … }, or { "table", members, ids, generation, version,
-- set, state, … }.
--   members: the number heard last; ids are the dispatchers, blank-separated, where it is another now.
local function follow(keys, args)
  local generation, version, members = args[1], whole(args[2], 0, MAX_VERSION), whole(args[3], 0, MAX_VERSION)
  if not is_word(generation, 64) then return fail(BAD_GENERATION) end
  if not version then return fail(BAD_VERSION) end
  if not members then return fail("members must be a whole number within 0..2^53-1") end
  tell_time(keys)
  local meta = read_meta(keys)
  if not meta then
    return { "none" }
  end
  if generation == meta.generation and not has_been(meta, version) and not meta.is_sure then
    note_ahead(keys, meta, version)
    return { "ok", members, "", meta.version }
  end
  local newest = whole(redis.call("HGET", keys[1], "members") or "", 0, MAX_VERSION) or 0
  local ids = {}
  if newest ~= members then
    for _, id in ipairs(redis.call("HKEYS", keys[4])) do
      ids[#ids + 1] = name_of(id) and id or nil
    end
  end
  local list = table.concat(ids, " ")
  return news(keys, meta, generation, version, { "ok", newest, list, meta.version }, { "table", newest, list })
end

-- status(): for people. { generation, version, open_in_ms, keeper, epoch, ms the keeper has the lease, lease_ms,
-- request_limit_ms, when_lost, plan, dispatchers, gone, id, age_ms, version, … of each dispatcher, id, age_ms, … of
-- each that went }; generation is empty where there is no table.
local function status(keys)
  local now, clock = now_ms(), read_clock(keys)
  local meta = read_meta(keys)
  local keeper, epoch, left = read_keeper(keys, now)
  local plan = redis.call("HGET", keys[1], "plan") or ""
  local dispatchers, gone = {}, {}
  for id, text in pairs_of(redis.call("HGETALL", keys[4])) do
    local known = name_of(id) and parse_dispatcher(text)
    if known then
      append(dispatchers, { id, since(known.heard, clock), known.version })
    end
  end
  for id, text in pairs_of(redis.call("HGETALL", keys[7])) do
    append(gone, { id, since(whole(text, 0, MAX_VERSION), clock) })
  end
  local reply = {
    meta and meta.generation or "", meta and meta.version or 0, meta and open_in(meta) or 0, keeper, epoch, left,
    meta and meta.lease or 0, meta and meta.request_limit or 0, meta and meta.when_lost or "", plan:sub(1, MAX_PLAN),
    #dispatchers / 3, #gone / 2,
  }
  append(reply, dispatchers)
  append(reply, gone)
  return reply
end

-- forget(id): somebody who knows says that a dispatcher is dead. 1, or 0 where there is none of that id.
local function forget(keys, args)
  local id = args[1]
  if not name_of(id) then return fail(BAD_ID) end
  tell_time(keys)
  if redis.call("HEXISTS", keys[4], id) == 0 then
    return 0
  end
  remove(keys, id, false)
  return 1
end

-- wish(set, node): asks the keeper to move a set. How many wishes wait for it.
local function wish(keys, args)
  local set, node = args[1] or "", args[2] or ""
  if #set > MAX_NAME + 1 or not is_set(set) then
    return fail(WHAT_A_SET_IS)
  end
  if not is_node(node) then return fail("node name must be 1..128 of A-Za-z0-9._:/-") end
  tell_time(keys)
  local wishes = redis.call("HGET", keys[1], "wishes") or ""
  local _, words = wishes:gsub("%S+", "")
  if words >= 2 * MAX_WISHES then
    return fail(MAX_WISHES .. " moves wait for a keeper, which is the most")
  end
  redis.call("HSET", keys[1], "wishes", (wishes == "" and "" or wishes .. " ") .. set .. " " .. node)
  return words / 2 + 1
end

-- Says which key is somebody else's, before anything is written.
local function on_keys(function_name, callback)
  return function(keys, args)
    if #keys ~= 7 then
      return fail(function_name .. " needs 7 keys")
    end
    for i, key in ipairs(keys) do
      local kind, wanted = redis.call("TYPE", key).ok, i == 3 and "list" or "hash"
      if kind ~= wanted and kind ~= "none" then
        return fail("key " .. key .. " holds a " .. kind .. " and not a " .. wanted
          .. ": delete it, or rename the cluster")
      end
    end
    return callback(keys, args)
  end
end

local function register(name, callback)
  redis.register_function("plimsoll_placement_" .. name, on_keys(name, callback))
end

register("join", join)
register("report", report)
register("leave", leave)
register("claim", claim)
register("resign", resign)
register("read", read)
register("open", open)
register("publish", publish)
register("heed", heed)
register("settle", settle)
register("follow", follow)
register("forget", forget)
register("wish", wish)
redis.register_function({
  function_name = "plimsoll_placement_status", callback = on_keys("status", status), flags = { "no-writes" },
})
redis.register_function({
  function_name = "plimsoll_placement_version",
  callback = function()
    return VERSION
  end,
  flags = { "no-writes", "allow-stale" },
})
