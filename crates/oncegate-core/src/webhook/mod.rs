//! Inbound webhooks: is this request really from the provider, and which intended effects does it carry?
//!
//! Everything here works on bytes that were already received; nothing is stored or answered. Verification is
//! over the raw body, before anything is parsed. One file per provider; adding one touches only [`Provider`].
