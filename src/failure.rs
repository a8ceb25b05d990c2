//! What a verb answers when it refuses: a SQLSTATE, a message, why, and what to do.
//!
//! pgrx's list of error codes is closed and ours has a class of its own (`TQ`), so a
//! verb returns a `Failure` and `call` raises it through PostgreSQL's C functions.

/// The lease is not the caller's any more, or never was.
pub const STALE_LEASE: &str = "TQ001";
/// Another unfinished task holds the unique key.
pub const DUPLICATE_KEY: &str = "TQ002";
/// An argument is not valid.
pub const INVALID_PARAMETER: &str = "22023";
/// A size limit is exceeded.
pub const LIMIT_EXCEEDED: &str = "54000";

pub type Outcome<T> = Result<T, Failure>;

/// An error for the caller. Messages are lower-case, without a full stop, and name the
/// object; detail and hint are sentences. None of them carries payloads, keys or error texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: &'static str,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), detail: None, hint: None }
    }

    /// An argument error, with what to do about it.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Failure::new(INVALID_PARAMETER, message).hint(hint)
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same failure, saying which element of a bulk call it is about (counted from 1).
    pub fn at_element(mut self, position: usize) -> Self {
        self.message = format!("element {position}: {}", self.message);
        self
    }
}
