// Clients of scenario master-failover. What they send and are told is a line each, the ledger that the database is
// compared with: kind, number or name, when it was sent and done (ms since 1970), status, node, what was read.

import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';

const settings = {
  target: __ENV.TARGET || 'http://127.0.0.1:8080',
  duration: Number(__ENV.DURATION || 60),
  writers: Number(__ENV.WRITERS || 8),
  readers: Number(__ENV.READERS || 8),
};
const PAUSE_S = { write: 0.05, beat: 0.1, read: 0.03 };

const loop = (run, vus) => ({
  executor: 'constant-vus', exec: run, vus, duration: `${settings.duration}s`, gracefulStop: '30s',
});

export const options = {
  scenarios: {
    writers: loop('write', settings.writers),
    beat: loop('beat', 1),
    readers: loop('read', settings.readers),
  },
};

function told(kind, what, sent, answer) {
  const node = answer.headers['X-Node'] || '-';
  const read = kind === 'read' && answer.status === 200 ? answer.body : '-';
  console.log(`${kind} ${what} ${sent} ${Date.now()} ${answer.status} ${node} ${read}`);
}

const PARAMETERS = { timeout: '30s' };

/** Every entry is a new one, so that one that was not acknowledged is never sent again. */
export function write() {
  const id = `w${exec.vu.idInTest}-${exec.vu.iterationInInstance}`;
  const sent = Date.now();
  told('write', id, sent, http.post(`${settings.target}/entry/${id}`, null, PARAMETERS));
  sleep(PAUSE_S.write);
}

/** One client raises it, one after the other. */
export function beat() {
  const n = exec.vu.iterationInInstance + 1;
  const sent = Date.now();
  told('beat', n, sent, http.post(`${settings.target}/beat/${n}`, null, PARAMETERS));
  sleep(PAUSE_S.beat);
}

export function read() {
  const sent = Date.now();
  told('read', '-', sent, http.get(`${settings.target}/beat`, PARAMETERS));
  sleep(PAUSE_S.read);
}
