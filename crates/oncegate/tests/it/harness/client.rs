//! Talks to the gate as its callers do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::sign::Signed;

/// One caller, with connections and a token of its own.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    /// The gate's nodes, asked in turn.
    bases: Arc<[String]>,
    turn: Arc<AtomicUsize>,
    token: String,
}

/// What the gate answered.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

impl Said {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body of a 200.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    /// A problem document (RFC 9457) with this status and code.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["type"], format!("urn:oncegate:error:{code}"));
        for member in ["title", "detail"] {
            assert!(self.body[member].as_str().is_some_and(|t| t.len() > 3), "{member}: {}", self.body);
        }
        self.body
    }
}

/// The answer to a claim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claimed {
    pub(crate) decision: String,
    pub(crate) reason: String,
    pub(crate) claim_id: String,
    pub(crate) idempotency_key: String,
    pub(crate) processing_state: String,
    pub(crate) processing_started_at: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) token: Option<String>,
    pub(crate) retry_after_s: Option<u64>,
    pub(crate) result: Value,
    pub(crate) note: Option<String>,
    pub(crate) done_url: Option<String>,
    pub(crate) error_url: Option<String>,
    pub(crate) heartbeat_url: Option<String>,
}

impl Claimed {
    /// `run first`, `stop in_progress`, …
    pub(crate) fn words(&self) -> String {
        format!("{} {}", self.decision, self.reason)
    }

    #[track_caller]
    pub(crate) fn is(&self, words: &str) -> &Self {
        assert_eq!(self.words(), words, "{self:?}");
        assert_eq!(self.token.is_some(), self.decision == "run", "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn token(&self) -> &str {
        self.token.as_deref().unwrap_or_else(|| panic!("no token: {self:?}"))
    }
}

impl Client {
    pub(crate) fn new(base: &str, token: &str) -> Self {
        Self::of([base.to_owned()].into(), token)
    }

    /// A caller behind a load balancer: each request goes to the next node.
    pub(crate) fn of(bases: Vec<String>, token: &str) -> Self {
        // The tests speak plain HTTP; this only keeps reqwest from looking for certificates.
        let tls =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
        let http = reqwest::Client::builder()
            .no_proxy()
            .retry(reqwest::retry::never())
            .tls_backend_preconfigured(tls)
            .build()
            .unwrap();
        Self { http, bases: bases.into(), turn: Arc::default(), token: token.to_owned() }
    }

    /// Another caller: same token, other connections, and another node first.
    pub(crate) fn another(&self) -> Self {
        let other = Self::of(self.bases.to_vec(), &self.token);
        other.turn.store(self.turn.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        other
    }

    /// The first node.
    pub(crate) fn base(&self) -> &str {
        &self.bases[0]
    }

    /// The same caller, who always asks one node: what is only in a process's memory is not in the others'.
    pub(crate) fn of_first_node(&self) -> Self {
        Self::of(vec![self.bases[0].clone()], &self.token)
    }

    pub(crate) fn bases(&self) -> &[String] {
        &self.bases
    }

    /// A request of any kind, without a token.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        if path.starts_with("http") {
            return self.http.request(method, path);
        }
        let base = &self.bases[self.turn.fetch_add(1, Ordering::Relaxed) % self.bases.len()];
        self.http.request(method, format!("{base}{path}"))
    }

