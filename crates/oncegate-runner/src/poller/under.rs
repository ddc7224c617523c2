//! A poll under way: page by page, each admitted before the next is asked for.

use std::time::Duration;

use oncegate_connect::Caller;
use oncegate_core::limits;
use oncegate_core::notice::NoticeKind;
use oncegate_core::poll::{Fault, Item, Page, Position, Taken, Walk, failure_is_told};
use oncegate_core::time::Timestamp;
use oncegate_core::webhook::{Headers, polled};
use oncegate_store::StoreError;
use oncegate_store::api::{AdmitCall, AdmitEvent, Admitted};
use oncegate_store::positions::{Advance, OverNotice};
use tokio::sync::watch;

use super::Polled;
use super::call::{Asked, Trouble};
use super::known::{self, Known};
use crate::arrivals::Arrivals;
use crate::gatekeeper::Gatekeeper;
use crate::looked_at::LOOK;

/// How much longer than its call a poll is believed to be under way, for what is done with the answer.
const SLACK: Duration = Duration::from_secs(30);
/// How long a poll under way waits for room at its target before it is one that failed.
const ROOM_WAITED_FOR: Duration = Duration::from_secs(60);

/// Why it goes no further.
enum End {
    /// It has read what there is.
    Done,
    /// Somebody else moved it.
    Lost,
    /// The process ends; whoever comes next goes on.
    Stopped,
    /// It is tried again.
    Failed(Trouble),
}

/// What is written down besides what it brings.
#[derive(Default)]
struct News {
    notice: Option<(NoticeKind, String)>,
    over: Option<OverNotice>,
}

pub(super) struct Under<'a> {
    polled: &'a Polled,
    gate: &'a Gatekeeper,
    version: Option<i64>,
    position: Position,
    walk: Walk,
    taken: Taken,
}

impl<'a> Under<'a> {
    pub(super) fn new(
        polled: &'a Polled,
        gate: &'a Gatekeeper,
        version: Option<i64>,
        position: Position,
        walk: Walk,
    ) -> Self {
        Self { polled, gate, version, position, walk, taken: Taken::default() }
    }

    /// Says that it is under way. `false`: somebody else did just now.
    pub(super) async fn begins(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        self.position.begins(now, now);
        self.stays().await
    }

