--- Deadlines for work on a socket, which is closed when the deadline is exceeded.
--
-- HAProxy's own socket timeout is no deadline: it restarts with each byte, 2.8 to 3.2 do not apply it to the end of a
-- line, and 3.0.11 aborts if it is lowered below the time that the socket has been idle. So a socket keeps the timeout
-- set before it is connected, except within long answers (reader.lua).

local tasks = require("plimsoll.tasks")

local M = {}

local LOOK_MS = 50
-- Maximum extension while an answer makes progress, in s.
local MAX_EXTENSION = 30

local started = false
local waits = {}

local function look()
  for wait in pairs(waits) do
    wait.looks, wait.most = wait.looks - 1, wait.most - 1
    if wait.looks < 0 or wait.most < 0 then
      waits[wait] = nil
      wait.is_over = true
      -- This wakes the task that waits on it.
      wait.socket:close()
    end
  end
end

--- Starts the task that checks deadlines. To be called while HAProxy loads this; repeated calls have no effect.
function M.start()
  if started then
    return
  end
  started = true
  tasks.keep("deadlines", function()
    while true do
      look()
      core.msleep(LOOK_MS)
    end
  end)
end

--- Runs `work(socket, …)`; if it takes longer than `seconds`, the socket is closed within 0.1 s. `extend` restarts the
-- time, for 30 s at most.
-- @return the results of `work`; nil and the error if the deadline was exceeded
function M.within(seconds, socket, work, ...)
  local looks = math.ceil(1000 * seconds / LOOK_MS)
  local wait = { socket = socket, looks = looks, begin = looks, most = looks + 1000 * MAX_EXTENSION // LOOK_MS }
  waits[wait] = true
  -- An error raised by `work` leaves the deadline in place, as nothing else would close the socket.
  local result = table.pack(work(socket, ...))
  waits[wait] = nil
  if wait.is_over then
    return nil, ("no answer within %g s"):format(seconds)
  end
  return table.unpack(result, 1, result.n)
end

--- Extends the deadline of a socket that has received a good part of the answer.
function M.extend(socket)
  for wait in pairs(waits) do
    if wait.socket == socket then
      wait.looks = wait.begin
    end
  end
end

return M
