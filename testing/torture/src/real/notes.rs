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

/// State of a node, as far as the director knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Fate {
    Alive,
    Stopped,
    Dead,
}

/// States of all nodes.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Fates(pub(crate) Vec<Fate>);

/// Order to a node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Take a step of the program.
    Do(Fates, Step),
    /// Report outstanding operations and counts: [`Note::Report`].
    Report,
    /// Receive everything from these nodes and from all callers, with tags below `tags`.
    Drain {
        tags: i32,
        len: usize,
        nodes: Vec<usize>,
    },
    /// Cancel everything outstanding: [`Note::Withdrawn`].
    Withdraw(Fates),
    /// Check the order of all received messages, except in these loose streams: [`Note::Checked`].
    Check(Vec<Stream>),
    /// Exchange a message with each of these nodes: [`Note::Talked`].
    Talk(Vec<usize>),
    /// Finalize and end: [`Note::Figures`].
    Finalize,
}

/// Note to the director.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// The node is running.
    Ready,
    /// Another process has the endpoint.
    Taken,
    /// A step is done.
    Done,
    /// A send of this stream is about to be cancelled.
    Loose(Stream),
    Report(Report),
    Withdrawn,
    Checked,
    /// All talks are over; the largest number of attempts.
    Talked(u32),
    Figures(Box<Figures>),
    /// A promise is broken.
    Fault(String),
}

/// Operations of one node, ended and pending.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) left: Vec<Left>,
    /// Callers, and whether the library has reported the end of their sessions.
    pub(crate) callers: Vec<(Peer, bool)>,
    /// Number of messages completed as sent, by stream.
    pub(crate) sent: Vec<(Stream, u64)>,
    /// Number of messages received, by stream.
    pub(crate) got: Vec<(Stream, u64)>,
    /// Number of cancelled receives for such messages, by stream. The library may drop as many
    /// messages, to free memory (docs/buffers.md).
    pub(crate) given_up: Vec<(Stream, u64)>,
}

/// An outstanding operation.
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

/// Formats an order or a note.
pub(crate) fn text(what: &impl Serialize) -> String {
    // INVARIANT: plain data, whose maps have numbers for keys.
    serde_json::to_string(what).expect("a text")
}

/// Parses an order or a note.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
