--- Placement in HAProxy: requests of an object set go to its primary, and to no other node.

local follower_of = require("plimsoll.placement.follower")
local link_of = require("plimsoll.placement.link")
local loads_of = require("plimsoll.placement.loads")
local metrics = require("plimsoll.placement.metrics")
local tasks = require("plimsoll.tasks")
local tickets_of = require("plimsoll.placement.tickets")

local running, wall = coroutine.running, os.time
local byte, format, max, min = string.byte, string.format, math.max, math.min

local M = {}

local MAX_COST = 1e9
-- Range of the interval between two looks at a set in handover, in ms: a quarter of the time waited so far.
local MIN_LOOK, MAX_LOOK = 2, 50
-- Status of a refusal by HAProxy itself, which reached no server.
local UNREACHED = 503

-- HAProxy's own `digest(md5)`: the hash of a name is its last 4 bytes, and so its rest the last one's low bits.
local function rest_of(name, txn)
  return byte(txn.c:digest(name, "md5"), 16) % follower_of.RESTS
end

local function is_stopping(txn)
  local stopping = txn.f:stopping()
  return stopping == 1 or stopping == true
end

local function servers_of(backend_name)
  local backend = core.backends[backend_name]
  if not backend then
    error("plimsoll: placement.backend: there is no backend " .. backend_name, 0)
  end
  local names = {}
  for name in pairs(backend.servers) do
    names[name] = true
  end
  return names
end

--- Registers the action `lua.plimsoll_place`, the converters `lua.plimsoll_answered` and `lua.plimsoll_unanswered`,
-- and the tasks.
-- @param settings table all settings
-- @param identity function returns the dispatcher's name and a text unique to each run; after init
-- @param now function s
-- @return figures function: metrics of this thread; collect function: ends requests without a holder, and returns
-- whether any are left
function M.start(settings, identity, now)
  local servers, link
  local follower, loads = follower_of.new(rest_of), loads_of.new()
  local tickets = tickets_of.new(follower)
  local patience, costs = settings.placement.wait, settings.cost
  local fence, fence_generation, fence_version
  local waited, refused = 0, {}
  for _, reason in ipairs(metrics.REASONS) do
    refused[reason] = 0
  end

  local function collect()
    local busy
    follower_of.in_one_piece(function()
      busy = tickets.collect(now())
    end)
    return busy
  end

  local function is_idle()
    collectgarbage()
    collect()
    follower.report(now())
    local under_way, in_doubt = follower.at_work()
    return under_way == 0 and in_doubt == 0
  end

  -- Fencing tokens sort as text in the order of tables: generations do, and 16 digits hold every version.
  local function fence_now()
    local generation, version = follower.generation(), follower.version()
    if version ~= fence_version or generation ~= fence_generation then
      fence_generation, fence_version = generation, version
      fence = format("%s %016d", generation, version)
    end
    return fence
  end

  -- The ticket and the entry's word, or nil and the reason, with the word if its set is moving. The fencing token is
  -- that of the same table: HAProxy does not interrupt so few instructions.
  local function route(txn, set)
    if not link.leaving and is_stopping(txn) then
      -- The process's successor takes over its name.
      return nil, "suspended"
    end
    local ticket, word, entry = follower.route(now(), wall, set, txn)
    if ticket and not servers[ticket.node] then
      follower.answered(ticket)
      return nil, "unknown"
    elseif ticket then
      txn:set_var("txn.plimsoll_fence", fence_now())
    end
    return ticket, word, entry
  end

  local function wait(txn, set)
    waited = waited + 1
    local began = now()
    local ticket, word
    repeat
      local over = now() - began
      core.msleep(max(MIN_LOOK, min(250 * over // 1 | 0, MAX_LOOK)))
      ticket, word = route(txn, set)
    until ticket or (word ~= "moving" and word ~= "suspended") or now() - began >= patience
    return ticket, word
  end

  core.register_action("plimsoll_place", { "http-req" }, function(txn)
    local set, holder = txn:get_var("txn.plimsoll_object_set"), running()
    set = type(set) == "string" and set or ""
    -- Nothing was sent yet: rules run before that.
    tickets.ended(holder, 0, true)
    local ticket, word, entry = route(txn, set)
    local cost = tonumber(txn:get_var("txn.plimsoll_cost")) or costs.default
    -- NaN also counts as the least cost.
    cost = cost > costs.min and min(cost, MAX_COST) or costs.min
    if entry then
      -- Count waiting requests too; otherwise a set in handover would look cold.
      loads.add(entry, set, cost)
    end
    if not ticket and patience > 0 and (word == "moving" or word == "suspended") then
      ticket, word = wait(txn, set)
    end
    if not ticket then
      refused[word] = refused[word] + 1
      txn:set_var("txn.plimsoll_primary", "!" .. word)
      return
    end
    tickets.hold(holder, ticket)
    if not entry then
      loads.add(word, set, cost)
    end
    txn:set_var("txn.plimsoll_primary", ticket.node)
  end)
  core.register_converters("plimsoll_answered", function()
    tickets.ended(running(), 0, true)
    return 1
  end)
  core.register_converters("plimsoll_unanswered", function(status)
    tickets.ended(running(), now(), tonumber(status) == UNREACHED)
  end)

  core.register_init(function()
    servers = servers_of(settings.placement.backend)
    local name, instance = identity()
    link = link_of.new(settings, name, instance, follower, loads, is_idle, now, wall)
  end)
  tasks.keep("primaries", function()
    link:report_forever()
  end)
  tasks.keep("changes of primaries", function()
    link:follow_forever()
  end)
  tasks.keep("stop", function()
    link:watch_forever()
  end)

  local function figures()
    local under_way, in_doubt = follower.at_work()
    local list = { follower.placed, waited, follower.doubted, under_way, in_doubt, follower.version() or 0 }
    for _, reason in ipairs(metrics.REASONS) do
      list[#list + 1] = refused[reason]
    end
    return list
  end

  return figures, collect
end

return M
