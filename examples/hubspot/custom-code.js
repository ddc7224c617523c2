// A custom coded action (Node.js) of a HubSpot workflow that does its work once for each effect that is meant, also when
// HubSpot runs the action again or enrols the record twice at a time.
//
// Secrets: GATE_TOKEN (of the role `caller`). Properties to include in code: `effect`, which names what this enrolment is
// about and stays the same when the action is run again, e.g. the id of an order (docs/recipes/hubspot.md says why not
// "Recent conversion date"); `email`.
// Data outputs (text): gate_decision, gate_reason.

const GATE_URL = process.env.GATE_URL || 'https://YOUR-HOST';
const AUTOMATION = 'welcome mail';
const CRM_URL = process.env.CRM_URL || 'https://crm.example.com/contacts';

// The action is ended after 20 seconds, wherever it stands. So until when, counted from its beginning, it asks, works, tells:
const ASK_UNTIL_MS = 5000;
const WORK_UNTIL_MS = 13000;
const TELL_UNTIL_MS = 19000;

// The name of a step is what the error list shows. `end` is one for all steps: give it to each call, which gets what is left.
const STEPS = [
  ['add to CRM', async (event, claim, end) => {
    const answer = await send(CRM_URL, { email: event.inputFields.email }, end, { 'Idempotency-Key': claim.claim_id });
    if (!answer.ok) throw new Error(`the CRM said ${answer.status}`);
  }],
];

exports.main = async (event, callback) => {
  const begun = Date.now();
  const outputs = (gate_decision, gate_reason) => callback({ outputFields: { gate_decision, gate_reason } });
  const claim = await ask(event, begun + ASK_UNTIL_MS);
  if (claim.decision !== 'run') return outputs('stop', claim.reason);
  let step = '';
  try {
    for (const [name, work] of STEPS) {
      step = name;
      await work(event, claim, begun + WORK_UNTIL_MS);
    }
  } catch (error) {
    // Not thrown on: HubSpot may run again what throws, and nobody knows here whether half of it has happened.
    const note = `${step}: ${error.message}`;
    await tell(claim.error_url, { note }, begun + TELL_UNTIL_MS);
    return outputs('failed', note);
  }
  await tell(claim.done_url, {}, begun + TELL_UNTIL_MS);
  return outputs('run', claim.reason);
};

// Throws unless the gate answered: then nothing is done, and the action fails.
async function ask(event, end) {
  const { objectType, objectId } = event.object;
  const effect = event.inputFields.effect;
  const answer = await send(`${GATE_URL}/v1/claims`, {
    automation: AUTOMATION,
    key_fields: {
      form: `HubSpot ${event.origin.portalId}`,
      // What is missing is sent as empty, and refused: it would make all these enrolments one.
      submission: objectId && effect ? `${objectType} ${objectId} ${effect}` : '',
    },
    // No `run_id`: an action that was ended after its work and is run again must not be taken for its own first run.
  }, end, { Authorization: `Bearer ${process.env.GATE_TOKEN}` });
  if (!answer.ok) throw new Error(`The gate did not let this run, nothing was done: ${answer.status} ${answer.text.slice(0, 600)}`);
  let claim = {};
  try {
    claim = JSON.parse(answer.text);
  } catch {
    // Said below.
  }
  if (['run', 'stop'].includes(claim?.decision)) return claim;
  throw new Error(`That is not the answer of a gate, nothing was done; check GATE_URL: ${answer.status} ${answer.text.slice(0, 600)}`);
}

// Says how it went; the URL proves by itself who says so. To say it twice does no harm.
async function tell(url, fields, end) {
  let said = '';
  // The first try gets half of what is left.
  for (const tryEnd of [(Date.now() + end) / 2, end]) {
    try {
      const answer = await send(url, fields, tryEnd, {});
      if (answer.ok) return;
      said = `${answer.status} ${answer.text.slice(0, 300)}`;
      if (answer.status < 500 && answer.status !== 429) break;
    } catch (error) {
      said = error.message;
    }
  }
  throw new Error(`The gate could not be told; look for this claim in its list of what is stuck: ${said}`);
}

// Posts, and waits for the answer until then at most.
async function send(url, fields, end, headers) {
  const left = Math.floor(end - Date.now());
  if (left <= 0) throw new Error(`${new URL(url).host} was not called: no time is left`);
  try {
    const answer = await fetch(url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...headers },
      body: JSON.stringify(fields),
      signal: AbortSignal.timeout(left),
    });
    return { ok: answer.ok, status: answer.status, text: await answer.text() };
  } catch (error) {
    throw new Error(`${new URL(url).host} did not answer: ${error.cause?.code || error.name}`);
  }
}
