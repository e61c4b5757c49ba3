// An Express application whose requests take CPU time.
import { createHash } from "node:crypto";

import express from "express";
import promBundle from "express-prom-bundle";

const MAX_CPU_MS = 1000;
const [host, port] = process.argv.slice(2);

function cpuMs() {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

const app = express();
app.use(promBundle({ includeMethod: true, includePath: true }));

app.get("/work", (request, response) => {
  const wanted = Number(request.query.cpu_ms);
  if (!(wanted > 0 && wanted <= MAX_CPU_MS)) {
    response.status(400).send(`cpu_ms must be above 0, and at most ${MAX_CPU_MS}\n`);
    return;
  }
  const end = cpuMs() + wanted;
  let digest = Buffer.alloc(0);
  while (cpuMs() < end) {
    for (let i = 0; i < 20; i += 1) digest = createHash("sha256").update(digest).digest();
  }
  response.type("text/plain").send(`${digest.toString("hex")}\n`);
});

app.get("/healthz", (request, response) => {
  response.type("text/plain").send("ok\n");
});

const server = app.listen(Number(port), host);
process.on("SIGTERM", () => server.close());
