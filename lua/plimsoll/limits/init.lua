--- Policy `limits`, without code on the request path: one thread follows the nodes' bounds in Redis and sets the
-- servers' weights and `maxconn`; the backend's own `balance` and queue do the rest.

local backend_of = require("plimsoll.limits.backend")
local follower_of = require("plimsoll.follower")
local limiter_of = require("plimsoll.limits.limiter")
local servers_of = require("plimsoll.servers")
local tasks = require("plimsoll.tasks")

local M = {}

-- The thread that acts for the process.
local SPEAKER = 1

--- @param identity function returns the dispatcher's name and a text unique to each run; after init
-- @param now function seconds
-- @return table names: function, of its servers; figures: function for `plimsoll.metrics`, of the thread that has them
function M.start(settings, identity, now)
  local policy = {
    names = function()
      local names = servers_of.names(settings.backend)
      return names
    end,
  }
  if core.thread ~= SPEAKER then
    return policy
  end
  local limiter = limiter_of.new(settings)
  local backend, follower
  core.register_init(function()
    local problem
    backend, problem = backend_of.new(settings.backend, limiter)
    if not backend then
      error("plimsoll: " .. problem, 0)
    end
    local name, instance = identity()
    follower = follower_of.new(settings, name, instance, {
      on_shares = function(time, _, shares)
        local given_up = limiter.on_shares(time, shares)
        backend:apply_all(time)
        return given_up
      end,
      on_ring = function(ring)
        limiter.on_ring(ring)
        backend:apply_all(now())
      end,
      end_period = function()
        limiter.end_period(backend:counters())
      end,
      report = function()
        return limiter.report(backend:counters())
      end,
      lapse = function(since, time)
        limiter.lapse(since, time)
        backend:apply_all(time)
      end,
      on_time = limiter.on_time,
    }, now)
  end)
  follower_of.keep(function()
    return follower
  end)
  tasks.keep("servers", function()
    backend:watch(now)
  end)
  policy.figures = function()
    return backend:figures(now())
  end
  return policy
end

return M
