--- Error handling of tasks that talk to Redis: it may be unavailable or slow, or send malformed data.

local tasks = require("plimsoll.tasks")

local M = {}

local FIRST_WAIT, MAX_WAIT = 0.1, 5
local MAX_PROBLEM = 300

-- Interval of PINGs on the subscription, in s, so that a silent connection can be considered dead.
M.PING = 5

--- Logs each problem of a connection once, and its end.
-- @param name string of the dispatcher
-- @param problem string, or nil if there is none
function M.trouble(name, connection, problem)
  -- The text may come from Redis or any other server.
  problem = problem and problem:gsub("%c", "?"):sub(1, MAX_PROBLEM)
  if problem == connection.said then
    return
  end
  connection.said = problem
  if problem then
    core.Warning(("plimsoll %s: %s: %s"):format(name, connection.purpose, problem))
  else
    -- HAProxy's default log level hides lower levels.
    local text = "plimsoll %s: %s: in touch with Redis at %s"
    core.log(core.notice, text:format(name, connection.purpose, connection.address))
  end
end

--- Logs that another proxy has the same name, and that this one takes another.
function M.tell_namesake(name, own_name)
  local text = "plimsoll %s: another proxy has this name too: give each a `proxy` of its own; this one goes on as %s"
  core.Warning(text:format(name, own_name))
end

--- Runs `step` until it fails, then reconnects after exponential backoff with jitter; until `owner.ended`.
-- @param owner table `name`, `ended`
-- @param silence number s that the connection may be silent while no call waits for its answer
-- @param step function returns true, or nil and the error
function M.keep_trying(owner, connection, silence, step)
  local wait = FIRST_WAIT
  while not owner.ended do
    -- Data from the network may be anything; the task must survive it.
    local ran, good, problem = tasks.call(connection.connect, connection, silence)
    if not ran then
      good, problem = nil, tostring(good)
    end
    while good and not owner.ended do
      ran, good, problem = tasks.call(step)
      if not ran then
        good, problem = nil, tostring(good)
      elseif good then
        wait = FIRST_WAIT
      end
      good = good and connection.socket ~= nil
    end
    connection:close()
    if not owner.ended then
      M.trouble(owner.name, connection, problem or "connection lost")
      core.msleep(math.floor(1000 * wait * (0.5 + math.random())))
      wait = math.min(2 * wait, MAX_WAIT)
    end
  end
end

--- Subscribes and passes on each message, forever; a task.
-- @param connection used for nothing else
-- @param on_message function takes the text
function M.follow_forever(owner, connection, channel, on_message)
  local subscribed
  M.keep_trying(owner, connection, 2 * M.PING, function()
    if subscribed ~= connection.socket then
      subscribed = connection.socket
      local sent, problem = connection:send("SUBSCRIBE", channel)
      if not sent then
        return nil, problem
      end
    end
    local message, problem = connection:receive()
    if type(message) ~= "table" then
      return nil, problem or "no message of a subscription"
    end
    M.trouble(owner.name, connection, nil)
    if message[1] == "message" then
      on_message(message[3])
    end
    return true
  end)
end

--- Sends a PING on a subscription.
function M.ping(connection)
  if connection.socket then
    -- The connection may be closed meanwhile.
    pcall(connection.send, connection, "PING")
  end
end

return M
