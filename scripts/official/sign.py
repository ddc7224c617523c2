"""The same as sign.mjs with the providers' libraries for Python.

python sign.py SEED HOW_MANY
"""

import base64
import datetime
import hashlib
import hmac
import json
import random
import sys
import time
import urllib.parse

import stripe
from sendgrid.helpers.eventwebhook import EventWebhook
from slack_sdk.signature import SignatureVerifier
from standardwebhooks.webhooks import Webhook
from twilio.request_validator import RequestValidator

seed, count = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
now = int(time.time())

ODD = list('aZ09 "\\/&=+%:;,.<>{}[]\t\né\u00a0Ωß漢字🎉\u200b')
HEX = list("0123456789abcdef")


def word(alphabet, length):
    return "".join(rng.choice(alphabet) for _ in range(length))


def text():
    return word(ODD, rng.randrange(60))


def body():
    document = {"id": word(HEX, 12), "data": [text(), rng.randrange(-(2**70), 2**70), None, {text(): rng.random()}]}
    written = json.dumps(document, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, None, 2]))
    return rng.choice([written, written + "\r\n", text()])


def line(library, provider, secret, headers, payload, url="https://gate.example.com/in/hook", tolerance_s=None):
    print(
        json.dumps(
            {
                "library": library,
                "provider": provider,
                "secret": secret,
                "method": "POST",
                "url": url,
                "headers": [[name, str(value)] for name, value in headers.items()],
                "body_base64": base64.b64encode(payload.encode()).decode(),
                "now": now,
                "tolerance_s": tolerance_s,
            }
        )
    )


def sign_stripe():
    secret, payload = "whsec_" + word(HEX, 32), body()
    signature = hmac.new(secret.encode(), f"{now}.{payload}".encode(), hashlib.sha256).hexdigest()
    header = f"t={now},v1={signature}"
    assert stripe.WebhookSignature.verify_header(payload, header, secret, 300)
    line("stripe (Python)", "stripe", secret, {"stripe-signature": header}, payload, tolerance_s=300)


def sign_standard_webhooks():
    secret = "whsec_" + base64.b64encode(word(HEX, 24).encode()).decode()
    name, payload = "msg_" + word(HEX, 20), body()
    when = datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
    signature = Webhook(secret).sign(name, when, payload)
    headers = {"webhook-id": name, "webhook-timestamp": now, "webhook-signature": signature}
    line("standardwebhooks (Python)", "standard_webhooks", secret, headers, payload, tolerance_s=300)


def sign_slack():
    secret, payload = word(HEX, 32), body()
    signature = SignatureVerifier(secret).generate_signature(timestamp=str(now), body=payload)
    headers = {"x-slack-signature": signature, "x-slack-request-timestamp": now}
    line("slack_sdk (Python)", "slack", secret, headers, payload, tolerance_s=300)


class Parameters(dict):
    """Names with several values, as web frameworks hand them over."""

    def getlist(self, name):
        value = self[name]
        return value if isinstance(value, list) else [value]


def sign_twilio():
    token = word(HEX, 32)
    url = "https://gate.example.com" + rng.choice(["", ":443"]) + "/in/hook" + rng.choice(["", "?a=b"])
    params = Parameters({"P" + word(HEX, 6): text() for _ in range(1 + rng.randrange(8))})
    # A field with several values, one of them twice.
    params["many"] = [text(), "b", "a", "b"]
    pairs = [(name, one) for name in params for one in params.getlist(name)]
    signature = RequestValidator(token).compute_signature(url, params)
    headers = {"content-type": "application/x-www-form-urlencoded", "x-twilio-signature": signature}
    # The gate knows its address without the port, Twilio may sign it with one.
    line("twilio (Python)", "twilio", token, headers, urllib.parse.urlencode(pairs), url=url.replace(":443", ""))


def sign_sendgrid():
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private, payload = ec.generate_private_key(ec.SECP256R1()), body()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    key = base64.b64encode(private.public_key().public_bytes(serialization.Encoding.DER, form)).decode()
    signature = base64.b64encode(private.sign(f"{now}{payload}".encode(), ec.ECDSA(hashes.SHA256()))).decode()
    library = EventWebhook()
    assert library.verify_signature(payload, signature, str(now), library.convert_public_key_to_ecdsa(key))
    headers = {
        "x-twilio-email-event-webhook-signature": signature,
        "x-twilio-email-event-webhook-timestamp": now,
    }
    line("sendgrid (Python)", "sendgrid", key, headers, payload, tolerance_s=300)


for _ in range(count):
    for sign in (sign_stripe, sign_standard_webhooks, sign_slack, sign_twilio, sign_sendgrid):
        sign()
