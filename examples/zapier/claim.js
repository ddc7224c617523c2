// Code by Zapier, Run JavaScript: asks the gate. Put a Filter behind it: `decision` (Text) Exactly matches `run`.
//
// Input data: gate_url (https://YOUR-HOST), gate_token, automation, form, and submission, mapped to the id of the
// submission. Not the id of the Zap's run and not the time: these differ in a replay.

const fields = {
  automation: inputData.automation,
  // Zapier leaves out what has no value. It is sent as empty here, and refused; left out, it would make another key.
  key_fields: { form: inputData.form || '', submission: inputData.submission || '' },
  run_url: inputData.run_url || '',
  wait: 5, // seconds for a run beside this one to end; a Code step may not take long
};
const answer = await fetch(`${inputData.gate_url}/v1/claims`, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${inputData.gate_token}` },
  body: JSON.stringify(fields),
}).catch((error) => {
  throw new Error(`The gate does not answer, nothing was done: ${error.message}`);
});
const text = await answer.text();
// A step that throws stops the Zap: nothing is done unless the gate said so.
if (answer.status !== 200) throw new Error(`The gate did not let this run, nothing was done: ${answer.status} ${text.slice(0, 600)}`);
let claim = {};
try {
  claim = JSON.parse(text) || {};
} catch {
  // Said below.
}
const { decision, reason, idempotency_key, claim_id, done_url, error_url, heartbeat_url } = claim;
if (decision !== 'run' && decision !== 'stop') {
  throw new Error(`That is not the answer of a gate, nothing was done; check gate_url: ${answer.status} ${text.slice(0, 600)}`);
}
output = { decision, reason, idempotency_key, claim_id, done_url, error_url, heartbeat_url };
