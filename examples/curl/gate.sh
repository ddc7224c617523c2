#!/bin/sh
# Runs a command once for each submission: asks the gate first, tells it afterwards how it went. For machines that have
# curl and not oncegate; where there is oncegate, `oncegate claim` does more (docs/cli.md).
#
#   GATE_URL=https://YOUR-HOST GATE_TOKEN=oga_… gate.sh 'welcome mail' contact-form 8812 -- ./send-welcome.sh ann@example.com
#
# Exit status: that of the command; 3: stopped, nothing was run; 6: the gate was not reached or refused (nothing was run), or
# the command is done and the gate could not be told so.
set -u

say() { printf 'gate.sh: %s\n' "$*" >&2; }

if [ $# -lt 5 ] || [ "$4" != -- ]; then
    say 'usage: gate.sh AUTOMATION FORM SUBMISSION -- COMMAND [ARGUMENT…]'
    exit 64
fi
if [ -z "${GATE_URL:-}" ] || [ -z "${GATE_TOKEN:-}" ]; then
    say 'GATE_URL and GATE_TOKEN must be set'
    exit 64
fi
automation=$1 form=$2 submission=$3
shift 4

work=$(mktemp -d) || exit 6
trap 'rm -rf "$work"' EXIT
trap 'exit 6' HUP INT TERM

# Secrets go by files and pipes: everybody on the machine can read the arguments of a program.
(umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$GATE_TOKEN" > "$work/secret")

# Posts, prints the status (000: nobody answered, or not to the end), and leaves the answer in a file. Tries again where
# that may help.
post() {
    url=$1
    shift
    for pause in ${GATE_PAUSES:-1 3 9} 0; do
        : > "$work/answer"
        status=$(printf 'url = "%s"\n' "$url" \
            | curl --config - --silent --max-time 40 --output "$work/answer" --write-out '%{http_code}' "$@") || status=000
        case $status in 000 | 408 | 429 | 5??) sleep "$pause" ;; *) break ;; esac
    done
    printf '%s' "$status"
}

# A text member of the answer, which is one line of JSON.
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$work/answer"; }

# One for all tries of this call, and of nobody else: if an answer gets lost, it is given again.
random=$(od -A n -N 8 -t x1 /dev/urandom | tr -d ' \n')
if [ ${#random} -ne 16 ]; then
    say 'there is no /dev/urandom; nothing was run'
    exit 6
fi
run_id="$(uname -n)-$random"
# With `stop_status` the status alone says whether to run.
status=$(post "$GATE_URL/v1/claims" --config "$work/secret" --data-urlencode "automation=$automation" \
    --data-urlencode "key_fields.form=$form" --data-urlencode "key_fields.submission=$submission" \
    --data-urlencode "run_id=$run_id" --data wait=20 --data stop_status=409)
case $status in
    200 | 409) ;;
    000)
        say "the gate at $GATE_URL does not answer; nothing was run"
        exit 6
        ;;
    *)
        say "the gate refused ($status); nothing was run: $(head -c 600 "$work/answer")"
        exit 6
        ;;
esac
done_url=$(member done_url)
error_url=$(member error_url)
case "$status $(member decision)" in
    '409 stop')
        say "stop: $(member reason)"
        exit 3
        ;;
    '200 run') ;;
    *) done_url='' ;;
esac
if [ -z "$done_url" ] || [ -z "$error_url" ]; then
    say "this is not the answer of a gate ($status); nothing was run, check GATE_URL: $(head -c 300 "$work/answer")"
    exit 6
fi

# A signal ends the command, not this: somebody must tell the gate how it went.
trap : HUP INT TERM
"$@" 2> "$work/said"
code=$?
cat "$work/said" >&2
if [ "$code" -ne 0 ]; then
    note="${GATE_STEP:-$(basename "$1")}: exit status $code: $(tail -n 1 "$work/said" | head -c 500)"
    status=$(post "$error_url" --data-urlencode "note=$note")
    [ "$status" = 200 ] || say "the gate could not be told that it failed ($status); it will be listed as stuck"
    exit "$code"
fi
status=$(post "$done_url" --request POST)
if [ "$status" != 200 ]; then
    say "it is done, and the gate could not be told ($status). Tell it, or it will be listed as stuck:"
    say "  curl --request POST '$done_url'"
    exit 6
fi
