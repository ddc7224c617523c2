//! The gate as those see it who watch it: probes, metrics, log, doctor.

mod doctor;
mod logs;
mod metrics;
mod probes;
mod program;
mod public;
