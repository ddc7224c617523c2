//! Along the whole table of routes, with every kind of token: who is let in, who is not. A route that is added needs
//! a row here.

use std::collections::BTreeSet;

use super::*;

/// What a call of a route with the subjects of this test is answered, by who calls: `r` let in (whatever it then says),
/// `-` 403, `?` 404 as if there were no such thing.
const WHO: [&str; 9] = [
    "caller",
    "viewer",
    "operator",
    "admin",
    "bound caller",
    "bound viewer",
    "bound operator",
    "bound admin",
    "acme admin",
];

/// Method, path, what is asked of the subject (of the automation `other`, in the workspace `default`), and one letter
/// per row of [`WHO`]. Those who are bound are bound to `shared`; `acme` has come to have an `other` of its own.
#[rustfmt::skip]
const TABLE: [(&str, &str, &str); 52] = [
    ("GET",  "/metrics",                          "-rrr ---- -"),
    ("POST", "/v1/claims",                        "r-rr ---- r"),
    ("GET",  "/v1/claims",                        "-rrr -rrr r"),
    ("GET",  "/v1/claims/{id}",                   "-rrr -??? ?"),
    ("POST", "/v1/claims/batch",                  "r-rr r-rr r"),
    ("GET",  "/v1/claims/export",                 "-rrr -rrr r"),
    ("GET",  "/v1/claims/groups",                 "-rrr -rrr r"),
    ("GET",  "/v1/claims/{id}/history",           "-rrr -??? ?"),
    ("GET",  "/v1/bulk",                          "-rrr ---- r"),
    ("GET",  "/v1/bulk/{id}",                     "-??? -??? ?"),
    ("GET",  "/v1/bulk/{id}/claims",              "-??? -??? ?"),
    ("POST", "/v1/bulk",                          "--rr --rr r"),
    ("POST", "/v1/bulk/{id}/undo",                "--?? --?? ?"),
    ("GET",  "/v1/automations",                   "-rrr -rrr r"),
    ("POST", "/v1/claims/{id}/tag",               "--rr --?? ?"),
    ("POST", "/v1/automations/{name}/rename",     "--rr ---- r"),
    ("GET",  "/v1/inbox",                         "-rrr -rrr r"),
    ("GET",  "/v1/rejected",                      "-rrr -rrr r"),
    ("GET",  "/v1/rejected/{id}",                 "-rrr -??? ?"),
    ("GET",  "/v1/audit",                         "-rrr ---- r"),
    ("POST", "/v1/claims/{id}/reset",             "--rr --?? ?"),
    ("POST", "/v1/claims/{id}/run-now",           "--rr --?? ?"),
    ("POST", "/v1/claims/{id}/mark-error",        "--rr --?? ?"),
    ("POST", "/v1/claims/{id}/mark-done",         "--rr --?? ?"),
    ("POST", "/v1/claims/{id}/dismiss",           "--rr --?? ?"),
    ("POST", "/v1/claims/{id}/approve",           "--rr --?? ?"),
    ("POST", "/v1/claims/{id}/decline",           "--rr --?? ?"),
    ("POST", "/v1/automations/{name}/pause",      "--rr ---- r"),
    ("POST", "/v1/automations/{name}/resume",     "--rr ---- r"),
    ("POST", "/v1/rejected/{id}/release",         "--rr --?? ?"),
    ("GET",  "/v1/notices",                       "-rrr -rrr r"),
    ("POST", "/v1/notices/{id}/dismiss",          "--?? --?? ?"),
    ("GET",  "/v1/recovery",                      "-rrr -rrr r"),
    ("POST", "/v1/recovery/end",                  "---r ---- -"),
    ("GET",  "/v1/nodes",                         "---r ---- -"),
    ("GET",  "/v1/backup",                        "---r ---- -"),
    ("POST", "/v1/backup",                        "---r ---- -"),
    ("GET",  "/v1/sources",                       "-rrr -rrr r"),
    ("GET",  "/v1/sources/{source}",              "-??? -??? ?"),
    ("GET",  "/v1/tokens/self",                   "rrrr rrrr r"),
    ("GET",  "/v1/tokens",                        "---r ---r r"),
    ("POST", "/v1/tokens",                        "---r ---- r"),
    ("POST", "/v1/tokens/{id}/revoke",            "---r ---? ?"),
    ("POST", "/v1/forget",                        "---r ---- r"),
    ("POST", "/v1/person",                        "---r ---- r"),
    ("GET",  "/v1/workspaces",                    "---r ---- -"),
    ("POST", "/v1/workspaces",                    "---r ---- -"),
    ("GET",  "/v1/workspaces/{name}/export",      "---r ---- ?"),
    ("POST", "/v1/workspaces/{name}/delete",      "---r ---- -"),
    ("POST", "/v1/claims/{id}/done",              "---- ---- -"),
    ("POST", "/v1/claims/{id}/error",             "---- ---- -"),
    ("POST", "/v1/claims/{id}/heartbeat",         "---- ---- -"),
];

