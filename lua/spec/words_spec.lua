package.path = "lua/?.lua;" .. package.path

local words = require("plimsoll.words")

describe("a request's text", function()
  for text, expected in pairs({
    ["00000000"] = { 0 },
    ["FFFFFFFF"] = { 0xffffffff },
    ["0a0B0c0D 80"] = { 0x0a0b0c0d, 80 },
    ["0a0B0c0D 12.5 /quotes"] = { 0x0a0b0c0d, 12.5, "/quotes" },
    ["0a0B0c0D  /a route"] = { 0x0a0b0c0d, nil, "/a route" },
    ["0a0B0c0D "] = { 0x0a0b0c0d },
    ["0a0B0c0D  7"] = { 0x0a0b0c0d, nil, "7" },
    ["0a0B0c0D 80 7"] = { 0x0a0b0c0d, 80, "7" },
    ["0a0B0c0Dx80"] = { false },
    ["0a0B0c0D 80 "] = { 0x0a0b0c0d, 80 },
    ["- 3"] = { nil, 3 },
    ["-"] = {},
    [""] = { false },
    ["node1"] = { false },
    ["\1\2\3\4"] = { false },
    ["0a0B0c0D0 3"] = { false, 3 },
    ["0a0B0c0D ten"] = { 0x0a0b0c0d },
    ["0a0B0c0D nan"] = { 0x0a0b0c0d },
  }) do
    it(("is read: %q"):format(text), function()
      local hash, cost, route = words.request(text)
      assert.same({ expected[1], expected[2], expected[3] }, { hash, cost, route })
    end)
  end
end)

describe("an answer's text", function()
  for text, expected in pairs({
    ["200 node1 80"] = { 200, "node1", 80 },
    ["200 node1 -"] = { 200, "node1" },
    ["200 node1 "] = { 200, "node1" },
    ["503 <NOSRV> -"] = { 503, "<NOSRV>" },
    ["200 node1 many words"] = { 200, "node1" },
    ["200 node1 1e9"] = { 200, "node1", 1e9 },
    ["200 node1 80 12 0.5"] = { 200, "node1", 80, 12, 0.5 },
    ["200 node1 - 12"] = { 200, "node1", nil, 12 },
    ["200 node1  12 "] = { 200, "node1", nil, 12 },
    ["200 node1 80 - 0.5 more"] = { 200, "node1", 80, nil, 0.5 },
    ["200 node1 80 1e999 -1"] = { 200, "node1", 80 },
    ["200 node1 80 nan nan"] = { 200, "node1", 80 },
    ["200 node1 1e999"] = { 200, "node1" },
    ["200 node1 1e10"] = { 200, "node1" },
    ["200 node1 -5"] = { 200, "node1" },
    ["200 node1 nan"] = { 200, "node1" },
    ["-1 node1 80"] = { -1, "node1", 80 },
    ["200"] = { 0, "" },
    [""] = { 0, "" },
  }) do
    it(("is read: %q"):format(text), function()
      local answers = words.answers()
      local wanted = { status = expected[1], server = expected[2], items = expected[3] }
      wanted.jobs, wanted.load = expected[4], expected[5]
      assert.same(wanted, answers:read(text))
      assert.equal(expected[2], answers[text].server)
    end)
  end

  it("is remembered for a thousand of them only", function()
    local answers = words.answers()
    for items = 1, 2500 do
      assert.equal(items, answers:read("200 node1 " .. items).items)
    end
    local count = 0
    for _ in pairs(answers) do
      count = count + 1
    end
    assert.is_true(count <= 1001)
    assert.equal(2500, answers["200 node1 2500"].items)
  end)
end)
