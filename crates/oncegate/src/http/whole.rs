//! Work that is done to its end although whoever asked for it hangs up. The request of a caller that is gone is
//! dropped wherever it stands: between what was written and what this process must make of it, that would part the
//! two.

use super::problem::Problem;

/// Does it all, and answers if somebody still listens.
///
/// # Errors
/// It panicked.
pub(crate) async fn whole<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(work).await.map_err(|error| {
        // Not its message: that may quote a row.
        tracing::error!(panicked = error.is_panic(), "a call did not come to its end");
        Problem::internal(
            "the call did not come to its end; look at what it was to change before you repeat it",
        )
    })
}
