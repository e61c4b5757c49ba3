// Open-loop clients for real applications: requests come when they come, whatever became of those before.
//
// What request number n asks for follows from the run's seed and n alone, and when it is sent from the steps, so
// that every policy is asked for the same work at the same times. One line of console output is one record; the lab
// has k6 write it to a file, which costs less than posting it.

import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';

// k6's name for a request that took longer than its time limit.
const TIMED_OUT = 1050;
const MINUTE_S = 60;
const SLACK_S = 2;
// Mean wait before the first retry, doubled for each further one; each is within half and one and a half of it.
const BACKOFF_S = 0.1;

/** The parameters of a run, all from the environment. Times are in seconds. */
const settings = {
  target: __ENV.TARGET || 'http://127.0.0.1:8080',
  seed: Number(__ENV.SEED || 1),
  // Requests/s and for how long: "30:20,90:25".
  steps: (__ENV.STEPS || '10:5').split(',').map((step) => step.split(':').map(Number)),
  patience: Number(__ENV.PATIENCE || 5),
  // Milliseconds of CPU that a request costs, evenly within two; some cost many times that.
  cost: (__ENV.COST_MS || '5,15').split(',').map(Number),
  heavyShare: Number(__ENV.HEAVY_SHARE || 0.02),
  heavyTimes: Number(__ENV.HEAVY_TIMES || 10),
  // The part of class 0; the others are of class 3. With 0, no request says its class.
  importantShare: Number(__ENV.IMPORTANT_SHARE || 0),
  // Times that a client tries again what was not served; then first attempts are of class 0, and retries of class 3.
  retries: Number(__ENV.RETRIES || 0),
};

export const options = {
  scenarios: { arrivals: arrivals(settings) },
  discardResponseBodies: true,
  summaryTrendStats: ['avg', 'med', 'p(95)', 'max', 'count'],
};

function arrivals(s) {
  const perMinute = s.steps.map(([rate]) => Math.round(rate * MINUTE_S));
  // Each step begins with a jump.
  const stages = s.steps.flatMap(([, seconds], n) => [
    { target: perMinute[n], duration: '0s' },
    { target: perMinute[n], duration: `${Math.round(seconds * 1000)}ms` },
  ]);
  // If no request is answered, so many are under way; a busy machine ends them late.
  const longest = (s.patience + SLACK_S) * (1 + s.retries);
  const most = Math.ceil(Math.max(...s.steps.map(([rate]) => rate)) * longest) + 10;
  return {
    executor: 'ramping-arrival-rate',
    startRate: perMinute[0],
    timeUnit: `${MINUTE_S}s`,
    preAllocatedVUs: most,
    maxVUs: most,
    stages: stages.slice(1),
    gracefulStop: `${longest}s`,
  };
}

// Within [0, 1): of request n its draw number `which`. Two rounds of an integer hash (lowbias32).
function draw(seed, n, which) {
  let x = (Math.imul(seed, 0x9e3779b1) ^ Math.imul(n + 1, 0x85ebca77) ^ Math.imul(which + 1, 0xc2b2ae3d)) >>> 0;
  for (let round = 0; round < 2; round++) {
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    x ^= x >>> 16;
  }
  return (x >>> 0) / 4294967296;
}

function costOf(s, n) {
  const [low, high] = s.cost;
  const cost = low + draw(s.seed, n, 0) * (high - low);
  return draw(s.seed, n, 1) < s.heavyShare ? cost * s.heavyTimes : cost;
}

function outcomeOf(response) {
  if (response.error_code === TIMED_OUT) return 'timeout';
  if (response.status >= 200 && response.status < 300) return 'ok';
  return response.status === 503 && response.headers['Plimsoll-Reason'] ? 'refused' : 'error';
}

export default function () {
  const s = settings;
  const n = exec.scenario.iterationInTest;
  const t = Date.now() - exec.scenario.startTime;
  if (n === 0) console.log(`start,${exec.scenario.startTime}`);
  const parameters = { timeout: s.patience * 1000, tags: { name: 'work' }, responseType: 'none' };
  const cost = costOf(s, n).toFixed(3);
  const important = draw(s.seed, n, 2) < s.importantShare;
  let response, outcome, retried = 0;
  for (; ; retried++) {
    const isHighest = s.importantShare ? important : retried === 0;
    if (s.importantShare || s.retries) parameters.headers = { 'x-class': isHighest ? '0' : '3' };
    response = http.get(`${s.target}/work?cpu_ms=${cost}`, parameters);
    outcome = outcomeOf(response);
    if (outcome === 'ok' || retried === s.retries) break;
    sleep(BACKOFF_S * 2 ** retried * (0.5 + draw(s.seed, n, 3 + retried)));
  }
  // Queueing for a connection inside k6 is the generator's, establishing one is the service's.
  const { connecting, duration } = response.timings;
  const last = outcome === 'timeout' ? s.patience * 1000 : connecting + duration;
  const delay = retried ? Date.now() - exec.scenario.startTime - t : last;
  const node = response.headers['X-Plimsoll-Node'] || '';
  console.log([n, t, delay.toFixed(1), response.status, outcome, cost, node, important ? 1 : 0].join(','));
}

export function handleSummary(data) {
  const name = __ENV.SUMMARY;
  return name ? { [name]: JSON.stringify(data, null, 1) } : { stdout: JSON.stringify(data.metrics, null, 1) };
}
