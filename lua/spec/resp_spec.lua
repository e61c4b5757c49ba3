package.path = "lua/?.lua;" .. package.path

local cost_of = require("plimsoll.cost")
local resp = require("plimsoll.resp")
local ring_of = require("plimsoll.ring")

-- A socket that returns these bytes.
local function socket(bytes)
  local at = 1
  return {
    receive = function(_, what)
      if what == "*l" then
        local stop = bytes:find("\n", at, true)
        if not stop then
          return nil, "connection closed."
        end
        local line = bytes:sub(at, stop - 1)
        at = stop + 1
        return line
      end
      local piece = bytes:sub(at, at + what - 1)
      at = at + what
      return piece
    end,
  }
end

describe("Redis' protocol", function()
  it("encodes commands with lengths", function()
    assert.equal("*2\r\n$3\r\nGET\r\n$2\r\n\255\n\r\n", resp.encode("GET", "\255\n"))
  end)

  it("parses answers", function()
    assert.equal("OK", (resp.read(socket("+OK\r\n"))))
    assert.equal(-7, (resp.read(socket(":-7\r\n"))))
    assert.equal("a\r\nb", (resp.read(socket("$4\r\na\r\nb\r\n"))))
    assert.is_false((resp.read(socket("$-1\r\n"))))
    assert.same({ 1, { "x", false } }, (resp.read(socket("*2\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n"))))
    assert.same({ { error = "ERR a" }, 2 }, (resp.read(socket("*2\r\n-ERR a\r\n:2\r\n"))))
  end)

  it("distinguishes errors of Redis from network errors", function()
    local answer, problem, said = resp.read(socket("-NOAUTH no\r\n"))
    assert.same({ nil, "NOAUTH no", true }, { answer, problem, said })
    answer, problem, said = resp.read(socket(""))
    assert.same({ nil, "connection closed.", nil }, { answer, problem, said })
  end)

  for _, bytes in ipairs({
    "HTTP/1.1 400\r\n", "$99999999999\r\n", "*99999999\r\n", "$x\r\n", ":1.5\r\n", "$10\r\nshort\r\n", "*1\r\n", "\r\n",
    ("*1\r\n"):rep(50) .. ":1\r\n", "*2\r\n*65535\r\n",
    "*2\r\n$4194304\r\n" .. ("x"):rep(4194304) .. "\r\n$1\r\nx\r\n",
  }) do
    it("refuses " .. ("%q"):format(bytes:sub(1, 16)), function()
      local answer, problem, said = resp.read(socket(bytes))
      assert.is_nil(answer)
      assert.is_string(problem)
      assert.is_nil(said)
    end)
  end
end)

describe("a published change", function()
  it("is parsed", function()
    assert.same(
      { from = 3, to = 4, names = { "a", "", "c" }, runs = { { 0, 5, 2 }, { 9, 1, 255 } } },
      ring_of.parse_change("3 4 0=a,2=c 0:5:2,9:1:255")
    )
    assert.same({ from = 3, to = 4, names = { "a" } }, ring_of.parse_change("3 4 0=a full"))
    assert.same({ from = 3, to = 4, names = {}, runs = {} }, ring_of.parse_change("3 4 - -"))
  end)

  for _, text in ipairs({
    "", "x", "3 4 0=a", "3 4 a=0 -", "3 4 999=a -", "3 4 0=a 1:2", "3 4 0=a 1:2:x", "99999999999999999999 4 - -",
  }) do
    it("is refused when it is " .. ("%q"):format(text), function()
      local change, problem = ring_of.parse_change(text)
      assert.is_nil(change)
      assert.is_string(problem)
    end)
  end

  it("that does not apply leaves the ring unchanged", function()
    local ring = assert(ring_of.new(3, { "a" }, "\0\0\0\0"))
    local beyond, disordered, empty = { { 2, 3, 0 } }, { { 1, 1, 0 }, { 0, 1, 0 } }, { { 0, 0, 0 } }
    for _, runs in ipairs({ beyond, disordered, empty, { { 0, 1, 7 } }, { { 0, 1, 256 } } }) do
      assert.is_nil((ring_of.apply(ring, 3, 4, { "a" }, runs)))
    end
    assert.is_nil((ring_of.apply(ring, 2, 4, { "a" }, {})))
    assert.equal("\0\0\0\0", ring.owners)
  end)
end)

describe("learned costs", function()
  it("are kept per route, with a default and a memory limit", function()
    local costs = cost_of.new(7, 3)
    assert.equal(7, costs:expected("/a"))
    assert.equal(7, costs:expected(nil))
    costs:learn("/a", 100)
    assert.equal(100, costs:expected("/a"))
    costs:learn("/a", 0 / 0)
    costs:learn("/a", -1)
    assert.equal(100, costs:expected("/a"))
    for i = 1, 100 do
      costs:learn("/flood/" .. i, 1)
    end
    assert.is_true(costs.count <= 3)
  end)
end)
