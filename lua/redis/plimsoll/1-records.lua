-- Plimsoll's shared state: nodes with leases, the ring, the proxies' shares of each bound.
--
-- Redis 7.0 and later, Valkey. Every write is one function call, so it is atomic. Time is the
-- server's own: the clocks of agents and proxies do not matter. Nothing that is read back is
-- trusted; a record that cannot be parsed is dropped, as is one whose lease has run out.
--
-- Keys, all with the prefix `plimsoll:{cluster}:` and so in one hash slot of a Redis Cluster:
--   KEYS[1] nodes         hash  node -> "bound bound_jobs mean_cost jobs load lease_end_ms lease_ms round instance
--                               address capacity", with "-" where one is not known; version 7 wrote no capacity, and
--                               an address only where it is known
--   KEYS[2] ring          hash  version, slots, owners (a byte a slot, 255: nobody), check (SHA-1 of
--                               owners), names (a line a node, empty where the index is free), sizes,
--                               settle_until, seen (time of the last call), round (its number), since (its begin)
--   KEYS[3] proxies       hash  proxy -> "lease_end_ms lease_ms round instance"
--   KEYS[4] shares        hash  "node proxy" -> "held demand"
--   KEYS[5] observations  hash  "node proxy" -> what the proxy counted, as it sent it
--                               node -> those of shares for all proxies together, two doubles
--
-- Changes of the ring are published on the channel named as KEYS[2]:
--   "<from> <to> <node index=name,…> <first slot:count:owner,…>"
-- with "-" for an empty list, and "full" for the last word where reading the table is cheaper.

-- luacheck: read_globals struct

local VERSION = 8

local MAX_NODES = 255
local MAX_PROXIES = 4096
local MAX_SLOTS = 1048576
local MIN_LEASE_MS = 100
local MAX_OBSERVATION_BYTES = 2048
local MAX_SUM = MAX_PROXIES * MAX_NUMBER
local MAX_ADDRESS = 255
local NOBODY = 255
-- Multiples of it are spread evenly between whole numbers.
local GOLDEN = 0.6180339887498949
-- For so long a share is rounded up or down: what is given up is of no use to others for a period.
local ROUNDED_MS = 16000
-- Of all demand or of the bound, whichever is more: what all proxies have evenly, so that nobody's first
-- request waits, and so that a little demand moves little.
local FLOOR_DEMAND = 0.05
-- Of a demand beyond the bound no more than this times that of all other proxies counts: or else one request of an
-- absurd cost would leave the others nothing for many periods.
local MAX_TIMES_OTHERS = 4
-- Of a sum: where so little is left without this proxy's part, rounding may be most of it.
local CANCELLED = 1e-6
-- Runs in a message; beyond, reading the table is cheaper.
local MAX_RUNS = 256

-- The address proxies connect to; nil where it cannot be one.
local function address_of(text)
  return text and text ~= "-" and #text <= MAX_ADDRESS and text:match("^[!-~]+$") or nil
end

-- The address and the capacity at the end of a node's record; without a word on it its capacity is its bound.
local function end_of_node(rest, bound)
  local address, capacity = rest:match("^ (%S+) (%S+)$")
  if capacity == "-" then
    return address_of(address), nil
  end
  capacity = number(capacity or "", 0, MAX_NUMBER)
  if capacity then
    return address_of(address), capacity
  end
  return address_of(rest:match("^ (%S+)$")), bound
end

local parse_node = remembering(4096, function(text)
  local bound, bound_jobs, mean_cost, jobs, load, lease_end, lease, round, instance, rest =
    text:match("^(%S+) (%S+) (%S+) (%S+) (%S+) (%d+) (%d+) (%d+) (%S+)(.*)$")
  local node = {
    told_bound = bound, words = { bound_jobs, mean_cost, jobs, load },
    bound = number(bound, 0, MAX_NUMBER), bound_jobs = number(bound_jobs, 0, MAX_NUMBER),
    mean_cost = number(mean_cost, 0, MAX_NUMBER), jobs = number(jobs, 0, MAX_NUMBER),
    load = number(load, 0, MAX_NUMBER), lease_end = number(lease_end, 0, MAX_NUMBER),
    lease = whole(lease, MIN_LEASE_MS, MAX_LEASE_MS), round = number(round, 0, MAX_NUMBER), instance = instance,
  }
  local whole_record = node.bound and node.bound_jobs and node.mean_cost and node.jobs and node.load
  if whole_record and node.lease_end and node.lease and node.round and is_name(instance) then
    node.address, node.capacity = end_of_node(rest, node.bound)
    return node
  end
end)

-- Of "lease_end_ms lease_ms round instance".
local parse_proxy = remembering(8192, function(text)
  local lease_end, lease, round, instance = text:match("^(%d+) (%d+) (%d+) (%S+)$")
  local proxy = {
    lease_end = number(lease_end, 0, MAX_NUMBER), lease = whole(lease, MIN_LEASE_MS, MAX_LEASE_MS),
    round = number(round, 0, MAX_NUMBER), instance = instance,
  }
  if proxy.lease_end and proxy.lease and proxy.round and is_name(instance) then
    return proxy
  end
end)

local function stored(parse, name, text)
  return text and #text <= MAX_RECORD_BYTES and is_name(name) and parse(text)
end
