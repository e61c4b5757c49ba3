--- Deadlines of what is done at a socket: who takes too long finds it closed.
--
-- HAProxy's own timeout of a socket is no deadline: it begins anew with each byte, 2.8 to 3.2 wait for the end of a
-- line without it, and 3.0.11 aborts where it is lowered below the time that the socket has been idle. So a socket
-- keeps the one that it has from before it is connected, but within long answers (reader.lua).

local tasks = require("plimsoll.tasks")

local M = {}

local LOOK_MS = 50
-- An answer that goes on may take so much longer, in s.
local MAX_EXTENSION = 30

local started = false
local waits = {}

local function look()
  for wait in pairs(waits) do
    wait.looks, wait.most = wait.looks - 1, wait.most - 1
    if wait.looks < 0 or wait.most < 0 then
      waits[wait] = nil
      wait.is_over = true
      -- It wakes who waits at it.
      wait.socket:close()
    end
  end
end

--- Starts the task that looks at the deadlines; to be called while HAProxy loads this, and as often as one likes.
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

--- Does `work` at a socket, `work(socket, …)`, which is closed if that takes longer: within 0.1 s after.
-- `extend` begins the time anew, for 30 s at most.
-- @return what `work` returns; nil and why where the time was over
function M.within(seconds, socket, work, ...)
  local looks = math.ceil(1000 * seconds / LOOK_MS)
  local wait = { socket = socket, looks = looks, begin = looks, most = looks + 1000 * MAX_EXTENSION // LOOK_MS }
  waits[wait] = true
  -- What is raised here leaves the deadline: nobody is left to close the socket else.
  local result = table.pack(work(socket, ...))
  waits[wait] = nil
  if wait.is_over then
    return nil, ("no answer within %g s"):format(seconds)
  end
  return table.unpack(result, 1, result.n)
end

--- A good part of what is waited for at a socket has come.
function M.extend(socket)
  for wait in pairs(waits) do
    if wait.socket == socket then
      wait.looks = wait.begin
    end
  end
end

return M
