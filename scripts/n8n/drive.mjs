// Runs examples/n8n/gate.json in n8n: `node drive.mjs GATE N8N WORK`, with the gate's program, the directory n8n was installed
// in, and an empty directory. Prints a table, and exits with 1 if an effect happened twice or not at all.
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { openSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSocket } from 'node:net';
import { join } from 'node:path';

const [gateProgram, n8nDirectory, work] = process.argv.slice(2);
const AT_ONCE = 20;
const read = (path) => readFileSync(new URL(path, import.meta.url), 'utf8');
const freePort = () => new Promise((found) => {
  const socket = createSocket().listen(0, '127.0.0.1', () => {
    const { port } = socket.address();
    socket.close(() => found(port));
  });
});

/** Looks again and again until there is something, or fails naming what did not come about. */
async function eventually(what, look, seconds = 90) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await look().catch(() => undefined);
    if (found) return found;
    if (Date.now() > end) throw new Error(`did not come about: ${what}`);
    await new Promise((later) => setTimeout(later, 50));
  }
}

// The receiver: counts what reached it by the address that it is about, and does as it is told.
const effects = new Map();
let [answer, letGo] = [async () => 200, undefined];
const receiver = createServer((request, response) => {
  let body = '';
  request.on('data', (part) => (body += part)).on('end', async () => {
    const { email } = JSON.parse(body);
    effects.set(email, (effects.get(email) ?? 0) + 1);
    response.writeHead(await answer(), { 'Content-Type': 'application/json' }).end('{}');
  });
});
await new Promise((listening) => receiver.listen(0, '127.0.0.1', listening));
const crm = `http://127.0.0.1:${receiver.address().port}`;
const count = (email) => effects.get(email) ?? 0;

const children = new Set();
function start(name, program, args, env) {
  const log = openSync(join(work, `${name}.log`), 'a');
  const child = spawn(program, args, { cwd: work, env: { ...process.env, ...env }, stdio: ['ignore', log, log] });
  children.add(child);
  child.ended = new Promise((ended) => child.on('exit', () => ended(children.delete(child))));
  return child;
}
async function stop(child) {
  child.kill('SIGTERM');
  await child.ended;
}

const token = randomBytes(24).toString('hex');
const gateUrl = `http://127.0.0.1:${await freePort()}`;
async function startGate() {
  const args = ['serve', '--config', 'oncegate.yaml', '--ephemeral', '--data', 'data', '--listen', new URL(gateUrl).host];
  const gate = start('gate', gateProgram, args, { ONCEGATE_ADMIN_TOKEN: token });
  await eventually('the gate answers', async () => (await fetch(`${gateUrl}/readyz`)).ok);
  return gate;
}
const api = async (path, method = 'GET') => {
  const query = method === 'POST' ? '?reason=maintenance' : '';
  const headers = { Authorization: `Bearer ${token}` };
  return (await fetch(`${gateUrl}${path}${query}`, { method, headers })).json();
};
async function claimOf(submission) {
  const key = encodeURIComponent(`form=contact-form:submission=${submission}`);
  return (await api(`/v1/claims?automation=welcome%20mail&idempotency_key=${key}`)).claims[0];
}

const n8nUrl = `http://127.0.0.1:${await freePort()}`;
writeFileSync(join(work, 'oncegate.yaml'), `
outgoing: { allow_private: ['${new URL(n8nUrl).host}'] }
automations:
  welcome mail:
    on_stale: hold
    key_fields: { form: opaque, submission: opaque }
    retrigger: { url: '${n8nUrl}/webhook/submission' }
`);
const n8nEnv = {
  N8N_USER_FOLDER: work,
  N8N_PORT: new URL(n8nUrl).port,
  N8N_LISTEN_ADDRESS: '127.0.0.1',
  N8N_ENCRYPTION_KEY: token,
  N8N_SECURE_COOKIE: 'false',
  // It is to speak to nobody else.
  N8N_DIAGNOSTICS_ENABLED: 'false',
  N8N_VERSION_NOTIFICATIONS_ENABLED: 'false',
  N8N_TEMPLATES_ENABLED: 'false',
  N8N_PERSONALIZATION_ENABLED: 'false',
};
const n8nProgram = join(n8nDirectory, 'node_modules/n8n/bin/n8n');
function n8nCommand(...args) {
  const ran = spawnSync(process.execPath, [n8nProgram, ...args], { cwd: work, env: { ...process.env, ...n8nEnv }, encoding: 'utf8' });
  if (ran.status !== 0) throw new Error(`n8n ${args[0]}: ${ran.stdout}${ran.stderr}`);
}

