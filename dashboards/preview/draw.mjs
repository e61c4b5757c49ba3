// `node draw.mjs < jobs.json`: draws each of [{drawing, file}] with headless Chromium and writes a PNG.
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { chromium } from 'playwright-core';

const HERE = new URL('.', import.meta.url);
// Nobody listens there: every request is answered below, and none leaves the machine.
const ORIGIN = 'http://preview.invalid';
const ICONS = '/public/build/img/icons/';
const FONTS = '/public/fonts/inter/';
const FONT = 'node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2';
const TYPES = { css: 'text/css', js: 'text/javascript', svg: 'image/svg+xml', woff2: 'font/woff2' };
// Chromium is not to ask anybody for anything.
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const PAGE =
  '<!doctype html><html><head><link rel="stylesheet" href="/page.css"><style>body { margin: 0 }</style></head>' +
  '<body><div id="root"></div><script type="module" src="/page.js"></script></body></html>';

async function bundle() {
  const made = await build({
    entryPoints: [fileURLToPath(new URL('src/page.tsx', HERE))],
    absWorkingDir: fileURLToPath(HERE),
    bundle: true,
    write: false,
    format: 'esm',
    outfile: 'page.js',
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': '"production"' },
    loader: { '.woff2': 'dataurl', '.svg': 'dataurl', '.ttf': 'empty' },
    logLevel: 'error',
  });
  return new Map(made.outputFiles.map(({ path, contents }) => [path.split('/').at(-1), Buffer.from(contents)]));
}

function file(path) {
  const { pathname } = new URL(path, ORIGIN);
  if (pathname.startsWith(ICONS)) {
    return new URL(`node_modules/@grafana/ui/dist/public/img/icons/${pathname.slice(ICONS.length)}`, HERE);
  }
  // All weights are in one file.
  return pathname.startsWith(FONTS) ? new URL(FONT, HERE) : undefined;
}

async function answer(route, files) {
  const path = new URL(route.request().url()).pathname;
  const made = path === '/' ? PAGE : files.get(path.slice(1));
  const kept = file(path);
  if (!made && !kept) {
    return route.fulfill({ status: 404 });
  }
  const contentType = TYPES[path.split('.').at(-1)] ?? 'text/html';
  return route.fulfill({ contentType, body: made ?? (await readFile(kept)) });
}

async function draw(browser, files, { drawing, file }) {
  const page = await browser.newPage({ viewport: { width: drawing.width, height: 200 } });
  const failures = [];
  page.on('pageerror', (error) => failures.push(error.message));
  page.on('console', (message) => message.type() === 'error' && failures.push(message.text()));
  await page.route('**/*', (route) => answer(route, files));
  await page.goto(ORIGIN);
  await page.waitForFunction(() => 'draw' in globalThis);
  await page.evaluate((given) => globalThis.draw(given), drawing);
  await Promise.race([page.waitForSelector('main section'), page.waitForEvent('pageerror')]);
  await page.waitForLoadState('networkidle');
  // What measures itself is drawn in the frame after.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  if (failures.length > 0) {
    throw new Error(`${file}: ${failures.join('; ')}`);
  }
  await page.screenshot({ path: file, fullPage: true });
  await page.close();
}

async function main() {
  const jobs = JSON.parse(await text(process.stdin));
  const files = await bundle();
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: FLAGS });
  try {
    for (const job of jobs) {
      await draw(browser, files, job);
    }
  } finally {
    await browser.close();
  }
}

try {
  await main();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
