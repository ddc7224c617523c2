//! What stands before a handler: its caller is known and may call it, a repeat is told from a first call, and
//! whatever is answered is counted. One step instead of a layer for each, because every layer costs memory and a call
//! of its own for every request.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::routes::Needs;
use super::watch::watched;
use super::{AppState, auth, once};

/// A handler and what comes before it.
#[derive(Clone)]
pub(crate) struct Entry<H> {
    /// `None`: what the router found, if it found an address.
    path: Option<&'static str>,
    needs: Needs,
    once: bool,
    handler: H,
}

impl<H> Entry<H> {
    pub(crate) fn of(path: &'static str, needs: Needs, once: bool, handler: H) -> Self {
        Self { path: Some(path), needs, once, handler }
    }

    /// For addresses and methods that nobody answers at.
    pub(crate) fn of_none(handler: H) -> Self {
        Self { path: None, needs: Needs::Nothing, once: false, handler }
    }
}

impl<T: 'static, H: Handler<T, Arc<AppState>>> Handler<T, Arc<AppState>> for Entry<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, state: Arc<AppState>) -> Self::Future {
        Box::pin(async move {
            let answer = async |request| match before(&state, self.needs, self.once, request).await {
                Ok(Ok(request)) => self.handler.call(request, Arc::clone(&state)).await,
                Ok(Err(answered)) => answered,
                Err(problem) => problem.into_response(),
            };
            watched(&state, self.path, request, answer).await
        })
    }
}

/// The request as its handler gets it, or the answer that stands already.
async fn before(
    state: &AppState,
    needs: Needs,
    is_once: bool,
    mut request: Request,
) -> Result<Result<Request, Response>, Problem> {
    if !needs.bearer() {
        return Ok(Ok(request));
    }
    let caller = auth::admitted(state, needs, request.extensions(), request.headers()).await?;
    if !is_once {
        request.extensions_mut().insert(caller);
        return Ok(Ok(request));
    }
    Ok(once::first(state, &caller, request).await?.map(|mut request| {
        request.extensions_mut().insert(caller);
        request
    }))
}
