//! The one place where a step leaves this process.

use oncegate_connect::{CallOutcome, Failure};
use oncegate_core::time::Timestamp;

use crate::flow::{Action, Step};
use crate::message;
use crate::request::Outgoing;
use crate::worker::Worker;

impl Worker {
    pub(crate) async fn call(&self, step: &Step, outgoing: &Outgoing, sent_at: Timestamp) -> CallOutcome {
        match (outgoing, &step.action, &self.mailer) {
            (Outgoing::Request(request), Action::Message(message), _) => {
                message::judged(message, &request.url, self.caller.call(request, sent_at).await)
            }
            (Outgoing::Request(request), _, _) => self.caller.call(request, sent_at).await,
            (Outgoing::Mail(mail), _, Some(mailer)) => mailer.send(mail, sent_at, step.timeout).await,
            // A configuration with such a step and without a server is refused; this one came back from before.
            (Outgoing::Mail(_), _, None) => CallOutcome::Failed {
                failure: Failure::Permanent,
                status: None,
                answer: None,
                note: "no mail server is declared; add `smtp` to oncegate.yaml".to_owned(),
            },
        }
    }
}
