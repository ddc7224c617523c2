//! Connections: made, checked, bounded, encrypted.

use std::sync::Arc;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::NoTls;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::options::{Limits, Target, Tls};
use crate::StoreError;

/// Makes the pool; nothing is connected yet.
pub(super) fn make(target: Target, node: &str, limits: &Limits) -> Result<Pool, StoreError> {
    let Target { mut config, tls } = target;
    config.application_name(format!("oncegate/{node}"));
    config.connect_timeout(limits.wait);
    config.keepalives_idle(limits.idle_in_transaction);
    config.tcp_user_timeout(limits.statement + limits.wait);
    let how = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match tls {
        Tls::Off => Manager::from_config(config, NoTls, how),
        Tls::Verified { roots } => {
            Manager::from_config(config, MakeRustlsConnect::new(client(roots.as_deref())?), how)
        }
    };
    let settings = session(limits);
    Pool::builder(manager)
        .max_size(limits.connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(limits.wait))
        .create_timeout(Some(limits.wait))
        .recycle_timeout(Some(limits.wait))
        .post_create(Hook::async_fn(move |client, _| {
            let settings = settings.clone();
            Box::pin(async move {
                client.batch_execute(&settings).await.map_err(HookError::Backend)?;
                let row = client
                    .query_one("SELECT current_setting('synchronous_commit'), current_setting('fsync')", &[])
                    .await
                    .map_err(HookError::Backend)?;
                let (commit, fsync): (String, String) = (row.get(0), row.get(1));
                lasting(&commit, &fsync).map_err(|why| HookError::message(why.to_string()))
            })
        }))
        .build()
        .map_err(|error| StoreError::Database(error.to_string()))
}

/// A commit that the server acknowledges before it is on disk can be lost after we acknowledged it.
fn lasting(synchronous_commit: &str, fsync: &str) -> Result<(), &'static str> {
    if synchronous_commit == "off" {
        return Err(
            "the database runs with synchronous_commit=off: it would lose, in a crash, claims and done calls \
            that oncegate has acknowledged. Set it to on (ALTER DATABASE … SET synchronous_commit = on, or for the \
            role, or in postgresql.conf)",
        );
    }
    if fsync == "off" {
        tracing::warn!(
            "the database runs with fsync=off: a crash of its machine may lose or damage everything"
        );
    }
    Ok(())
}

fn session(limits: &Limits) -> String {
    format!(
        "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; \
         SET standard_conforming_strings = on; SET search_path = oncegate",
        limits.statement.as_millis(),
        limits.lock.as_millis(),
        limits.idle_in_transaction.as_millis(),
    )
}

fn client(roots: Option<&str>) -> Result<rustls::ClientConfig, StoreError> {
    let unusable = |error: rustls::Error| StoreError::Refused(format!("TLS cannot be used: {error}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let Some(path) = roots else {
        return Ok(builder.with_platform_verifier().map_err(unusable)?.with_no_client_auth());
    };
    let wrong = |why: String| StoreError::Refused(format!("sslrootcert {path}: {why}"));
    let mut store = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
        store.add(certificate.map_err(|e| wrong(e.to_string()))?).map_err(|e| wrong(e.to_string()))?;
    }
    match store.is_empty() {
        true => Err(wrong("there is no certificate in it".into())),
        false => Ok(builder.with_root_certificates(store).with_no_client_auth()),
    }
}
