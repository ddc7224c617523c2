// Signs random bodies with the providers' own libraries, a JSON object a line, for tests/official.rs. Where a library only
// verifies, the signature is made here as documented, and the library must agree before the line is written.
//
// node sign.mjs SEED HOW_MANY

import { strict as assert } from 'node:assert';
import * as crypto from 'node:crypto';
import { createRequire } from 'node:module';

import { EventWebhook } from '@sendgrid/eventwebhook';
import { sign as githubSign } from '@octokit/webhooks-methods';
import '@shopify/shopify-api/adapters/node';
import { shopifyApi, ApiVersion } from '@shopify/shopify-api';
import { Webhook as StandardWebhook } from 'standardwebhooks';
import Stripe from 'stripe';
import { Webhook as SvixWebhook } from 'svix';
import twilio from 'twilio';

const require = createRequire(import.meta.url);
const { Signature: HubspotSignature } = require('@hubspot/api-client');
const { verifySlackRequest } = require('@slack/bolt/dist/receivers/verify-request.js');
const { WebflowClient } = require('webflow-api');

const [seed, count] = process.argv.slice(2).map(Number);

// A small generator with a seed, so that a failure can be had again.
let state = seed >>> 0;
function random() {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
}
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const word = (alphabet, length) => Array.from({ length }, () => pick(alphabet)).join('');
const HEX = [...'0123456789abcdef'];
const ODD = [...'aZ09 "\\/&=+%:;,.<>{}[]\t\r\n\u0000é\u00a0Ωß漢字🎉\u200b'];

