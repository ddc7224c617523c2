// Plays the platform of a recipe in examples/: gives its script what the platform would, with a thin fake of the services
// it uses, and calls it once. `node scripts/recipes/play.mjs apps-script-form 8812` with GATE_URL, GATE_TOKEN and CRM_URL
// in the environment. An empty submission is one that names itself not. Exit status 1: the platform would show it as failed.
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import vm from 'node:vm';

const [platform, submission] = process.argv.slice(2);
const { GATE_URL, GATE_TOKEN, CRM_URL } = process.env;
const example = (path) => readFileSync(new URL(`../../examples/${path}`, import.meta.url), 'utf8');
const platforms = {
  'apps-script-form': () => appsScript({
    source: { getId: () => 'contact-form' },
    response: {
      getId: () => submission,
      getRespondentEmail: () => 'ann@example.com',
      getItemResponses: () => [{ getItem: () => ({ getTitle: () => 'Courses' }), getResponse: () => ['Rust', 'SQL'] }],
    },
  }),
  'apps-script-sheet': () => appsScript({
    range: { getRow: () => 7, getSheet: () => ({ getSheetId: () => 0, getParent: () => ({ getId: () => 'contact-sheet' }) }) },
    values: [submission, 'ann@example.com'],
    namedValues: { Zeitstempel: [submission], Email: ['ann@example.com'] },
  }),
  'apps-script-by-hand': () => appsScript(undefined),
  hubspot,
  zapier,
};
await platforms[platform]();

// Google's services are called and waited for; so Node is made to wait by a process of its own for each request.
function appsScript(e) {
  const properties = { GATE_URL, GATE_TOKEN, CRM_URL };
  const fetch = (url, options) => {
    const headers = { 'Content-Type': options.contentType, ...options.headers };
    const config = [`url = ${JSON.stringify(url)}`, ...Object.entries(headers).map(([n, v]) => `header = ${JSON.stringify(`${n}: ${v}`)}`)];
    const args = ['--silent', '--request', options.method.toUpperCase(), '--data-binary', options.payload, '--write-out', '\n%{http_code}'];
    let said;
    try {
      said = execFileSync('curl', [...args, '--config', '-'], { input: config.join('\n'), encoding: 'utf8' });
    } catch {
      throw new Error(`Address unavailable: ${new URL(url).host}`);
    }
    const end = said.lastIndexOf('\n');
    const [status, text] = [Number(said.slice(end + 1)), said.slice(0, end)];
    if (!options.muteHttpExceptions && status >= 300) throw new Error(`Request failed returned code ${status}`);
    return { getResponseCode: () => status, getContentText: () => text };
  };
  const services = {
    UrlFetchApp: { fetch },
    PropertiesService: { getScriptProperties: () => ({ getProperty: (name) => properties[name] ?? null }) },
    // It would only make the tests slow.
    Utilities: { sleep: () => {}, getUuid: randomUUID },
    console,
  };
  vm.runInNewContext(`${example('apps-script/Code.gs')}\nonFormSubmit`, services)(e);
}

async function hubspot() {
  const action = { exports: {} };
  const globals = { exports: action.exports, process, fetch, AbortSignal, URL };
  vm.runInNewContext(example('hubspot/custom-code.js'), globals);
  await action.exports.main({
    callbackId: 'ap-123-456-7-8',
    origin: { portalId: 1, actionDefinitionId: 2 },
    object: { objectType: 'CONTACT', objectId: 4 },
    // A property without a value.
    inputFields: { email: 'ann@example.com', effect: submission || null },
  }, ({ outputFields }) => console.log(`${outputFields.gate_decision}: ${outputFields.gate_reason}`));
}

// Claim, filter, the work as a step of its own with an error handler, and the end.
async function zapier() {
  const code = async (path, inputData) => {
    const wrapped = `(async () => { let output; ${example(path)}\nreturn output; })()`;
    return await vm.runInNewContext(wrapped, { inputData, fetch, setTimeout });
  };
  // Zapier leaves out what has no value, and all that it passes is text.
  const fields = { gate_url: GATE_URL, gate_token: GATE_TOKEN, automation: 'welcome mail', form: 'contact-form' };
  const claim = await code('zapier/claim.js', submission ? { ...fields, submission } : fields);
  if (String(claim.decision) !== 'run') return console.log(`${claim.decision}: ${claim.reason}`);
  const body = JSON.stringify({ email: 'ann@example.com' });
  const work = await fetch(CRM_URL, { method: 'POST', headers: { 'Idempotency-Key': claim.claim_id }, body });
  if (!work.ok) {
    const url = claim.error_url;
    return await code('zapier/finish.js', { url, step: 'add to CRM', message: `The app returned ${work.status}` });
  }
  await code('zapier/finish.js', { url: claim.done_url });
}
