//! stub
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariant {}
/// x
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("x")]
pub struct VerifyError {}