/// No bearer token is looked at here; other tests knock.
const OPEN: [(&str, &str); 5] = [
    ("POST", "/in/{*source}"),
    ("GET", "/in/{*source}"),
    ("GET", "/openapi.json"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
];

#[test]
fn every_route_has_a_row() {
    let routes: BTreeSet<(&str, &str)> = oncegate::routes().into_iter().map(|(m, p, _)| (m, p)).collect();
    let rows: BTreeSet<(&str, &str)> = TABLE.iter().map(|(m, p, _)| (*m, *p)).chain(OPEN).collect();
    assert_eq!(routes, rows);
}

/// Who is in [`WHO`], each with a token of its own.
async fn everybody(gate: &Gate) -> Vec<Client> {
    let mut all = vec![];
    for who in WHO {
        let mut fields = json!({ "name": who, "role": who.rsplit(' ').next().unwrap() });
        if who.starts_with("bound") {
            fields["automations"] = json!(["shared"]);
        }
        if who.starts_with("acme") {
            fields["workspace"] = json!("acme");
        }
        all.push(with_token(gate, fields).await);
    }
    all
}

#[tokio::test]
async fn each_role_is_let_in_where_it_may_be_and_nowhere_else() {
    let yaml = TWO
        .replace("  other: {}", "  other: { steps: [{ name: s, http: { url: 'https://crm.example/' } }] }");
    let source = "sources: { forms: { provider: hmac, automation: other, secret: env:ORDERS, \
                  hmac: { header: X-Signature }, key: [order] } }\n";
    let gate = Setup::alone(&format!("{source}{yaml}")).start().await;
    gate.api.deliver("forms", &crate::harness::Signed::order(&json!({ "no": "identity" }))).await.ok();
    let delivery = gate.api.rejected().await[0]["id"].clone();
    let everybody = everybody(&gate).await;
    let mut wrong = vec![];
    for (n, (method, path, letters)) in TABLE.into_iter().enumerate() {
        let letters: Vec<char> = letters.chars().filter(|c| *c != ' ').collect();
        assert_eq!(letters.len(), WHO.len(), "{path}");
        // Tokens that are not the claim's are failures; too many at a time are answered 429.
        gate.advance(crate::harness::mins(1)).await;
        for ((who, client), expected) in WHO.iter().zip(&everybody).zip(letters) {
            // A subject of its own for each call, so that no answer depends on what was done before.
            let key = format!("{n} {who}");
            let claim = gate.api.claim("other", &key).await.claim_id;
            let id = match path {
                _ if path.starts_with("/v1/rejected") => delivery.to_string(),
                _ if path.starts_with("/v1/tokens") => {
                    let spare = json!({ "name": "spare", "role": "viewer" });
                    gate.api.post("/v1/tokens", &spare).await.ok()["token_id"].to_string()
                }
                _ => claim,
            };
            let name = if path.contains("automations") { "other" } else { "default" };
            let url = path.replace("{id}", &id).replace("{name}", name);
            let fields = match path {
                "/v1/claims" => json!({ "automation": "other", "idempotency_key": format!("new {key}") }),
                "/v1/tokens" => json!({ "name": "x", "role": "viewer" }),
                "/v1/workspaces" => json!({ "name": "birch" }),
                "/v1/forget" | "/v1/person" => json!({ "match": { "email": "a@b.example" }, "reason": "r" }),
                _ if path.ends_with("/rename") => json!({ "reason": "r", "to": "other" }),
                _ if path.ends_with("/mark-error") || path.ends_with("/tag") => {
                    json!({ "reason": "r", "tag": "t" })
                }
                _ if path.ends_with("/delete") => json!({ "reason": "r", "confirm": "default" }),
                _ if path.ends_with("/revoke") || method == "POST" => json!({ "reason": "r" }),
                _ => json!({}),
            };
            let said = match method {
                "GET" => client.get(&url).await,
                _ => client.post(&url, &fields).await,
            };
            let letter = match said.status {
                403 => '-',
                404 => '?',
                401 | 429 | 500..=599 => '!',
                _ => 'r',
            };
            if letter != expected {
                wrong.push(format!(
                    "{method} {path} as {who}: {expected} expected, {} {}",
                    said.status, said.body
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn without_a_token_nothing_is_let_in_that_needs_one() {
    let gate = two().await;
    for (method, path, needs) in oncegate::routes() {
        if ["nothing", "signature", "claim token"].contains(&needs) {
            continue;
        }
        let url = path.replace("{id}", "1").replace("{name}", "default");
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        send(gate.api.bare(method.clone(), &url)).await.problem(401, "missing_credentials");
        let wrong = gate.api.bare(method, &url).bearer_auth("oga_wrong");
        let status = send(wrong).await.status;
        assert!([401, 429].contains(&status), "{path}: {status}");
    }
}

#[tokio::test]
async fn whoever_is_bound_sees_of_lists_and_counts_only_its_own() {
    let gate = two().await;
    let bound =
        with_token(&gate, json!({ "name": "b", "role": "operator", "automations": ["shared"] })).await;
    for automation in ["shared", "other", "other"] {
        let key = gate.api.list("").await.len().to_string();
        let held = gate.api.claim(automation, &key).await;
        gate.api.press(held.error_url.as_deref()).await.ok();
    }
    assert_eq!((gate.api.inbox().await["error"], bound.inbox().await["error"]), (3, 1));
    let seen = bound.list("").await;
    assert!(seen.len() == 1 && seen[0]["automation"] == "shared", "{seen:?}");
    assert!(bound.list("automation=other").await.is_empty());
    assert!(bound.find("other", "1").await.is_none());
    bound.claim("shared", "mine").await.is("run first");
    bound.pause("shared").await.ok();
    bound.pause("other").await.problem(403, "forbidden");
}
