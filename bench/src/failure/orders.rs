//! Orders to a counterpart, as words on the wire.
//!
//! | order     | the counterpart                                               |
//! |-----------|---------------------------------------------------------------|
//! | Work      | posts sends (`give`) and receives, and waits for none of them |
//! | CancelAll | calls off what it has with the asker, and says so on `tag`    |
//! | Ping      | answers on `tag`                                              |
//! | Stats     | says on `tag` what it holds                                   |
//! | Quit      | ends                                                          |

/// Largest message of any work: a stranger's order allocates no more.
pub(crate) const LARGEST: usize = 4 << 20;
/// Most pieces of work in one order.
const MOST: usize = 256;
/// The tag of an order among unexpected messages. Those with another are thrown away.
pub(crate) const ORDER_TAG: i32 = 1;
/// Words of every answer.
pub(crate) const ANSWER_WORDS: usize = 4;

/// One message of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    /// The counterpart sends; otherwise it receives.
    pub(crate) give: bool,
    pub(crate) tag: i32,
    pub(crate) size: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Work(Vec<Work>),
    CancelAll { tag: i32 },
    Ping { tag: i32 },
    Stats { tag: i32 },
    Quit,
}

impl Order {
    pub(crate) fn words(&self) -> Vec<u64> {
        match self {
            Self::Work(works) => {
                let mut words = vec![1];
                for work in works.iter().take(MOST) {
                    words.extend([u64::from(work.give), work.tag as u64, work.size as u64]);
                }
                words
            }
            Self::CancelAll { tag } => vec![2, *tag as u64],
            Self::Ping { tag } => vec![3, *tag as u64],
            Self::Stats { tag } => vec![4, *tag as u64],
            Self::Quit => vec![5],
        }
    }

    /// `None` for nonsense.
    pub(crate) fn parse(words: &[u64]) -> Option<Self> {
        match words {
            [1, rest @ ..] if rest.len() % 3 == 0 && rest.len() / 3 <= MOST => {
                let works = rest.chunks_exact(3).map(|work| match *work {
                    [give @ 0..=1, tag, size] if size <= LARGEST as u64 => Some(Work {
                        give: give == 1,
                        tag: tag as i32,
                        size: size as usize,
                    }),
                    _ => None,
                });
                works.collect::<Option<_>>().map(Self::Work)
            }
            [2, tag] => Some(Self::CancelAll { tag: *tag as i32 }),
            [3, tag] => Some(Self::Ping { tag: *tag as i32 }),
            [4, tag] => Some(Self::Stats { tag: *tag as i32 }),
            [5] => Some(Self::Quit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn orders_survive_the_wire_and_nonsense_is_refused() {
        let work = Work {
            give: true,
            tag: 77,
            size: LARGEST,
        };
        for order in [
            Order::Work(vec![work; MOST]),
            Order::Work(Vec::new()),
            Order::CancelAll { tag: 5 },
            Order::Ping { tag: -5 },
            Order::Stats { tag: i32::MAX },
            Order::Quit,
        ] {
            assert_eq!(Order::parse(&order.words()), Some(order));
        }
        for bad in [
            &[][..],
            &[0],
            &[6],
            &[2],
            &[5, 1],
            &[1, 1, 1],
            &[1, 2, 1, 1],
            &[1, 1, 1, LARGEST as u64 + 1],
        ] {
            assert_eq!(Order::parse(bad), None, "{bad:?}");
        }
        let mut much = vec![0; 1 + 3 * (MOST + 1)];
        much[0] = 1;
        assert_eq!(Order::parse(&much), None);
    }
}
