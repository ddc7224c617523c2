//! Errors as RFC 9457 problem documents with stable codes: what happened, where, and how to mend it.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use oncegate_core::json::told;
use oncegate_store::StoreError;
use serde_json::{Map, Value, json};

use super::watch::request_id;

/// One refusal. The code is a promise; the sentence may get better.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    extra: Map<String, Value>,
}

macro_rules! codes {
    ($($name:ident = $status:ident, $title:literal;)+) => {
        impl Problem {
            /// Every code there is, for the description of the API.
            pub(crate) const CODES: &[&str] = &[$(stringify!($name)),+];

            $(
                #[doc = concat!($title, ".")]
                pub(crate) fn $name(detail: impl std::fmt::Display) -> Self {
                    Self {
                        status: StatusCode::$status,
                        code: stringify!($name),
                        title: $title,
                        detail: detail.to_string(),
                        extra: Map::new(),
                    }
                }
            )+
        }
    };
}

codes! {
    unreadable_body = BAD_REQUEST, "The body cannot be read";
    missing_credentials = UNAUTHORIZED, "A token is needed";
    invalid_credentials = UNAUTHORIZED, "The token is not known";
    invalid_signature = UNAUTHORIZED, "The signature does not verify";
    too_many_failures = TOO_MANY_REQUESTS, "Too many failed authentications";
    invalid_idempotency_key = BAD_REQUEST, "The Idempotency-Key cannot be read";
    forbidden = FORBIDDEN, "The token may not do this";
    invalid_token = FORBIDDEN, "This token does not belong to this claim";
    handshake_refused = FORBIDDEN, "The test of the connection fails";
    not_found = NOT_FOUND, "There is no such thing";
    unknown_source = NOT_FOUND, "There is no such source";
    method_not_allowed = METHOD_NOT_ALLOWED, "This address takes another method";
    body_timeout = REQUEST_TIMEOUT, "The body did not arrive in time";
    already_done = CONFLICT, "The effect is done already";
    not_processing = CONFLICT, "The attempt has ended";
    lost_claim = CONFLICT, "The claim is held by somebody else by now";
    live_holder = CONFLICT, "Somebody is working on this claim";
    needs_verified = CONFLICT, "The effect is done";
    needs_confirm_sent = CONFLICT, "Steps were sent already";
    nothing_to_do = CONFLICT, "The claim is so already";
    already_running = CONFLICT, "It is running or waiting to run already";
    payload_removed = CONFLICT, "The payload was removed";
    no_runner = CONFLICT, "oncegate does not hold this work";
    last_admin = CONFLICT, "Nobody could administer this server any more";
    still_live = CONFLICT, "Something of it is live";
    still_declared = CONFLICT, "The configuration declares it";
    limit_reached = CONFLICT, "There are too many of them";
    count_changed = CONFLICT, "Another number of claims is meant by now";
    not_undone = CONFLICT, "It cannot be undone";
    not_renamed = CONFLICT, "The automation cannot be called so";
    answer_not_kept = CONFLICT, "It was done before, and the answer was a secret";
    body_too_large = PAYLOAD_TOO_LARGE, "The body is too large";
    unsupported_content_type = UNSUPPORTED_MEDIA_TYPE, "The body's type is not understood";
    invalid_field = UNPROCESSABLE_ENTITY, "A field is missing or wrong";
    idempotency_key_reused = UNPROCESSABLE_ENTITY, "The Idempotency-Key was used for another call";
    store_unavailable = SERVICE_UNAVAILABLE, "The store cannot take this now";
    not_backed_up = CONFLICT, "oncegate makes no backups of this store";
    backup_failed = SERVICE_UNAVAILABLE, "The backup could not be made";
    overloaded = SERVICE_UNAVAILABLE, "There is no room for this body now";
    internal = INTERNAL_SERVER_ERROR, "A fault in oncegate";
}

impl Problem {
    /// A field of the request that is missing or wrong.
    pub(crate) fn field(name: &str, rule: impl std::fmt::Display) -> Self {
        // It may be as long, and hold what, the caller pleased.
        let name = told(name);
        Self::invalid_field(format!("{name}: {rule}")).with("field", name)
    }

    /// Whether a claim's token was wrong.
    pub(crate) fn is_invalid_token(&self) -> bool {
        self.code == "invalid_token"
    }

    /// The same problem with one more member.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full(_)
            | StoreError::Busy
            | StoreError::Closed
            | StoreError::Database(_)
            | StoreError::Away(_)
            | StoreError::Unsure(_)
            | StoreError::Refused(_) => {
                tracing::error!(%error, request = request_id(), "the store refused a call");
                Self::store_unavailable(error)
            }
            // Nothing a caller could mend; the log says what it was.
            _ => {
                tracing::error!(%error, request = request_id(), "the store failed");
                Self::internal("the store failed; the server's log says how")
            }
        }
    }
}

/// The code of a problem document, beside its response: for those who count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused(pub(crate) &'static str);

impl Problem {
    /// The problem document.
    pub(crate) fn document(self) -> Value {
        let mut document = json!({
            "type": format!("urn:oncegate:error:{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
        });
        if let Value::Object(members) = &mut document {
            members.extend(self.extra);
            if let Some(id) = request_id() {
                members.insert("request_id".to_owned(), id.into());
            }
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, code) = (self.status, self.code);
        let wait = self.extra.get("retry_after_s").and_then(Value::as_u64);
        let mut response = (status, format!("{}\n", self.document())).into_response();
        response.extensions_mut().insert(Refused(code));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        // A provider whose signature is wrong cannot mend that with a bearer token.
        if status == StatusCode::UNAUTHORIZED && code != "invalid_signature" {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}
