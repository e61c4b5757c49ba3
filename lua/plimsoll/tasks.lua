--- Tasks of a thread that outlive their errors: one that HAProxy itself sees would end the task for good. Any line may
-- raise where memory is short (`tune.lua.maxmem`).

local M = {}

-- How long a task rests after an error, in ms.
local REST_MS = 100

--- Errors in tasks, of which each was begun again.
M.failures = 0

-- Takes no memory.
local function counted(ran, ...)
  if not ran then
    M.failures = M.failures + 1
  end
  return ran, ...
end

--- Calls a part of a task as `pcall` does.
function M.call(work, ...)
  return counted(pcall(work, ...))
end

-- Of each task the last error that was told.
local function tell(name, said, problem)
  problem = tostring(problem):gsub("%c", "?"):sub(1, 300)
  if problem ~= said[1] then
    said[1] = problem
    core.Warning(("plimsoll: the task %s begins again: %s"):format(name, problem))
  end
end

--- Runs `work` as a task, again after each error, until it returns. To be called while HAProxy loads this.
function M.keep(name, work)
  local said = {}
  core.register_task(function()
    while true do
      local ran, problem = M.call(work)
      if ran then
        return
      end
      -- There may be no memory for these either.
      pcall(tell, name, said, problem)
      pcall(core.msleep, REST_MS)
    end
  end)
end

return M
