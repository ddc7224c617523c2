#!/usr/bin/env bash
# Compares the API's description (/openapi.json) with a running server: schemathesis makes calls from it, right and
# wrong ones, and looks at every answer. Another argument goes to schemathesis, e.g. `scripts/api.sh --seed 7`.
set -euo pipefail
cd "$(dirname "$0")/.."

stop() {
    printf 'scripts/api.sh: %s\n' "$*" >&2
    exit 1
}

tools=target/schemathesis
if [ ! -x "$tools/bin/schemathesis" ] || ! cmp -s scripts/requirements.txt "$tools/requirements.txt"; then
    if ! python3 -c 'import ensurepip, venv' 2> /dev/null; then
        if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
            stop 'Python 3 with venv is needed; install it, e.g. with: sudo apt-get install python3-venv'
        fi
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv > /dev/null
    fi
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check -r scripts/requirements.txt
    cp scripts/requirements.txt "$tools/requirements.txt"
fi

cargo build --quiet -p oncegate
work=target/api-check
rm -rf "$work"
mkdir -p "$work"
server=
trap 'if [ -n "$server" ]; then kill "$server" 2> /dev/null || true; fi; rm -rf "$work"' EXIT
export ONCEGATE_ADMIN_TOKEN=api-$(head -c 18 /dev/urandom | base64 | tr '+/' 'xy')
export ORDERS_SECRET=orders-secret
cat > "$work/oncegate.yaml" << 'END'
sources:
  orders: { provider: hmac, automation: order, secret: env:ORDERS_SECRET, hmac: { header: X-Signature }, key: [id] }
automations:
  order:
    steps: [{ name: send, http: { url: "http://127.0.0.1:9/orders" } }]
outgoing: { allow_private: ["127.0.0.1:9"] }
END
target/debug/oncegate serve --config "$work/oncegate.yaml" --ephemeral --data "$work/data" --listen 127.0.0.1:0 --log warn > "$work/said" &
server=$!
for _ in $(seq 200); do
    url=$(sed -n 's/^oncegate is listening on //p' "$work/said")
    [ -n "$url" ] && break
    kill -0 "$server" 2> /dev/null || stop 'the server did not start'
    sleep 0.05
done
[ -n "$url" ] || stop 'the server does not answer'

# A few claims in several states, so that there is something to list and to act on.
claim() { curl -sS -H "Authorization: Bearer $ONCEGATE_ADMIN_TOKEN" "$url/v1/claims" "$@"; }
for key in 1 2 3; do claim -d automation=story -d "idempotency_key=s$key" -d record="crm:$key" > "$work/$key"; done
curl -sS -X POST "$(sed 's/.*"done_url":"\([^"]*\)".*/\1/' "$work/1")" > /dev/null
curl -sS "$url/in/orders" -H 'X-Signature: 00' -d '{"id": 1}' > /dev/null
curl -sS -X POST "$(sed 's/.*"error_url":"\([^"]*\)".*/\1/' "$work/2")" -d note=no > /dev/null

# Not asked: whether everything that differs from the description is refused. The API is lenient on purpose: numbers as
# text, blanks as absent. Nor whether everything that fits is taken: there is no such claim, most of the time.
"$tools/bin/schemathesis" --config-file scripts/schemathesis.toml run "$url/openapi.json" \
    -H "Authorization: Bearer $ONCEGATE_ADMIN_TOKEN" --workers 1 --max-examples 40 \
    --exclude-checks negative_data_rejection,positive_data_acceptance "$@"
kill -0 "$server" 2> /dev/null || stop 'the server is gone'
curl -sSf "$url/healthz" > /dev/null
