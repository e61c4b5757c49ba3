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
-- What follows a lease, and a lease with that and a request's limit.
local MAX_MARGIN_MS = 2 * MAX_LEASE_MS
local MAX_WAIT_MS = 4 * MAX_LEASE_MS
-- Of versions and counters: Lua's numbers here are doubles.
local MAX_VERSION = 2 ^ 53 - 1
-- As in agent/core.
local TERM_VERSIONS = 16384
-- Terms before of which it is known which versions there were; who is further behind joins anew.
local MAX_LASTS = 64
-- Of what was published and lost: a few terms, of which each is at most 2^34 further.
local MAX_AHEAD = 2 ^ 40
local MAX_ID = 200
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

local function refuse(word, text)
  return redis.error_reply(word .. " plimsoll: " .. text)
end

local function is_node(text)
  return text ~= "-" and is_name(text)
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
