//! Secrets come from the environment or from files; none stands in the configuration itself.

use std::path::Path;

use oncegate_core::secret::Secret;

/// Where `env:NAME` looks.
pub trait Environment {
    /// The variable's value, if it is set.
    fn get(&self, name: &str) -> Option<String>;

    /// Whether what it holds is meant: placeholders are not asked what form they have.
    fn is_real(&self) -> bool {
        true
    }
}

/// The process's own environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    #[expect(clippy::disallowed_methods, reason = "this is where secrets come in")]
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

pub(super) struct Secrets<'a> {
    pub(super) environment: &'a dyn Environment,
    /// What relative paths are relative to: the configuration's own folder.
    pub(super) base: &'a Path,
}

impl Secrets<'_> {
    /// Resolves `env:NAME` or `file:PATH`.
    pub(super) fn resolve(&self, reference: &str) -> Result<Secret, String> {
        let secret = if let Some(name) = reference.strip_prefix("env:") {
            let name = name.trim();
            self.environment
                .get(name)
                .ok_or_else(|| {
                    format!("the environment variable {name} is not set; set it before starting oncegate")
                })?
                .into_bytes()
        } else if let Some(path) = reference.strip_prefix("file:") {
            let path = self.base.join(path.trim());
            #[expect(clippy::disallowed_methods, reason = "this is where secrets come in")]
            let mut bytes = std::fs::read(&path)
                .map_err(|e| format!("the secret's file {} cannot be read: {e}", path.display()))?;
            // Editors end files with a line break that is not part of the secret.
            while matches!(bytes.last(), Some(b'\n' | b'\r')) {
                bytes.pop();
            }
            bytes
        } else {
            return Err("a secret must not stand in this file; write `env:NAME` or `file:PATH`".to_owned());
        };
        match secret.iter().all(u8::is_ascii_whitespace) {
            true => Err(format!("the secret `{reference}` is blank; put the secret there")),
            false => Ok(Secret::new(secret)),
        }
    }

    /// Whether a text is meant as a reference.
    pub(super) fn is_reference(text: &str) -> bool {
        text.starts_with("env:") || text.starts_with("file:")
    }
}

/// Refuses a secret that stands in the file as the value of a header. What is filled in from the payload is none.
pub(super) fn refuse_clear_text(header: &str, value: &str) -> Result<(), String> {
    const SECRET: [&str; 7] =
        ["authorization", "token", "secret", "password", "api-key", "apikey", "access-key"];
    let name = header.to_ascii_lowercase().replace('_', "-");
    if value.contains("{{") || value.trim().is_empty() || !SECRET.iter().any(|word| name.contains(word)) {
        return Ok(());
    }
    let variable: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    Err(format!(
        "the value of `{header}` must not stand in this file; write `env:NAME`, e.g. `env:{}`, or `file:PATH`",
        variable.to_ascii_uppercase()
    ))
}
