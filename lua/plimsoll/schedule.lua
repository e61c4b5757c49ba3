--- Schedulers of the load balancing thesis (MySQL, 2003, chapter 3).
-- Nodes are identified by their position, from 1. News is a table of { weight, jobs, load }; a node with weight 0 gets
-- no requests. `random` returns integers of 32 bits, so that Lua and Rust choose alike.

local huge, floor, max, min, sort = math.huge, math.floor, math.max, math.min, table.sort

local M = {}

local function drawn(number, count)
  return ((number * count) >> 32) + 1
end

local function finite(value)
  return value == value and value ~= huge and value ~= -huge
end

local function jobs_of(node)
  return finite(node.jobs) and max(node.jobs, 0) or 0
end

local function live_of(nodes)
  local live = {}
  for i, node in ipairs(nodes) do
    if node.weight > 0 then
      live[#live + 1] = i
    end
  end
  return live
end


local round_robin = {}

function round_robin.on_news(self, nodes)
  self.live = live_of(nodes)
  self.at = #self.live == 0 and 0 or (self.at or 0) % #self.live
end

function round_robin.next(self)
  local chosen = self.live[self.at + 1]
  if chosen then
    self.at = (self.at + 1) % #self.live
  end
  return chosen
end


-- A queue whose items stay in place when its head is taken.
local function queue(items)
  return { first = 1, last = #items, items = items }
end

local function push(q, item)
  q.last = q.last + 1
  q.items[q.last] = item
end

local function pop(q)
  if q.first > q.last then
    return nil
  end
  local item = q.items[q.first]
  q.items[q.first] = nil
  q.first = q.first + 1
  return item
end

local function refill(self)
  if self.ready.first > self.ready.last then
    self.ready, self.expired = self.expired, queue({})
  end
end

-- Uses a token; returns whether the node has more.
local function spend(self, node)
  self.left[node] = self.left[node] - 1
  if self.left[node] > 0 then
    return true
  end
  self.left[node] = self.weights[node]
  push(self.expired, node)
  return false
end

local function set_weights(self, nodes)
  local same = self.weights ~= nil and #self.weights == #nodes
  for i, node in ipairs(nodes) do
    same = same and self.weights[i] == node.weight
  end
  if same then
    return
  end
  self.weights, self.left = {}, {}
  for i, node in ipairs(nodes) do
    self.weights[i], self.left[i] = node.weight, node.weight
  end
  self.ready, self.expired = queue(live_of(nodes)), queue({})
end

local weighted_round_robin = { on_news = set_weights }

--- Algorithm 3.2.
function weighted_round_robin.next(self)
  refill(self)
  local node = pop(self.ready)
  if node and spend(self, node) then
    push(self.ready, node)
  end
  return node
end

local weighted_random = { on_news = set_weights }

--- Algorithm 3.3. The last node of the list takes the place of one that leaves it.
function weighted_random.next(self, random)
  refill(self)
  local ready, number = self.ready, random()
  local count = ready.last - ready.first + 1
  if count == 0 then
    return nil
  end
  local place = ready.first + drawn(number, count) - 1
  local node = ready.items[place]
  if not spend(self, node) then
    ready.items[place] = ready.items[ready.last]
    ready.items[ready.last] = nil
    ready.last = ready.last - 1
  end
  return node
end

local job_informed = { next = weighted_round_robin.next }

--- Algorithm 3.4: a node's tokens are its distance, in jobs, from its share of all jobs.
function job_informed.on_news(self, nodes)
  self.weights, self.left = {}, {}
  self.ready, self.expired = queue({}), queue({})
  local weight, jobs = 0, 0
  for i, node in ipairs(nodes) do
    self.weights[i], self.left[i] = node.weight, node.weight
    if node.weight > 0 then
      weight, jobs = weight + node.weight, jobs + jobs_of(node)
    end
  end
  for i, node in ipairs(nodes) do
    if node.weight > 0 then
      -- A single division, so that whole jobs stay whole.
      local distance = floor((node.weight * jobs - jobs_of(node) * weight) / weight)
      if distance > 0 then
        self.left[i] = min(distance, 0xffffffff)
        push(self.ready, i)
      else
        self.left[i] = max(distance + node.weight, 1)
        push(self.expired, i)
      end
    end
  end
end


local basic_li = {}

--- BasicLI: the arrivals of a phase fill the least loaded nodes to a common level.
function basic_li.on_news(self, nodes)
  local arrivals = finite(self.settings.arrivals) and max(self.settings.arrivals, 1) or 1
  local order, height = live_of(nodes), {}
  for _, i in ipairs(order) do
    height[i] = jobs_of(nodes[i]) / nodes[i].weight
  end
  sort(order, function(a, b)
    if height[a] ~= height[b] then
      return height[a] < height[b]
    end
    return a < b
  end)
  local jobs, weight, level, filled = arrivals, 0, 0, 0
  for _, i in ipairs(order) do
    if filled > 0 and height[i] >= level then
      break
    end
    jobs, weight = jobs + jobs_of(nodes[i]), weight + nodes[i].weight
    level, filled = jobs / weight, filled + 1
  end
  self.upto = {}
  local sum = 0
  for place = 1, filled do
    local node = nodes[order[place]]
    sum = sum + max(level * node.weight - jobs_of(node), 0) / arrivals
    self.upto[place] = { node = order[place], upto = sum }
  end
end

function basic_li.next(self, random)
  local u = random() / 4294967296.0
  for _, entry in ipairs(self.upto) do
    if u < entry.upto then
      return entry.node
    end
  end
  -- Rounding may leave the sum just below 1.
  local last = self.upto[#self.upto]
  return last and last.node
end


local load_informed = {}

local function by_load(a, b)
  if a.load ~= b.load then
    return a.load < b.load
  end
  return a.node < b.node
end

--- News is assumed to include all requests sent before it, so artificial load restarts from 0.
function load_informed.on_news(self, nodes)
  self.loads = {}
  for i, node in ipairs(nodes) do
    if node.weight > 0 then
      self.loads[#self.loads + 1] = { node = i, load = finite(node.load) and node.load or 1.7976931348623157e308 }
    end
  end
  sort(self.loads, by_load)
end

--- Algorithm 3.6 with the artificial load of 3.7.
function load_informed.next(self, random)
  local loads, settings = self.loads, self.settings
  if #loads == 0 then
    return nil
  end
  local number = random()
  local limit, count = loads[1].load + settings.interval, 0
  while count < min(max(settings.max_nodes, 1), #loads) and loads[count + 1].load <= limit do
    count = count + 1
  end
  local entry = loads[drawn(number, max(count, 1))]
  entry.load = entry.load + settings.artificial
  sort(loads, by_load)
  return entry.node
end

--- Removes the artificial load of a request that has ended.
function load_informed.finished(self, node)
  for _, entry in ipairs(self.loads) do
    if entry.node == node then
      entry.load = entry.load - self.settings.artificial
      sort(self.loads, by_load)
      return
    end
  end
end


local KINDS = {
  round_robin = round_robin,
  weighted_round_robin = weighted_round_robin,
  weighted_random = weighted_random,
  basic_li = basic_li,
  job_informed = job_informed,
  load_informed = load_informed,
}

--- Creates a scheduler by name; or nil and the error.
-- @param settings table arrivals (basic_li); max_nodes, interval, artificial (load_informed)
function M.new(name, settings)
  local kind = KINDS[name]
  if not kind then
    return nil, "no scheduler is called " .. tostring(name)
  end
  local scheduler = setmetatable({ settings = settings or {} }, { __index = kind })
  scheduler:on_news({})
  return scheduler
end

--- Algorithm 3.8: as all `dispatchers` act on the same news, each draws that many nodes and takes one of them.
function M.next_among(scheduler, dispatchers, random)
  if dispatchers <= 1 then
    return scheduler:next(random)
  end
  local take, taken = drawn(random(), dispatchers), nil
  for turn = 1, dispatchers do
    local chosen = scheduler:next(random)
    if not chosen then
      return nil
    end
    if turn == take then
      taken = chosen
    end
  end
  return taken
end

return M
