//! Messages between director and nodes.
//!
//! ```text
//!   director --- Order, as JSON ---> node
//!            <---- Note ------------
//! ```
//!
//! Owns: the texts.
//! Out of scope: lines, processes.

use super::figures::Figures;
use bmi_mx_torture::{Peer, Step, Stream, Verb};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The state of a node, as far as the director knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Fate {
    Alive,
    Stopped,
    Dead,
}

/// The fates of all nodes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Fates(pub(crate) Vec<Fate>);

/// To a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// A step of the program.
    Do(Fates, Step),
    /// Says what is outstanding and what has been done: [`Note::Report`].
    Report,
    /// Receives whatever comes from these nodes and from all that have called, with tags below `tags`.
    Drain {
        tags: i32,
        len: usize,
        nodes: Vec<usize>,
    },
    /// Calls off everything that is outstanding: [`Note::Withdrawn`].
    Withdraw(Fates),
    /// Looks at the order of all that came; in these streams it is loose: [`Note::Checked`].
    Check(Vec<Stream>),
    /// Exchanges a message with each of these: [`Note::Talked`].
    Talk(Vec<usize>),
    /// Ends: [`Note::Figures`].
    Finalize,
}

/// To the director.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// Runs.
    Ready,
    /// Another process has the endpoint.
    Taken,
    /// Did one step.
    Done,
    /// A send of this stream is about to be called off.
    Loose(Stream),
    Report(Report),
    Withdrawn,
    Checked,
    /// After so many attempts with the one that took most.
    Talked(u32),
    Figures(Box<Figures>),
    /// A promise is broken.
    Fault(String),
}

/// The operations of one node, ended and pending.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) left: Vec<Left>,
    /// Peers that have called, and whether the library has said that their sessions are over.
    pub(crate) callers: Vec<(Peer, bool)>,
    /// Messages that were completed as sent, by stream.
    pub(crate) sent: Vec<(Stream, u64)>,
    /// Messages that came.
    pub(crate) got: Vec<(Stream, u64)>,
    /// Receives for such messages that were called off. The library may throw as many away, to make
    /// room (docs/buffers.md).
    pub(crate) given_up: Vec<(Stream, u64)>,
}

/// An operation that is outstanding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) label: u64,
    pub(crate) verb: Verb,
    pub(crate) with: Peer,
    pub(crate) tag: i32,
    pub(crate) len: usize,
}

impl Fate {
    pub(crate) const ALL: [Self; 3] = [Self::Alive, Self::Stopped, Self::Dead];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
        }
    }
}

impl Fates {
    pub(crate) fn of(&self, node: usize) -> Fate {
        self.0.get(node).copied().unwrap_or(Fate::Alive)
    }
}

/// An order or a note as one text.
pub(crate) fn text(what: &impl Serialize) -> String {
    // INVARIANT: plain data, whose maps have numbers for keys.
    serde_json::to_string(what).expect("a text")
}

/// The order or note of a text.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
