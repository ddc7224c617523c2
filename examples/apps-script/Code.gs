/**
 * Does the work of each form submission once, however often Google calls this: two editors who both installed the
 * trigger, a script that was run again by hand. Works in the script of a form and in that of a sheet.
 *
 * Script properties: GATE_URL (https://YOUR-HOST) and GATE_TOKEN (of the role `caller`).
 */

const AUTOMATION = 'welcome mail';

// Google ends a script after 6 minutes, wherever it stands. A request cannot be told how long it may take; Google gives it
// up after about 60 seconds. So what may be begun until when, in seconds of the run, leaves a minute for what was begun last.
const ASK_UNTIL = 60;
const STEP_UNTIL = 180; // a step that takes longer than a minute takes it from what is left for telling the gate
const TELL_UNTIL = 290;
const BEGUN = Date.now(); // Google reads this file anew for each run

/** What is to be done, in order. The name of a step is what the error list shows. */
const STEPS = [
  ['add to CRM', (submission) => {
    const properties = PropertiesService.getScriptProperties();
    const answer = UrlFetchApp.fetch(properties.getProperty('CRM_URL'), {
      method: 'post',
      contentType: 'application/json',
      // A receiver that knows this header takes the same effect once, even if this script is killed half-way.
      headers: { 'Idempotency-Key': submission.claim_id },
      payload: JSON.stringify(submission.answers),
      muteHttpExceptions: true,
    });
    if (answer.getResponseCode() >= 300) throw new Error('the CRM said ' + answer.getResponseCode());
  }],
];

/** Run once, as one editor. A second one who runs it too does no harm. */
function install() {
  const name = 'onFormSubmit';
  if (ScriptApp.getProjectTriggers().some((trigger) => trigger.getHandlerFunction() === name)) return;
  const form = FormApp.getActiveForm();
  const trigger = ScriptApp.newTrigger(name);
  (form ? trigger.forForm(form) : trigger.forSpreadsheet(SpreadsheetApp.getActive())).onFormSubmit().create();
}

/** Google calls this for each submission, once per installed trigger. */
function onFormSubmit(e) {
  const submission = read(e);
  const claim = ask(submission);
  if (claim.decision !== 'run') {
    console.log('stop: ' + claim.reason + ' ' + claim.idempotency_key);
    return;
  }
  submission.claim_id = claim.claim_id;
  let step = '';
  try {
    for (const [name, work] of STEPS) {
      step = name;
      if (seconds() > STEP_UNTIL) throw new Error('not begun, the script has too little time left');
      work(submission);
    }
  } catch (error) {
    tell(claim.error_url, { note: step + ': ' + (error && error.message || error) });
    throw error; // so that Google shows it as failed, and mails it
  }
  tell(claim.done_url, {});
}

/** What names this submission, and its answers. The same for every trigger and every repeat; never the time of the run. */
function read(e) {
  if (e && e.response) {
    const answers = { respondent_email: e.response.getRespondentEmail() };
    for (const answer of e.response.getItemResponses()) answers[answer.getItem().getTitle()] = answer.getResponse();
    return { form: e.source.getId(), submission: e.response.getId(), answers };
  }
  if (e && e.range && e.values) {
    // A row moves when rows above it are deleted, and the next submission may come to stand in its place: so the time
    // that Google wrote into its first column belongs to the name. That column has another title in each language.
    const sheet = e.range.getSheet();
    const time = String(e.values[0] || '').trim();
    return {
      form: sheet.getParent().getId() + ' ' + sheet.getSheetId(),
      submission: time && 'row ' + e.range.getRow() + ' ' + time,
      answers: e.namedValues,
    };
  }
  throw new Error('This is called by the form; to try it, send the form. Running it by hand names no submission.');
}

/** Asks the gate. Throws unless it answered: then nothing is done. */
function ask(submission) {
  const answer = post(property('GATE_URL').replace(/\/+$/, '') + '/v1/claims', {
    automation: AUTOMATION,
    // What is missing is sent as empty, and refused; left out, it would make another key.
    key_fields: { form: submission.form || '', submission: submission.submission || '' },
    run_id: Utilities.getUuid(), // the same for the tries below: an answer that gets lost is given again
    wait: 20,
  }, { Authorization: 'Bearer ' + property('GATE_TOKEN') }, ASK_UNTIL);
  if (answer.status !== 200) throw new Error('The gate did not let this run, nothing was done: ' + answer.said);
  let claim = {};
  try {
    claim = JSON.parse(answer.said);
  } catch (notJson) {
    // Said below.
  }
  if (claim && ['run', 'stop'].includes(claim.decision)) return claim;
  throw new Error('That is not the answer of a gate, nothing was done; check GATE_URL: 200 ' + answer.said.slice(0, 600));
}

/** Says how it went. The URL proves by itself who says so. */
function tell(url, fields) {
  const answer = post(url, fields, {}, TELL_UNTIL);
  if (answer.status !== 200) {
    throw new Error('The gate could not be told; look for this claim in its list of what is stuck: ' + answer.said);
  }
}

/** How long this run has gone on. */
function seconds() {
  return (Date.now() - BEGUN) / 1000;
}

/**
 * Tries again where that may help: three times, with 40 seconds of pauses in all; what each try waits for its answer comes
 * on top. The first is always made; none of the others is begun later than at second `until` of the run.
 */
function post(url, fields, headers, until) {
  let said = '';
  let status = 0;
  for (const pause of [0, 2, 8, 30]) {
    if (pause && seconds() + pause > until) break;
    Utilities.sleep(pause * 1000);
    try {
      const answer = UrlFetchApp.fetch(url, {
        method: 'post',
        contentType: 'application/json',
        headers,
        payload: JSON.stringify(fields),
        muteHttpExceptions: true,
      });
      status = answer.getResponseCode();
      said = status + ' ' + answer.getContentText();
      if (status === 200) return { status, said: answer.getContentText() };
      if (status < 500 && status !== 408 && status !== 429) break;
    } catch (networkError) {
      status = 0;
      said = 'it does not answer: ' + (networkError && networkError.message || networkError);
    }
  }
  return { status, said: said.slice(0, 600) };
}

function property(name) {
  const value = PropertiesService.getScriptProperties().getProperty(name);
  if (!value || !value.trim()) throw new Error('The script property ' + name + ' is missing');
  return value.trim();
}
