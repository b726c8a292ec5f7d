//! Programs: actions of nodes, one step after the other.
//!
//! ```text
//!   seed --> Step { node 0, post send to 1 }, Step { node 2, kill }, Step { node 2, restart }, ...
//! ```
//!
//! A step that is no longer possible (of a dead node, to cancel where nothing is outstanding, to
//! restart a living node) does nothing; so any part of a program is a program.
//!
//! Owns: the text of a step, which can be parsed again.

use crate::book::HEADER;
use crate::shape::Shape;
use bmi_host::method::Verb;
use mx_sim::Rng;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An action of a node, or on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Action {
    /// Posts an operation.
    Post {
        /// Kind of the operation.
        verb: Verb,
        /// Number of the other node, or of the node itself.
        to: usize,
        /// Tag of the message.
        tag: i32,
        /// Bytes of the message, or of the buffer.
        len: usize,
        /// Number of pieces of memory; more than 1: a list.
        pieces: u8,
    },
    /// Cancels one of the outstanding operations: this index modulo their number, oldest first.
    Cancel {
        /// Index of the operation.
        which: u32,
    },
    /// Looks the other node up under a new address object and sends it an unexpected message.
    Connect {
        /// Number of the other node.
        to: usize,
    },
    /// Drops the addresses of the other node.
    Drop {
        /// Node of the addresses.
        to: usize,
    },
    /// Finalizes, with any operations under way.
    Finalize,
    /// Is killed.
    Kill,
    /// Begins a new life on the same address.
    Restart,
    /// Is stopped for that long, and goes on.
    Freeze(Duration),
    /// Cuts the connection to the other node for that long.
    Cut {
        /// Number of the other node.
        with: usize,
        /// Duration.
        span: Duration,
    },
    /// Breaks the connection of the two nodes, once.
    Reset {
        /// Number of the other node.
        with: usize,
    },
    /// Lets all nodes run for that long.
    Pause(Duration),
}

/// A step of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Number of the node.
    pub node: usize,
    /// Action of the node.
    pub action: Action,
}

/// First tag of unexpected messages, so that no receive waits for them by mistake.
pub const UNEXPECTED_TAG: i32 = 1_000;

/// Makes the steps that follow from a seed, [`Shape::steps`] of them.
pub fn program(seed: u64, shape: &Shape) -> impl Iterator<Item = Step> + use<> {
    // Seeds are small consecutive numbers, whose sequences must be unrelated.
    let mut rng = Rng::new(seed ^ 0x746f_7274_7572_6521).fork();
    let shape = shape.clone();
    let mut ended = vec![false; shape.nodes];
    (0..shape.steps).map(move |_| {
        let node = rng.index(shape.nodes);
        // Dead nodes are restarted soon, or little would happen.
        let action = if ended[node] && rng.chance(0.5) {
            Action::Restart
        } else {
            draw(&mut rng, &shape, node)
        };
        match action {
            Action::Restart => ended[node] = false,
            Action::Kill | Action::Finalize => ended[node] = true,
            _ => {}
        }
        Step { node, action }
    })
}

fn draw(rng: &mut Rng, shape: &Shape, node: usize) -> Action {
    let weights = shape.weights;
    let all = [
        weights.post,
        weights.cancel,
        weights.connect,
        weights.drop,
        weights.finalize,
        weights.kill,
        weights.freeze,
        weights.cut,
        weights.reset,
        weights.pause,
    ];
    let mut at = rng.below(all.iter().map(|weight| u64::from(*weight)).sum());
    let mut which = 0;
    while which < all.len() - 1 && at >= u64::from(all[which]) {
        at -= u64::from(all[which]);
        which += 1;
    }
    let other = if shape.nodes < 2 {
        node
    } else {
        (node + 1 + rng.index(shape.nodes - 1)) % shape.nodes
    };
    match which {
        0 => post(rng, shape, node, other),
        1 => Action::Cancel {
            which: rng.bits() as u32,
        },
        2 => Action::Connect { to: other },
        3 => Action::Drop { to: other },
        4 => Action::Finalize,
        5 => Action::Kill,
        6 => Action::Freeze(span(rng, shape.freeze)),
        7 => Action::Cut {
            with: other,
            span: span(rng, shape.cut),
        },
        8 => Action::Reset { with: other },
        _ => Action::Pause(span(rng, shape.pause)),
    }
}

fn post(rng: &mut Rng, shape: &Shape, node: usize, other: usize) -> Action {
    let to = if rng.chance(0.05) { node } else { other };
    let mut tag = rng.below(shape.tags.max(1) as u64) as i32;
    let verb = if rng.chance(shape.receives) {
        Verb::Recv
    } else if rng.chance(shape.unexpected) {
        tag += UNEXPECTED_TAG;
        Verb::SendUnexpected
    } else {
        Verb::Send
    };
    let max = shape.message_max;
    let len = match verb {
        Verb::Recv if !rng.chance(shape.short) => max,
        _ => length(rng, max),
    };
    let pieces = if rng.chance(shape.lists) {
        rng.within(2..=8) as u8
    } else {
        1
    };
    Action::Post {
        verb,
        to,
        tag,
        len,
        pieces,
    }
}

/// Draws a length: mostly small, or around the limits between ways of sending.
fn length(rng: &mut Rng, max: usize) -> usize {
    let edges = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10];
    let len = match rng.index(10) {
        0 => rng.index(40),
        1..5 => rng.within(HEADER..=200),
        5 => rng.index(5_000),
        6 | 7 => rng.pick(&edges) - 1 + rng.index(3),
        8 => rng.index(max.saturating_add(1)),
        _ => max,
    };
    len.min(max)
}