    /// A request of any kind, with the token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.token)
    }

    /// A GET of a path, with the token.
    pub(crate) async fn get(&self, path: &str) -> Said {
        send(self.request(Method::GET, path)).await
    }

    /// A POST of JSON, with the token.
    pub(crate) async fn post(&self, path: &str, json: &Value) -> Said {
        send(json_body(self.request(Method::POST, path), json)).await
    }

    pub(crate) async fn claim(&self, automation: &str, key: &str) -> Claimed {
        self.claim_with(&json!({ "automation": automation, "idempotency_key": key })).await
    }

    pub(crate) async fn claim_with(&self, json: &Value) -> Claimed {
        serde_json::from_value(self.post("/v1/claims", json).await.ok()).unwrap()
    }

    pub(crate) async fn done(&self, claimed: &Claimed) -> Said {
        self.done_with(claimed, &json!({})).await
    }

    pub(crate) async fn done_with(&self, claimed: &Claimed, json: &Value) -> Said {
        self.finish("done", claimed, json).await
    }

    pub(crate) async fn error(&self, claimed: &Claimed, json: &Value) -> Said {
        self.finish("error", claimed, json).await
    }

    pub(crate) async fn heartbeat(&self, claimed: &Claimed) -> Said {
        self.finish("heartbeat", claimed, &json!({})).await
    }

    async fn finish(&self, verb: &str, claimed: &Claimed, json: &Value) -> Said {
        let mut json = json.clone();
        json["token"] = claimed.token().into();
        let path = format!("/v1/claims/{}/{verb}", claimed.claim_id);
        send(json_body(self.bare(Method::POST, &path), &json)).await
    }

    /// A bodiless POST, as the last step of a Zap sends it.
    pub(crate) async fn press(&self, url: Option<&str>) -> Said {
        send(self.bare(Method::POST, url.unwrap())).await
    }

    pub(crate) async fn show(&self, id: &str) -> Value {
        self.get(&format!("/v1/claims/{id}")).await.ok()
    }

    /// The claim of a key, with everything that is shown of one.
    pub(crate) async fn find(&self, automation: &str, key: &str) -> Option<Value> {
        let query = query(&[("automation", automation), ("idempotency_key", key)]);
        let id = self.list(&query).await.first()?["claim_id"].as_str()?.to_owned();
        Some(self.show(&id).await)
    }

    /// A page of claims.
    pub(crate) async fn list(&self, query: &str) -> Vec<Value> {
        let answer = self.get(&format!("/v1/claims?{query}")).await.ok();
        answer["claims"].as_array().unwrap().clone()
    }

    /// The keys that stand in one list of the inbox.
    pub(crate) async fn keys_in(&self, inbox: &str) -> Vec<String> {
        let rows = self.list(&format!("inbox={inbox}")).await;
        rows.iter().map(|row| row["idempotency_key"].as_str().unwrap().to_owned()).collect()
    }

    /// How many stand in each list.
    pub(crate) async fn inbox(&self) -> BTreeMap<String, u64> {
        serde_json::from_value(self.get("/v1/inbox").await.ok()).unwrap()
    }

    pub(crate) async fn rejected(&self) -> Vec<Value> {
        self.get("/v1/rejected").await.ok()["rejected"].as_array().unwrap().clone()
    }

    /// What people did, newest first; not that the first token was made at the start.
    pub(crate) async fn audit(&self) -> Vec<Value> {
        let mut rows = self.get("/v1/audit").await.ok()["audit"].as_array().unwrap().clone();
        rows.retain(|row| row["actor"] != "start");
        rows
    }

    /// The newest act that was audited.
    pub(crate) async fn last_act(&self) -> Value {
        self.get("/v1/audit?limit=1").await.ok()["audit"][0].clone()
    }

    /// A person's act on a claim.
    pub(crate) async fn act(&self, verb: &str, id: &str, json: &Value) -> Said {
        self.post(&format!("/v1/claims/{id}/{verb}"), json).await
    }

    pub(crate) async fn reset(&self, id: &str) -> Said {
        self.act("reset", id, &json!({ "reason": "looked at it" })).await
    }

    pub(crate) async fn run_now(&self, id: &str) -> Said {
        self.act("run-now", id, &json!({ "reason": "must go out today" })).await
    }

    pub(crate) async fn pause(&self, automation: &str) -> Said {
        self.post(&format!("/v1/automations/{automation}/pause"), &json!({ "reason": "maintenance" })).await
    }

    pub(crate) async fn resume(&self, automation: &str) -> Said {
        self.post(&format!("/v1/automations/{automation}/resume"), &json!({ "reason": "over" })).await
    }

    pub(crate) async fn deliver(&self, source: &str, signed: &Signed) -> Said {
        let mut request = self.bare(Method::POST, &format!("/in/{source}")).body(signed.body.clone());
        for (name, value) in &signed.headers {
            request = request.header(name, value);
        }
        send(request).await
    }

    /// Delivers an order of which the source `orders` makes the key.
    pub(crate) async fn order(&self, json: &Value) -> Said {
        self.deliver("orders", &Signed::order(json)).await
    }

    pub(crate) async fn release(&self, id: &Value) -> Said {
        self.post(&format!("/v1/rejected/{id}/release"), &json!({ "reason": "mended" })).await
    }
}

/// Sends a request and reads the answer, whatever it is.
pub(crate) async fn send(request: RequestBuilder) -> Said {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Said { status, headers, body }
}

pub(crate) fn json_body(request: RequestBuilder, json: &Value) -> RequestBuilder {
    request.header("content-type", "application/json").body(json.to_string())
}

pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}
