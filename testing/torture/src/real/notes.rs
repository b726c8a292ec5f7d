//! Messages between director and nodes.
//!
//! ```text
//!   director   do FATES STEP | drain PEERS | report | withdraw FATES | check LOOSE | talk PEERS | finalize
//!   node       ready | taken | done | loose STREAM | report ... | withdrawn | checked | talked
//!              | figures ... | fault TEXT
//! ```
//!
//! Owns: the texts.
//! Not here: lines, processes.

use super::figures::Figures;
use bmi_mx_torture::{Step, Verb};

/// The state of a node, as far as the director knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Alive,
    Stopped,
    Dead,
}

/// Those of all nodes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Fates(pub(crate) Vec<Fate>);

/// To a node.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Order {
    /// A step of the program.
    Do(Fates, Step),
    /// Says what is outstanding and what has been done: [`Note::Report`].
    Report,
    /// Receives whatever comes from these nodes, with tags below `tags`.
    Drain {
        tags: i32,
        len: usize,
        nodes: Vec<usize>,
    },
    /// Calls off everything that is outstanding: [`Note::Withdrawn`].
    Withdraw(Fates),
    /// Looks at the order of all that came; in these streams (sender, tag) it is loose:
    /// [`Note::Checked`].
    Check(Vec<(usize, i32)>),
    /// Exchanges a message with each of these: [`Note::Talked`].
    Talk(Vec<usize>),
    /// Ends: [`Note::Figures`].
    Finalize,
}

/// To the director.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Note {
    /// Runs.
    Ready,
    /// Another process has the endpoint.
    Taken,
    /// Did one step.
    Done,
    /// A send of this stream (receiver, tag) is about to be called off.
    Loose(usize, i32),
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
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Report {
    pub(crate) left: Vec<Left>,
    /// Messages that went to a node with a tag and were completed as sent.
    pub(crate) sent: Vec<(usize, i32, u64)>,
    /// Messages of a node with a tag that came.
    pub(crate) got: Vec<(usize, i32, u64)>,
    /// Receives for such messages that were called off. The library may throw as many away, to make
    /// room (docs/buffers.md).
    pub(crate) given_up: Vec<(usize, i32, u64)>,
}

/// An operation that is outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) label: u64,
    pub(crate) verb: Verb,
    pub(crate) with: usize,
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

    fn text(&self) -> String {
        self.0.iter().map(|fate| &fate.name()[..1]).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let fate = |letter| {
            let mut all = Fate::ALL.into_iter();
            all.find(|fate| fate.name().starts_with(letter))
        };
        text.chars().map(fate).collect::<Option<_>>().map(Self)
    }
}

impl Order {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Do(fates, step) => format!("do {} {step}", fates.text()),
            Self::Report => "report".into(),
            Self::Withdraw(fates) => format!("withdraw {}", fates.text()),
            Self::Drain { tags, len, nodes } => {
                let words = nodes.iter().map(|node| format!(" {node}"));
                format!("drain {tags} {len}{}", words.collect::<String>())
            }
            Self::Check(loose) => {
                let words = loose.iter().map(|(from, tag)| format!(" {from} {tag}"));
                format!("check{}", words.collect::<String>())
            }
            Self::Talk(with) => {
                let words = with.iter().map(|node| format!(" {node}"));
                format!("talk{}", words.collect::<String>())
            }
            Self::Finalize => "finalize".into(),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match first {
            "do" => {
                let (fates, step) = rest.split_once(' ')?;
                Self::Do(Fates::parse(fates)?, step.parse().ok()?)
            }
            "report" => Self::Report,
            "withdraw" => Self::Withdraw(Fates::parse(rest)?),
            "drain" => match numbers::<usize>(rest)?.as_slice() {
                [tags, len, nodes @ ..] => Self::Drain {
                    tags: i32::try_from(*tags).ok()?,
                    len: *len,
                    nodes: nodes.to_vec(),
                },
                _ => return None,
            },
            "check" => {
                let numbers = numbers::<i32>(rest)?;
                let pairs = numbers.chunks_exact(2);
                Self::Check(pairs.map(|pair| (pair[0] as usize, pair[1])).collect())
            }
            "talk" => Self::Talk(numbers(rest)?),
            "finalize" => Self::Finalize,
            _ => return None,
        })
    }
}

