--- What tasks that talk to Redis do when it goes away, is slow, or sends what it should not.

local tasks = require("plimsoll.tasks")

local M = {}

local FIRST_WAIT, MAX_WAIT = 0.1, 5
local MAX_PROBLEM = 300

-- The subscription is asked for a sign of life this often, in s, so that a silent connection is a dead one.
M.PING = 5

--- Tells each trouble of a connection once, and its end.
-- @param name string of the dispatcher
-- @param problem string, or nil where all is well
function M.trouble(name, connection, problem)
  -- It may be Redis' own words, or somebody else's.
  problem = problem and problem:gsub("%c", "?"):sub(1, MAX_PROBLEM)
  if problem == connection.said then
    return
  end
  connection.said = problem
  if problem then
    core.Warning(("plimsoll %s: %s: %s"):format(name, connection.purpose, problem))
  else
    -- HAProxy's usual level of logs shows no less.
    local text = "plimsoll %s: %s: in touch with Redis at %s"
    core.log(core.notice, text:format(name, connection.purpose, connection.address))
  end
end

--- Tells that another one has the name of this one, which takes another.
function M.tell_namesake(name, own_name)
  local text = "plimsoll %s: another proxy has this name too: give each a `proxy` of its own; this one goes on as %s"
  core.Warning(text:format(name, own_name))
end

--- Runs `step` until it fails, then connects anew after a wait that grows and is jittered; until `owner.ended`.
-- @param owner table `name`, `ended`
-- @param silence number s that nobody may say anything while no call waits for its answer
-- @param step function true, or nil and what is wrong
function M.keep_trying(owner, connection, silence, step)
  local wait = FIRST_WAIT
  while not owner.ended do
    -- What comes from the network may be anything; the task must outlive it.
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

--- Subscribes, and hands each message on, for ever; a task.
-- @param connection for nothing else
-- @param on_message function takes the text
function M.follow_for_ever(owner, connection, channel, on_message)
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

--- Asks a subscription for a sign of life.
function M.ping(connection)
  if connection.socket then
    -- It may be closed meanwhile.
    pcall(connection.send, connection, "PING")
  end
end

return M