const text = () => word(ODD, below(60));
const value = (depth) => {
  switch (below(depth > 0 ? 6 : 4)) {
    case 0: return text();
    case 1: return below(2 ** 31) - 2 ** 30;
    case 2: return null;
    case 3: return random() < 0.5;
    case 4: return Array.from({ length: below(4) }, () => value(depth - 1));
    default: return Object.fromEntries(Array.from({ length: below(4) }, () => [text(), value(depth - 1)]));
  }
};
// JSON as different writers write it.
const json = () => {
  const written = JSON.stringify({ id: word(HEX, 12), data: value(3) }, null, pick([0, 0, 1, 2]));
  return pick([
    written,
    written + '\r\n',
    written.replaceAll('/', '\\/'),
    written.replace(/[^\x00-\x7f]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0')),
  ]);
};
const body = () => pick([json, json, json, text])();

const now = Math.floor(Date.now() / 1000);
const ms = now * 1000;

function line(library, provider, secret, headers, text, more = {}) {
  const url = more.url ?? 'https://gate.example.com/in/hook';
  const body_base64 = Buffer.from(text, 'utf8').toString('base64');
  const { tolerance_s = null } = more;
  console.log(JSON.stringify({
    library, provider, secret, method: 'POST', url, headers: Object.entries(headers), body_base64, now, tolerance_s,
  }));
}

const whsec = () => 'whsec_' + Buffer.from(word(HEX, 32)).toString('base64');
const hmac = (kind, secret, message, encoding) => crypto.createHmac(kind, secret).update(message).digest(encoding);
const JSON_TYPE = { 'content-type': 'application/json' };

const stripe = new Stripe('sk_test_nobody');
const webflow = new WebflowClient({ accessToken: 'nobody' });

const providers = {
  stripe() {
    const [secret, payload] = [whsec(), body()];
    const header = stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp: now });
    line('stripe', 'stripe', secret, { 'stripe-signature': header }, payload, { tolerance_s: 300 });
  },
  async github() {
    const [secret, payload] = [word(HEX, 20), body() || ' '];
    line('@octokit/webhooks-methods', 'github', secret, { 'x-hub-signature-256': await githubSign(secret, payload) }, payload);
  },
  standard_webhooks() {
    const [secret, id, payload] = [whsec(), 'msg_' + word(HEX, 20), body()];
    const signature = new StandardWebhook(secret).sign(id, new Date(ms), payload);
    const headers = { 'webhook-id': id, 'webhook-timestamp': now, 'webhook-signature': signature };
    line('standardwebhooks', 'standard_webhooks', secret, headers, payload, { tolerance_s: 300 });
    line('standardwebhooks', 'make', secret, headers, payload, { tolerance_s: 300 });
    line('standardwebhooks', 'google_forms', secret, headers, payload, { tolerance_s: 300 });
  },
  svix() {
    const [secret, id, payload] = [whsec(), 'msg_' + word(HEX, 20), body()];
    const signature = new SvixWebhook(secret).sign(id, new Date(ms), payload);
    const headers = { 'svix-id': id, 'svix-timestamp': now, 'svix-signature': signature };
    line('svix', 'standard_webhooks', secret, headers, payload, { tolerance_s: 300 });
  },
  hubspot() {
    const [clientSecret, requestBody] = [word(HEX, 36), json()];
    const url = 'https://gate.example.com/in/hook' + pick(['', '?a=b', '?note=x%20y']);
    const options = { clientSecret, requestBody, url, timestamp: ms };
    const v3 = HubspotSignature.getSignature('POST', 'v3', options);
    const headers = { ...JSON_TYPE, 'x-hubspot-signature-v3': v3, 'x-hubspot-request-timestamp': ms };
    line('@hubspot/api-client', 'hubspot', clientSecret, headers, requestBody, { url, tolerance_s: 300 });
    // Workflows never sign as v1, and are not believed if they seem to.
    for (const [version, provider] of [['v1', 'hubspot'], ['v2', 'hubspot_workflow']]) {
      const older = HubspotSignature.getSignature('POST', version, options);
      const headers = { ...JSON_TYPE, 'x-hubspot-signature': older, 'x-hubspot-signature-version': version };
      line('@hubspot/api-client', provider, clientSecret, headers, requestBody, { url });
    }
  },
  twilio() {
    const token = word(HEX, 32);
    const url = 'https://gate.example.com/in/hook' + pick(['', '?a=b&c=d%20e']);
    // The library is given decoded parameters; a lone carriage return would not come through a form alike.
    const params = Object.fromEntries(Array.from({ length: 1 + below(8) }, () => ['P' + word(HEX, 6), text()]));
    const form = new URLSearchParams(params).toString();
    const signature = twilio.getExpectedTwilioSignature(token, url, params);
    const headers = { 'content-type': 'application/x-www-form-urlencoded', 'x-twilio-signature': signature };
    line('twilio', 'twilio', token, headers, form, { url });
    const payload = json();
    const hashed = url + (url.includes('?') ? '&' : '?') + 'bodySHA256=' + twilio.getExpectedBodyHash(payload);
    const ofJson = { ...JSON_TYPE, 'x-twilio-signature': twilio.getExpectedTwilioSignature(token, hashed, {}) };
    assert(twilio.validateRequestWithBody(token, ofJson['x-twilio-signature'], hashed, payload));
    line('twilio', 'twilio', token, ofJson, payload, { url: hashed });
  },
  slack() {
    const [secret, payload] = [word(HEX, 32), body()];
    const signature = 'v0=' + hmac('sha256', secret, `v0:${now}:${payload}`, 'hex');
    const headers = { 'x-slack-signature': signature, 'x-slack-request-timestamp': now };
    verifySlackRequest({ signingSecret: secret, body: payload, headers });
    line('@slack/bolt', 'slack', secret, headers, payload, { tolerance_s: 300 });
  },
  sendgrid() {
    const pair = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const key = pair.publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
    const payload = body();
    const signature = crypto.sign('sha256', Buffer.from(now + payload), pair.privateKey).toString('base64');
    const library = new EventWebhook();
    assert(library.verifySignature(library.convertPublicKeyToECDSA(key), payload, signature, String(now)));
    const headers = {
      ...JSON_TYPE,
      'x-twilio-email-event-webhook-signature': signature,
      'x-twilio-email-event-webhook-timestamp': now,
    };
    line('@sendgrid/eventwebhook', 'sendgrid', key, headers, payload, { tolerance_s: 300 });
  },
  async webflow() {
    const [secret, payload] = [word(HEX, 40), json()];
    const signature = hmac('sha256', secret, `${ms}:${payload}`, 'hex');
    const headers = { ...JSON_TYPE, 'x-webflow-timestamp': ms, 'x-webflow-signature': signature };
    assert(await webflow.webhooks.verifySignature({ headers, body: payload, secret }));
    line('webflow-api', 'webflow', secret, headers, payload, { tolerance_s: 300 });
  },
  async shopify() {
    const [secret, payload] = [word(HEX, 32), json()];
    const shopify = shopifyApi({
      apiKey: 'nobody', apiSecretKey: secret, apiVersion: ApiVersion.January26 ?? Object.values(ApiVersion).at(-1),
      hostName: 'gate.example.com', isEmbeddedApp: false, logger: { log: () => {} },
    });
    const headers = {
      ...JSON_TYPE,
      'x-shopify-hmac-sha256': hmac('sha256', secret, payload, 'base64'),
      'x-shopify-topic': 'orders/create',
      'x-shopify-shop-domain': 'shop.myshopify.com',
      'x-shopify-api-version': '2026-01',
      'x-shopify-webhook-id': word(HEX, 20),
      'x-shopify-event-id': word(HEX, 20),
    };
    const rawRequest = { headers, method: 'POST', url: '/in/hook' };
    const verdict = await shopify.webhooks.validate({ rawBody: payload, rawRequest });
    assert(verdict.valid, JSON.stringify(verdict));
    line('@shopify/shopify-api', 'shopify', secret, headers, payload);
  },
};

for (let i = 0; i < count; i += 1) {
  for (const sign of Object.values(providers)) {
    await sign();
  }
}
