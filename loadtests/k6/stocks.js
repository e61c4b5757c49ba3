// Closed-loop clients: send, wait for the answer, wait a random inter-request time, again.
//
// Clients are async loops inside a few VUs: 1,500 VUs take several times the memory and CPU. Each
// client draws every random number of a request before it sends it, from a generator seeded by the
// run's seed and the client's number, so that every policy is asked for the same work in the same order.

import http from 'k6/http';
import exec from 'k6/execution';
import { Counter, Trend } from 'k6/metrics';

const REQUEST_TIMEOUT_MS = 60000;
const FLUSH_MS = 1000;
const LAG_PROBE_MS = 100;
// k6's name for a connection that was refused.
const REFUSED = 1212;

const totalItems = new Counter('total_items');
const timelyItems = new Counter('timely_items');
const refusedRequests = new Counter('refused_requests');
const failedRequests = new Counter('failed_requests');
const queryDelay = new Trend('query_delay', true);
const generatorLag = new Trend('generator_lag', true);

/** The parameters of a run, all from the environment. Times are in seconds. */
const settings = {
  targets: (__ENV.TARGETS || 'http://127.0.0.1:8080').split(','),
  collector: __ENV.COLLECTOR || '',
  seed: Number(__ENV.SEED || 1),
  clients: Number(__ENV.CLIENTS || 1500),
  vus: Number(__ENV.GENERATOR_VUS || 10),
  duration: Number(__ENV.DURATION || 120),
  drain: Number(__ENV.DRAIN || 5),
  event: __ENV.EVENT ? Number(__ENV.EVENT) : Infinity,
  calm: __ENV.CALM ? Number(__ENV.CALM) : Infinity,
  skew: Number(__ENV.SKEW || 0),
  before: (__ENV.THINK_BEFORE || '3.5,4').split(',').map(Number),
  after: (__ENV.THINK_AFTER || '1,1.5').split(',').map(Number),
  sla: Number(__ENV.SLA || 1),
  transactions: Number(__ENV.TRANSACTION_SHARE || 0.1),
  symbols: Number(__ENV.SYMBOLS || 3000),
  accounts: Number(__ENV.ACCOUNTS || 3000),
  short: (__ENV.SHORT_ITEMS || '60,100').split(',').map(Number),
  long: (__ENV.LONG_ITEMS || '600,1000').split(',').map(Number),
  longShare: Number(__ENV.LONG_SHARE || 0),
  // The query that all partitions are asked; empty: queries go to one node.
  gather: __ENV.GATHER || '',
  // Of object sets: name and part of the transactions, "G00 0.6,G01 0.4"; without any, requests name none.
  sets: objectSets(__ENV.SETS || ''),
};

/** With the parts summed up, so that a number within 0..1 falls on one of them. */
function objectSets(text) {
  let sum = 0;
  return text.split(',').filter(Boolean).map((one) => {
    const [name, share] = one.split(' ');
    sum += Number(share);
    return { name, upTo: sum };
  });
}

export const options = optionsFor(settings);

function optionsFor(s) {
  return {
    scenarios: {
      clients: {
        executor: 'per-vu-iterations',
        vus: s.vus,
        iterations: 1,
        maxDuration: `${Math.ceil(s.duration + s.drain + 30)}s`,
        gracefulStop: '0s',
      },
    },
    // k6 takes these two as its limits of idle connections: smaller ones reconnect for every request.
    batch: s.clients + 10,
    batchPerHost: s.clients + 10,
    discardResponseBodies: true,
    summaryTrendStats: ['min', 'avg', 'med', 'p(90)', 'p(95)', 'p(99)', 'max', 'count'],
    thresholds: {
      query_delay: [`avg<=${s.sla * 1000}`, `p(95)<=${s.sla * 1000}`],
      generator_lag: ['p(99)<=50'],
      failed_requests: ['count<1'],
    },
  };
}

// Mulberry32 over a mixed seed: small, fast, and good enough to spread requests.
function generator(seed, client) {
  let a = (Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(client + 1, 0xc2b2ae35)) | 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const between = (range, u) => range[0] + u * (range[1] - range[0]);
const whole = (range, u) => Math.floor(range[0] + u * (range[1] - range[0] + 1));
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// Which of `count` things a number in [0, 1) draws: the first most often, by Zipf's law.
function zipf(count, exponent) {
  if (!exponent) return (u) => Math.floor(u * count);
  const sums = [];
  let sum = 0;
  for (let rank = 1; rank <= count; rank++) sums.push((sum += rank ** -exponent));
  return (u) => {
    let [low, high] = [0, count - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sums[middle] > u * sum) high = middle;
      else low = middle + 1;
    }
    return low;
  };
}

const stockOf = zipf(settings.symbols, settings.skew);
const accountOf = zipf(settings.accounts, settings.skew);

function draw(s, random) {
  const [kind, which, who, size, long, think] = [random(), random(), random(), random(), random(), random()];
  if (s.gather) {
    const items = whole(s.short, size);
    const order_by = [{ column: 'price_cents', descending: true }, { column: 'symbol' }];
    // Of the first half, so that enough of them follow.
    const body = { query: s.gather, parameters: [Math.floor((which * s.symbols) / 2)], order_by, limit: items };
    return { class: 'query', path: '/v1/gather', items, think, set: null, body };
  }
  const transaction = kind < s.transactions;
  const items = whole(!transaction && long < s.longShare ? s.long : s.short, size);
  const symbol = `S${String(stockOf(which)).padStart(4, '0')}`;
  let account = accountOf(who);
  let set = null;
  if (transaction && s.sets.length) {
    // Which set is drawn with what a query draws its length with; its accounts are every so many-th one.
    const found = s.sets.findIndex((one) => long < one.upTo);
    const n = found < 0 ? s.sets.length - 1 : found;
    set = s.sets[n].name;
    account = n + s.sets.length * Math.floor(who * Math.floor(s.accounts / s.sets.length));
  }
  if (transaction) {
    // A sale would mostly be refused, for an account holds few of the stocks: no write.
    const path = `${size < 0.5 || set !== null ? '/purchase' : '/sale'}?items=${items}`;
    const shares = 1 + Math.floor(long * 10);
    return { class: 'transaction', path, items, think, set, body: { account, symbol, shares } };
  }
  const path = long < 0.5 === size < 0.5 ? `/stock/${symbol}` : `/portfolio/${account}`;
  return { class: 'query', path: `${path}?items=${items}`, items, think, set: null, body: null };
}