    /// Reads page after page and writes down how that ended.
    pub(super) async fn walks(
        mut self,
        mut asked: Asked,
        caller: &Caller,
        known: &mut Known,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<(), StoreError> {
        let end = loop {
            match self.page(&mut asked, caller, known, stopped).await {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(error) => {
                    known.ended(false);
                    return Err(error);
                }
            }
        };
        known.ended(matches!(end, End::Done));
        match end {
            End::Lost => Ok(()),
            End::Done => self.succeeds().await,
            End::Stopped => self.stops().await,
            End::Failed(trouble) => self.fails(trouble).await,
        }
    }

    /// Reads one page and admits what is on it; `None`: there is another one.
    async fn page(
        &mut self,
        asked: &mut Asked,
        caller: &Caller,
        known: &mut Known,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<Option<End>, StoreError> {
        let polled = self.polled;
        let body = tokio::select! {
            body = asked.send(caller, self.gate, polled) => body,
            // Nothing is lost by a question whose answer nobody hears.
            _ = stopped.changed() => return Ok(Some(End::Stopped)),
        };
        let body = match body {
            Ok(body) => body,
            Err(trouble) => return Ok(Some(End::Failed(trouble))),
        };
        let page = match read(polled, body).await {
            Ok(page) => page,
            Err(fault) => return Ok(Some(End::Failed(fault.into()))),
        };
        if let Err(fault) = self.walk.over(&page) {
            return Ok(Some(End::Failed(fault.into())));
        }
        let onward = self.walk.onward(&page);
        let is_last = matches!(onward, Ok(None));
        if !self.take(page.items, is_last, known).await? {
            return Ok(Some(End::Lost));
        }
        let now = self.gate.store().now().wall;
        match onward {
            Ok(None) => return Ok(Some(End::Done)),
            Ok(Some(next)) => {
                if let Err(fault) = asked.onward(polled, &next) {
                    return Ok(Some(End::Failed(fault.into())));
                }
            }
            // The next poll goes on behind what this one has read.
            Err(Fault::TooManyPages) if self.walk.has_moved(&polled.poll, now) => return Ok(Some(End::Done)),
            Err(fault) => return Ok(Some(End::Failed(fault.into()))),
        }
        self.room(asked, stopped).await
    }

    /// Waits until its target has room for the next question; `None`: it has.
    async fn room(
        &mut self,
        asked: &mut Asked,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<Option<End>, StoreError> {
        loop {
            let Err(trouble) = asked.admit(self.gate, self.polled).await else { return Ok(None) };
            let wait = trouble.wait.unwrap_or_default();
            if wait > ROOM_WAITED_FOR {
                return Ok(Some(End::Failed(trouble)));
            }
            if !self.stays().await? {
                return Ok(Some(End::Lost));
            }
            let until = self.gate.clock().read().monotonic + wait;
            while self.gate.clock().read().monotonic < until {
                let left = until.saturating_sub(self.gate.clock().read().monotonic);
                tokio::select! {
                    () = self.gate.clock().sleep(left.min(LOOK)) => {}
                    _ = stopped.changed() => return Ok(Some(End::Stopped)),
                }
            }
        }
    }

    /// Admits the items of a page, some at a time, and moves the cursor with the last of them. `false`: somebody else
    /// has moved the poll; what was admitted stays so, and what was not they will find.
    async fn take(&mut self, items: Vec<Item>, is_last: bool, known: &mut Known) -> Result<bool, StoreError> {
        let polled = self.polled;
        self.taken.pages += 1;
        self.taken.items += items.len();
        let mut news = vec![];
        for item in items {
            if !self.walk.takes(item.mark) {
                self.taken.older += 1;
                continue;
            }
            let print = known::print(&item.payload.to_string());
            if !known.knows(print) {
                news.push((print, item));
            }
        }
        while !news.is_empty() {
            let rest = news.split_off(news.len().min(limits::POLL_ITEMS_PER_TRANSACTION));
            let (prints, items): (Vec<_>, Vec<_>) = std::mem::replace(&mut news, rest).into_iter().unzip();
            if news.is_empty() {
                self.moves(is_last);
            }
            let Some(admitted) = self.advance(self.events(polled, items), News::default()).await? else {
                return Ok(false);
            };
            self.taken.new += admitted.iter().filter(|one| !matches!(one, Admitted::Stopped { .. })).count();
            known.admitted(prints);
        }
        // One of which nothing is new says that it goes on, too; the last one does when the poll ends.
        self.moves(is_last);
        match is_last {
            true => Ok(true),
            false => self.stays().await,
        }
    }

    fn moves(&mut self, is_last: bool) {
        let now = self.gate.store().now().wall;
        self.position.cursor = self.walk.cursor(&self.polled.poll, now, is_last);
    }

    fn events(&self, of: &Polled, items: Vec<Item>) -> Vec<AdmitEvent> {
        let arrivals = Arrivals::new(self.gate, of.workspace, &of.automation, of.environment.as_ref());
        let (marks, payloads): (Vec<_>, Vec<_>) =
            items.into_iter().map(|item| (item.mark, item.payload)).unzip();
        let headers = Headers::default();
        let is_time = of.poll.form.is_time();
        let events = polled(&of.source, &of.rules, payloads).into_iter().zip(marks);
        let event = |(event, mark): (_, Option<oncegate_core::poll::Mark>)| {
            let dated = mark.filter(|_| is_time).map(|mark| Timestamp::from_millis(mark.0));
            AdmitEvent { dated, ..arrivals.event(&headers, event, |json| json) }
        };
        events.map(event).collect()
    }

    async fn succeeds(&mut self) -> Result<(), StoreError> {
        let (polled, taken) = (self.polled, self.taken);
        self.moves(true);
        let was_told = self.position.succeeds(taken, self.gate.store().now().wall);
        let over = was_told.then(|| OverNotice {
            kind: NoticeKind::PollFails,
            begins: Position::notice_begins(&polled.source),
        });
        if self.advance(vec![], News { notice: None, over }).await?.is_some() && (taken.new > 0 || was_told) {
            let Taken { pages, items, new, older } = taken;
            tracing::info!(
                source = polled.source,
                pages,
                items,
                new,
                older,
                was_told,
                "a poll came to its end"
            );
        }
        Ok(())
    }

    async fn fails(&mut self, trouble: Trouble) -> Result<(), StoreError> {
        let polled = self.polled;
        let Trouble { why, wait } = trouble;
        let failing = self.position.fails(&polled.poll, why, wait, self.gate.store().now().wall);
        let (in_a_row, why, again_at) = (failing.in_a_row, failing.why.clone(), failing.again_at);
        let words = self.position.failing_words(&polled.source).filter(|_| failure_is_told(in_a_row));
        let notice = words.map(|words| (NoticeKind::PollFails, words));
        if self.advance(vec![], News { notice, over: None }).await?.is_some() {
            tracing::warn!(source = polled.source, in_a_row, why, %again_at, "a poll failed");
        }
        Ok(())
    }

    /// Whoever looks next need not wait for this one.
    async fn stops(&mut self) -> Result<(), StoreError> {
        self.position.stops();
        self.advance(vec![], News::default()).await.map(drop)
    }

    /// Says that it is still under way. `false`: somebody else has moved it.
    async fn stays(&mut self) -> Result<bool, StoreError> {
        Ok(self.advance(vec![], News::default()).await?.is_some())
    }

    /// Writes down where it stands, together with what it brings. `None`: somebody else has moved it.
    async fn advance(
        &mut self,
        events: Vec<AdmitEvent>,
        news: News,
    ) -> Result<Option<Vec<Admitted>>, StoreError> {
        let polled = self.polled;
        if self.position.busy_until.is_some() {
            let now = self.gate.store().now().wall;
            self.position.busy_until = Some(now.after(polled.call.timeout + ROOM_WAITED_FOR + SLACK));
        }
        let admit = (!events.is_empty()).then(|| AdmitCall {
            workspace: polled.workspace,
            source: polled.source.clone(),
            automation: polled.automation.clone(),
            headers: "[]".to_owned(),
            body: vec![],
            events,
            releases: None,
            actor: format!("source:{}", polled.source),
        });
        let call = Advance {
            workspace: polled.workspace,
            source: polled.source.clone(),
            seen: self.version,
            value: self.position.write().map_err(StoreError::Inconsistent)?,
            admit,
            automation: polled.automation.clone(),
            notices: news.notice.into_iter().collect(),
            over: news.over,
        };
        let admitted = self.gate.advance(call).await?;
        if admitted.is_some() {
            self.version = Some(self.version.map_or(1, |version| version + 1));
        }
        Ok(admitted)
    }
}

/// Reads an answer, a large one where that keeps nobody waiting.
async fn read(polled: &Polled, body: Vec<u8>) -> Result<Page, Fault> {
    if body.len() <= limits::BODY_BYTES_FREE {
        return Page::read(&polled.poll, &body);
    }
    let poll = polled.poll.clone();
    let read = tokio::task::spawn_blocking(move || Page::read(&poll, &body)).await;
    // Not the message of a panic: that may quote the body.
    read.unwrap_or_else(|_| Err(Fault::Unreadable("its reader failed".to_owned())))
}
