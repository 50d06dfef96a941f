//! The names by which messages are counted.

use super::{Answer, Request, SnapshotAnswer, ToPeer, ToServer};
use serde::Serialize;

/// A message of a kind.
pub trait Message: Serialize {
    /// The kind's name.
    fn kind(&self) -> &'static str;

    /// How many pages it has.
    fn images(&self) -> usize {
        0
    }
}

impl Message for ToServer {
    fn kind(&self) -> &'static str {
        match &self.body {
            Request::Hello { .. } => "hello",
            Request::Survey { .. } => "survey",
            Request::Renew { .. } => "renew",
            Request::Leave => "leave",
            Request::Catalog => "catalog",
            Request::Read { .. } => "read",
            Request::Accept { .. } => "accept",
            Request::Decline { .. } => "decline",
            Request::Write { .. } => "write",
            Request::InUse { .. } => "in use",
            Request::CalledBack { .. } => "called back",
            Request::Refused { .. } => "refused",
            Request::Fell { .. } => "fell",
            Request::Record { .. } => "record",
            Request::SetRecord(_) => "set record",
            Request::Set(question) => question.kind(),
            Request::Waits { .. } => "waits",
            Request::Commit { .. } => "commit",
            Request::Abort { .. } => "abort",
            Request::Returned { .. } => "returned",
            Request::Snapshot { request, .. } => request.kind(),
        }
    }

    fn images(&self) -> usize {
        match &self.body {
            Request::Commit { pages, .. } => pages.len(),
            Request::Returned { .. } => 1,
            _ => 0,
        }
    }
}

impl Message for Answer {
    fn kind(&self) -> &'static str {
        match self {
            Answer::Joined { .. } => "joined",
            Answer::Renewed { .. } => "renewed",
            Answer::Catalog { .. } => "catalog",
            Answer::Surveyed(_) => "surveyed",
            Answer::Refusal { .. } => "refusal",
            Answer::Page { .. } => "page",
            Answer::Failed { .. } => "failed",
            Answer::WouldBlock { .. } => "would block",
            Answer::Denied { .. } => "denied",
            Answer::Granted { .. } => "granted",
            Answer::CallBack { .. } => "call back",
            Answer::Fall { .. } => "fall",
            Answer::ByRecords { .. } => "by records",
            Answer::Record { .. } => "record",
            Answer::NoLeaf { .. } => "no leaf",
            Answer::NoRecord { .. } => "no record",
            Answer::SetRecord { .. } => "set record",
            Answer::SetGranted { .. } => "set granted",
            Answer::NoSetRecord { .. } => "no set record",
            Answer::Set { said, .. } => said.kind(),
            Answer::Withdrawn { .. } => "withdrawn",
            Answer::Offer { .. } => "offer",
            Answer::LastCopy { .. } => "last copy",
            Answer::Forward { .. } => "forward",
            Answer::AskAgain { .. } => "ask again",
            Answer::Victim { .. } => "victim",
            Answer::Committed { .. } => "committed",
            Answer::NotCommitted { .. } => "not committed",
            Answer::Snapshot { said, .. } => said.kind(),
        }
    }

    fn images(&self) -> usize {
        let has_one = matches!(self, Answer::Page { .. } | Answer::Snapshot { said: SnapshotAnswer::Page { .. }, .. });
        usize::from(has_one)
    }
}

impl Message for ToPeer {
    fn kind(&self) -> &'static str {
        match self {
            ToPeer::Page { .. } => "page",
        }
    }

    fn images(&self) -> usize {
        1
    }
}