// As somebody who imports the file: two addresses, and a credential for the gate.
function importWorkflow(path) {
  const text = read(path).replaceAll('https://gate.example.com', gateUrl).replaceAll('https://crm.example.com', crm);
  if (text.includes('example.com/')) throw new Error(`${path}: an address is left`);
  const workflow = JSON.parse(text);
  for (const node of workflow.nodes.filter((node) => node.parameters.genericAuthType)) {
    node.credentials = { httpHeaderAuth: { id: 'oncegate', name: 'oncegate' } };
  }
  const file = join(work, `${workflow.id}.json`);
  writeFileSync(file, JSON.stringify(workflow));
  n8nCommand('import:workflow', `--input=${file}`);
  n8nCommand('publish:workflow', `--id=${workflow.id}`);
  return workflow.id;
}

let cookie = '';
async function rest(method, path, body) {
  const headers = { 'Content-Type': 'application/json', 'browser-id': 'recipes', cookie };
  const answered = await fetch(`${n8nUrl}/rest${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await answered.text();
  if (!answered.ok) throw new Error(`n8n ${path}: ${answered.status} ${text.slice(0, 300)}`);
  cookie = answered.headers.getSetCookie().map((one) => one.split(';')[0]).join('; ') || cookie;
  return JSON.parse(text).data;
}
async function executions(workflowId) {
  const filter = encodeURIComponent(JSON.stringify({ workflowId }));
  return (await rest('GET', `/executions?filter=${filter}&limit=200`)).results;
}
const ENDED = ['success', 'error', 'crashed', 'canceled'];
/** Waits until so many more executions than before have ended; the new ones. */
async function ended(workflowId, before, more) {
  const known = new Set(before.map(({ id }) => id));
  return eventually(`${more} executions of ${workflowId} end`, async () => {
    const fresh = (await executions(workflowId)).filter(({ id }) => !known.has(id));
    return fresh.length >= more && fresh.every(({ status }) => ENDED.includes(status)) && fresh;
  }, 180);
}
const trigger = async (hook, submission_id, email) => {
  const body = JSON.stringify({ submission_id, email });
  const answered = await fetch(`${n8nUrl}/webhook/${hook}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  if (!answered.ok) throw new Error(`n8n's webhook said ${answered.status} ${await answered.text()}`);
};
async function runs(workflowId, hook, times, submission, email) {
  const before = await executions(workflowId);
  await Promise.all(Array.from({ length: times }, () => trigger(hook, submission, email)));
  return ended(workflowId, before, times);
}
async function retried(workflowId, execution, times = 1) {
  const before = await executions(workflowId);
  const retry = () => rest('POST', `/executions/${execution.id}/retry`, { loadWorkflow: true });
  // It is answered when the retry has ended, with an error if it failed.
  await Promise.allSettled(Array.from({ length: times }, retry));
  return ended(workflowId, before, times);
}

const rows = [];
let wrong = 0;
function row(what, expected, found) {
  const [want, got] = [JSON.stringify(expected), JSON.stringify(found)];
  if (want !== got) wrong += 1;
  rows.push([what, Object.entries(found).map(([name, value]) => `${name}: ${value}`).join(', '), want === got ? '' : `WRONG, wanted ${want}`]);
}

async function drive() {
  let gate = await startGate();
  writeFileSync(join(work, 'credentials.json'), JSON.stringify([
    { id: 'oncegate', name: 'oncegate', type: 'httpHeaderAuth', data: { name: 'Authorization', value: `Bearer ${token}` } },
  ]));
  n8nCommand('import:credentials', `--input=${join(work, 'credentials.json')}`);
  const gated = importWorkflow('../../examples/n8n/gate.json');
  const own = importWorkflow('remove-duplicates.json');
  start('n8n', process.execPath, [n8nProgram, 'start'], n8nEnv);
  await eventually('n8n answers', async () => (await fetch(`${n8nUrl}/healthz/readiness`)).ok, 180);
  await rest('POST', '/owner/setup', { email: 'ann@example.com', firstName: 'Ann', lastName: 'Example', password: `A1${token}` });
  await eventually("n8n's webhooks are there", async () => !(await trigger('submission', '0', 'first@example.com')));
  await ended(gated, [], 1);

  const tell = async (email, submission) => {
    const claim = await claimOf(submission);
    return { effects: count(email), claim: claim?.processing_state ?? 'none' };
  };

  await runs(gated, 'submission', AT_ONCE, '8812', 'a@example.com');
  row(`${AT_ONCE} triggers at once`, { effects: 1, claim: 'done', stopped: AT_ONCE - 1 },
    { ...await tell('a@example.com', '8812'), stopped: (await claimOf('8812')).stopped.count });
  const [replayed] = await runs(gated, 'submission', 1, '8812', 'a@example.com');
  row('once more, later', { effects: 1, claim: 'done', execution: 'success' }, { ...await tell('a@example.com', '8812'), execution: replayed.status });

  answer = async () => 500;
  const [failed] = await runs(gated, 'submission', 1, '8813', 'b@example.com');
  answer = async () => 200;
  const note = (await claimOf('8813')).note ?? '';
  row('the work fails', { effects: 1, claim: 'error', execution: 'error', note: 'Work: …' },
    { ...await tell('b@example.com', '8813'), execution: failed.status, note: note.replace(/^(Work: ).+/, '$1…') });
  await retried(gated, failed);
  await runs(gated, 'submission', 1, '8813', 'b@example.com');
  row('retried, and triggered again', { effects: 1, claim: 'error' }, await tell('b@example.com', '8813'));

  await stop(gate);
  const [unasked] = await runs(gated, 'submission', 1, '8814', 'c@example.com');
  row('the gate is down', { effects: 0, execution: 'error' }, { effects: count('c@example.com'), execution: unasked.status });
  const [twice] = await runs(gated, 'submission', 1, '8817', 'g@example.com');
  const noGate = createServer((_, response) => response.writeHead(200, { 'Content-Type': 'application/json' }).end('{}'));
  await new Promise((listening) => noGate.listen(new URL(gateUrl).port, '127.0.0.1', listening));
  const [misled] = await runs(gated, 'submission', 1, '8818', 'h@example.com');
  row('in its place something says 200 {}', { effects: 0, execution: 'error' },
    { effects: count('h@example.com'), execution: misled.status });
  await new Promise((closed) => {
    noGate.close(closed);
    noGate.closeAllConnections();
  });
  gate = await startGate();
  await retried(gated, unasked);
  row('it is back, retried', { effects: 1, claim: 'done' }, await tell('c@example.com', '8814'));
  await retried(gated, twice, 2);
  row('another, retried twice at once', { effects: 1, claim: 'done', stopped: 1 },
    { ...await tell('g@example.com', '8817'), stopped: (await claimOf('8817')).stopped.count });

  answer = () => new Promise((go) => (letGo = () => go(200)));
  const untold = runs(gated, 'submission', 1, '8815', 'd@example.com');
  await eventually('the work is on', async () => count('d@example.com') === 1);
  await stop(gate);
  letGo();
  answer = async () => 200;
  const [half] = await untold;
  row('the gate goes down during the work', { effects: 1, execution: 'error' }, { effects: count('d@example.com'), execution: half.status });
  gate = await startGate();
  await retried(gated, half);
  row('it is back, retried', { effects: 1, claim: 'done' }, await tell('d@example.com', '8815'));

  await api('/v1/automations/welcome%20mail/pause', 'POST');
  const [paused] = await runs(gated, 'submission', 1, '8816', 'f@example.com');
  row('paused', { effects: 0, execution: 'success' }, { effects: count('f@example.com'), execution: paused.status });
  await api('/v1/automations/welcome%20mail/resume', 'POST');
  await eventually('it is called back', async () => (await claimOf('8816')).processing_state === 'done');
  row('resumed: the gate calls the webhook', { effects: 1, claim: 'done' }, await tell('f@example.com', '8816'));

  const [nameless] = await runs(gated, 'submission', 1, undefined, 'e@example.com');
  row('no submission_id', { effects: 0, execution: 'error' }, { effects: count('e@example.com'), execution: nameless.status });

  for (const round of [1, 2, 3]) {
    await runs(own, 'duplicates', AT_ONCE, `r${round}`, `r${round}@example.com`);
    rows.push([`n8n's Remove Duplicates, ${AT_ONCE} at once`, `effects: ${count(`r${round}@example.com`)}`, 'not ours']);
  }
}

try {
  await drive();
} catch (error) {
  wrong += 1;
  console.error(`${error.stack}\nThe logs are in ${work}`);
} finally {
  for (const child of children) child.kill('SIGKILL');
}
const { version } = JSON.parse(readFileSync(join(n8nDirectory, 'node_modules/n8n/package.json'), 'utf8'));
console.log(`\nn8n ${version}, Node ${process.version}`);
const widths = [0, 1].map((at) => Math.max(...rows.map((row) => row[at].length)));
for (const row of rows) console.log(`  ${row[0].padEnd(widths[0])}  ${row[1].padEnd(widths[1])}  ${row[2]}`.trimEnd());
process.exit(wrong ? 1 : 0);