/** What k6 saw of one request, as a record and as metrics. */
function record(s, t, request, { response, target }) {
  // Queueing for a connection inside k6 is the generator's, establishing one is the service's.
  const timings = response.timings;
  const delay = (timings.connecting + timings.tls_handshaking + timings.duration) / 1000;
  const header = response.headers;
  let outcome = 'error';
  // 409 is an answer: the account lacks the cash or the shares. With a reason it is a node's that is no primary any more.
  const conflict = response.status === 409 && !header['Plimsoll-Reason'];
  if ((response.status >= 200 && response.status < 300) || conflict) outcome = 'ok';
  else if (response.status === 503 && header['Plimsoll-Reason']) outcome = 'refused';
  const items = outcome === 'ok' ? Number(header['X-Items'] || request.items) : request.items;
  if (outcome === 'refused') refusedRequests.add(1, { class: request.class });
  else if (outcome === 'error') failedRequests.add(1, { class: request.class });
  else if (request.class === 'query') {
    queryDelay.add(delay * 1000);
    totalItems.add(items);
    if (delay <= s.sla) timelyItems.add(items);
  }
  // A connection that ended without an answer is known by its other end.
  const cut = response.status === 0 && response.error_code !== REFUSED;
  const node = header['X-Plimsoll-Node'] || (cut ? target.replace('http://', '') : '');
  const known = [t.toFixed(4), delay.toFixed(4), response.status, request.class, outcome, items, node];
  known.push(header['X-Age-Seconds'] || '');
  if (request.set !== null) known.push(request.set);
  return known.join(',');
}

async function send(s, target, request, left) {
  const parameters = {
    // A request that outlives the run is cut off and counts as an error, never as nothing.
    timeout: Math.max(100, Math.min(REQUEST_TIMEOUT_MS, (left + s.drain) * 1000)),
    tags: { name: request.class },
    responseType: 'none',
  };
  if (request.body === null) return http.asyncRequest('GET', target + request.path, null, parameters);
  parameters.headers = { 'content-type': 'application/json' };
  if (request.set !== null) parameters.headers['x-object-set'] = request.set;
  return http.asyncRequest('POST', target + request.path, JSON.stringify(request.body), parameters);
}

// As a client does that knows several addresses: where nobody listens it asks the next, and stays with that.
async function ask(s, at, request, left) {
  for (let tried = 1; ; tried++) {
    const target = s.targets[at.index % s.targets.length];
    const response = await send(s, target, request, left);
    if (response.error_code !== REFUSED || tried >= s.targets.length) return { response, target };
    at.index++;
  }
}

async function client(s, number, start, records) {
  const random = generator(s.seed, number);
  const at = { index: number };
  const now = () => (Date.now() - start) / 1000;
  await sleep(random() * between(s.before, 0.5));
  while (now() < s.duration) {
    const request = draw(s, random);
    const t = now();
    const answer = await ask(s, at, request, s.duration - t);
    records.push(record(s, t, request, answer));
    const busy = now() >= s.event && now() < s.calm;
    const think = between(busy ? s.after : s.before, request.think);
    if (now() + think >= s.duration) return;
    await sleep(think);
  }
}

function post(s, path, body) {
  return http.asyncRequest('POST', s.collector + path, body, { tags: { name: 'collector' }, timeout: 10000 });
}

/** Tells the collector when the clients start; k6 hands the time to every VU. */
export function setup() {
  const s = settings;
  const start = Date.now();
  if (s.collector) http.post(`${s.collector}/start`, String(start), { tags: { name: 'collector' } });
  return { start };
}

/** One VU's share of the clients, and what it recorded, until the run is over. */
export default async function ({ start }) {
  const s = settings;
  const vu = exec.vu.idInTest - 1;
  const records = [];
  const lags = [];
  let over = false;

  const flush = async () => {
    const lines = records.splice(0).join('\n');
    const late = lags.splice(0).map((lag) => lag.toFixed(1)).join(' ');
    if (s.collector && (lines || late)) await post(s, '/records', `${late}\n${lines}`);
  };
  const report = async () => {
    while (!over) {
      await sleep(FLUSH_MS / 1000);
      await flush();
    }
  };
  // How late timers fire is how far behind the generator is.
  const probe = async () => {
    while (!over) {
      const due = Date.now() + LAG_PROBE_MS;
      await sleep(LAG_PROBE_MS / 1000);
      const lag = Math.max(0, Date.now() - due);
      lags.push(lag);
      generatorLag.add(lag);
    }
  };

  const loops = [];
  for (let number = vu; number < s.clients; number += s.vus) loops.push(client(s, number, start, records));
  const helpers = [report(), probe()];
  await Promise.all(loops);
  over = true;
  await Promise.all(helpers);
  await flush();
}

export function handleSummary(data) {
  const name = __ENV.SUMMARY;
  return name ? { [name]: JSON.stringify(data, null, 1) } : { stdout: JSON.stringify(data.metrics, null, 1) };
}
