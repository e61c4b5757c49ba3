--- Tasks of a thread that survive errors: an error that reaches HAProxy would end the task. Any line may raise one if
-- memory is short (`tune.lua.maxmem`).

local M = {}

-- Pause of a task after an error, in ms.
local REST_MS = 100

--- Number of errors in tasks, after each of which the task was restarted.
M.failures = 0

-- Allocates no memory.
local function counted(ran, ...)
  if not ran then
    M.failures = M.failures + 1
  end
  return ran, ...
end

--- Calls a part of a task like `pcall`, and counts errors.
function M.call(work, ...)
  return counted(pcall(work, ...))
end

-- Logs an error of a task unless it is the same as the last one.
local function tell(name, said, problem)
  problem = tostring(problem):gsub("%c", "?"):sub(1, 300)
  if problem ~= said[1] then
    said[1] = problem
    core.Warning(("plimsoll: the task %s begins again: %s"):format(name, problem))
  end
end

--- Runs `work` as a task, and restarts it after each error until it returns. To be called while HAProxy loads this.
function M.keep(name, work)
  local said = {}
  core.register_task(function()
    while true do
      local ran, problem = M.call(work)
      if ran then
        return
      end
      -- There may be no memory for these calls either.
      pcall(tell, name, said, problem)
      pcall(core.msleep, REST_MS)
    end
  end)
end

return M