impl Note {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Ready => "ready".into(),
            Self::Taken => "taken".into(),
            Self::Done => "done".into(),
            Self::Loose(to, tag) => format!("loose {to} {tag}"),
            Self::Report(report) => format!("report {}", report.text()),
            Self::Withdrawn => "withdrawn".into(),
            Self::Checked => "checked".into(),
            Self::Talked(attempts) => format!("talked {attempts}"),
            Self::Figures(figures) => format!("figures {}", figures.text()),
            Self::Fault(text) => format!("fault {text}"),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match first {
            "ready" => Self::Ready,
            "taken" => Self::Taken,
            "done" => Self::Done,
            "loose" => match numbers::<i32>(rest)?.as_slice() {
                [to, tag] => Self::Loose(usize::try_from(*to).ok()?, *tag),
                _ => return None,
            },
            "report" => Self::Report(Report::parse(rest)?),
            "withdrawn" => Self::Withdrawn,
            "checked" => Self::Checked,
            "talked" => Self::Talked(rest.parse().ok()?),
            "figures" => Self::Figures(Box::new(Figures::parse(rest)?)),
            "fault" => Self::Fault(rest.into()),
            _ => return None,
        })
    }
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        for left in &self.left {
            let verb = match left.verb {
                Verb::Send => 0,
                Verb::SendUnexpected => 1,
                Verb::Recv => 2,
            };
            let Left {
                label,
                with,
                tag,
                len,
                ..
            } = left;
            text += &format!("{label} {verb} {with} {tag} {len} ");
        }
        for counts in [&self.sent, &self.got, &self.given_up] {
            text += ";";
            for (with, tag, count) in counts {
                text += &format!(" {with} {tag} {count}");
            }
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split(';').collect();
        let [left, sent, got, given_up] = parts.as_slice() else {
            return None;
        };
        let one = |words: &[i64]| {
            let &[label, verb, with, tag, len] = words else {
                return None;
            };
            let verb = match verb {
                0 => Verb::Send,
                1 => Verb::SendUnexpected,
                2 => Verb::Recv,
                _ => return None,
            };
            Some(Left {
                label: label as u64,
                verb,
                with: with as usize,
                tag: tag as i32,
                len: len as usize,
            })
        };
        let counts = |text| -> Option<Vec<_>> {
            let numbers = numbers::<i64>(text)?;
            let triples = numbers.chunks_exact(3);
            let each = triples.map(|of| (of[0] as usize, of[1] as i32, of[2] as u64));
            Some(each.collect())
        };
        Some(Self {
            left: numbers(left)?.chunks(5).map(one).collect::<Option<_>>()?,
            sent: counts(sent)?,
            got: counts(got)?,
            given_up: counts(given_up)?,
        })
    }
}

/// All words, as numbers.
pub(crate) fn numbers<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split_whitespace()
        .map(|word| word.parse().ok())
        .collect()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn orders_and_notes_can_be_read_back() {
        let fates = Fates(vec![Fate::Alive, Fate::Dead, Fate::Stopped]);
        let step = "n0 send n1 tag 2 len 100 pieces 1".parse().unwrap();
        for order in [
            Order::Do(fates.clone(), step),
            Order::Report,
            Order::Withdraw(fates),
            Order::Check(vec![]),
            Order::Check(vec![(1, 5), (2, 1000)]),
            Order::Talk(vec![0, 2]),
            Order::Drain {
                tags: 3,
                len: 1 << 20,
                nodes: vec![0, 2],
            },
            Order::Finalize,
        ] {
            assert_eq!(Order::parse(&order.text()), Some(order));
        }
        let left = Left {
            label: 9,
            verb: Verb::Recv,
            with: 2,
            tag: 7,
            len: 1 << 20,
        };
        let report = Report {
            left: vec![left.clone(), left],
            sent: vec![(1, 5, 3)],
            got: vec![],
            given_up: vec![(0, 2, 9)],
        };
        for note in [
            Note::Ready,
            Note::Done,
            Note::Loose(1, 3),
            Note::Report(report),
            Note::Report(Report::default()),
            Note::Talked(2),
            Note::Figures(Box::default()),
            Note::Fault("two words".into()),
        ] {
            assert_eq!(Note::parse(&note.text()), Some(note));
        }
        assert_eq!(Note::parse("loose 1"), None);
        assert_eq!(Order::parse("do nothing"), None);
    }
}