/// Draws a duration: every order of magnitude is equally likely.
fn span(rng: &mut Rng, most: Duration) -> Duration {
    let nanos = u64::try_from(most.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1_000);
    let shift = rng.below(u64::from((nanos / 1_000).ilog2()) + 1);
    // In whole microseconds, so that its text is exact.
    let micros = (rng.below(nanos >> shift) / 1_000).max(1);
    Duration::from_micros(micros)
}

/// Returns the lengths of `pieces` pieces of `len` bytes together: the first ones are shorter, none
/// is empty unless there are too few bytes.
pub fn pieces(len: usize, pieces: u8) -> Vec<usize> {
    let mut left = len;
    let mut lens = Vec::new();
    for more in (1..usize::from(pieces.max(1))).rev() {
        // Uneven on purpose: an odd number of bytes, and at least one for each of the other pieces.
        let part = ((left / (more + 2)) | 1).min(left.saturating_sub(more));
        lens.push(part);
        left -= part;
    }
    lens.push(left);
    lens
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{} ", self.node)?;
        match &self.action {
            Action::Post {
                verb,
                to,
                tag,
                len,
                pieces,
            } => {
                let verb = match verb {
                    Verb::Send => "send",
                    Verb::SendUnexpected => "unexpected",
                    Verb::Recv => "recv",
                };
                write!(f, "{verb} n{to} tag {tag} len {len} pieces {pieces}")
            }
            Action::Cancel { which } => write!(f, "cancel {which}"),
            Action::Connect { to } => write!(f, "connect n{to}"),
            Action::Drop { to } => write!(f, "drop n{to}"),
            Action::Finalize => f.write_str("finalize"),
            Action::Kill => f.write_str("kill"),
            Action::Restart => f.write_str("restart"),
            Action::Freeze(span) => write!(f, "freeze {} us", span.as_micros()),
            Action::Cut { with, span } => write!(f, "cut n{with} {} us", span.as_micros()),
            Action::Reset { with } => write!(f, "reset n{with}"),
            Action::Pause(span) => write!(f, "pause {} us", span.as_micros()),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    /// Parses the text of [`Display`](fmt::Display).
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let wrong = || format!("no step: {text}");
        parse(&words).ok_or_else(wrong)
    }
}

fn parse(words: &[&str]) -> Option<Step> {
    let node = |word: &str| word.strip_prefix('n')?.parse::<usize>().ok();
    let micros = |word: &str| Some(Duration::from_micros(word.parse().ok()?));
    let (first, rest) = words.split_first()?;
    let action = match rest {
        [verb, to, "tag", tag, "len", len, "pieces", pieces] => Action::Post {
            verb: match *verb {
                "send" => Verb::Send,
                "unexpected" => Verb::SendUnexpected,
                "recv" => Verb::Recv,
                _ => return None,
            },
            to: node(to)?,
            tag: tag.parse().ok()?,
            len: len.parse().ok()?,
            pieces: pieces.parse().ok()?,
        },
        ["cancel", which] => Action::Cancel {
            which: which.parse().ok()?,
        },
        ["connect", to] => Action::Connect { to: node(to)? },
        ["drop", to] => Action::Drop { to: node(to)? },
        ["finalize"] => Action::Finalize,
        ["kill"] => Action::Kill,
        ["restart"] => Action::Restart,
        ["freeze", span, "us"] => Action::Freeze(micros(span)?),
        ["cut", with, span, "us"] => Action::Cut {
            with: node(with)?,
            span: micros(span)?,
        },
        ["reset", with] => Action::Reset { with: node(with)? },
        ["pause", span, "us"] => Action::Pause(micros(span)?),
        _ => return None,
    };
    let node = node(first)?;
    Some(Step { node, action })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_readable_programs() {
        for seed in 0..200 {
            let shape = Shape::random(&mut Rng::new(seed));
            let steps: Vec<_> = program(seed, &shape).collect();
            assert_eq!(steps.len() as u64, shape.steps);
            assert!(program(seed, &shape).eq(steps.iter().cloned()));
            for step in steps {
                assert_eq!(step.to_string().parse(), Ok(step));
            }
        }
        for wrong in [
            "",
            "n0",
            "kill",
            "n0 cancel",
            "n0 send n1",
            "n0 pause 3",
            "nx kill",
        ] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn programs_keep_to_their_shape() {
        for shape in Shape::named() {
            for step in program(7, &shape) {
                assert!(step.node < shape.nodes);
                match step.action {
                    Action::Post {
                        to, len, pieces, ..
                    } => {
                        assert!(to < shape.nodes && len <= shape.message_max && pieces > 0);
                    }
                    Action::Kill => assert_ne!(shape.weights.kill, 0),
                    Action::Cut { with, span } => {
                        assert!(with != step.node && span <= shape.cut);
                    }
                    Action::Pause(span) => assert!(span <= shape.pause && !span.is_zero()),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn pieces_are_all_of_it() {
        for len in [0, 1, 5, 8, 9, 100, 4096, 1_000_000] {
            for count in 0..=8 {
                let lens = pieces(len, count);
                assert_eq!(lens.len(), usize::from(count.max(1)));
                assert_eq!(lens.iter().sum::<usize>(), len, "{lens:?}");
                let empty = lens.iter().filter(|len| **len == 0).count();
                assert!(empty == 0 || len < lens.len(), "{len}: {lens:?}");
            }
        }
    }
}
