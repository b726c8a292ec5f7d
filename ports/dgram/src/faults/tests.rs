//! Faults in numbered datagrams.

use super::*;

const COUNT: u32 = 20_000;

fn plan(text: &str) -> FaultPlan {
    FaultPlan::parse(text).unwrap()
}

/// Passes [`COUNT`] datagrams of four bytes, numbered from 0, through a plan; returns those that come out.
fn through(text: &str) -> (Vec<Vec<u8>>, FaultStats) {
    const BATCH: u32 = 60;
    let mut faults = Faults::new(plan(text));
    let mut got = Vec::new();
    let (mut next, mut now) = (0, Instant(0));
    while next < COUNT || !faults.holds_nothing() {
        now = Instant(now.0 + 100);
        faults.begin(now);
        faults.release();
        let end = COUNT.min(next + BATCH);
        let bytes: Vec<u8> = (next..end).flat_map(u32::to_le_bytes).collect();
        next = end;
        if !bytes.is_empty() {
            let incoming = Incoming::Datagrams {
                channel: Channel::Data,
                from: 9,
                segment: 4,
            };
            faults.take_in(incoming, &bytes);
        }
        while let Some(incoming) = faults.next() {
            let Incoming::Datagrams { segment, .. } = incoming else {
                panic!("only datagrams");
            };
            let all = faults.bytes(&bytes).chunks(segment);
            got.extend(all.map(<[u8]>::to_vec));
        }
    }
    (got, faults.stats)
}

fn numbers(got: &[Vec<u8>]) -> Vec<u32> {
    let number = |bytes: &Vec<u8>| u32::from_le_bytes(bytes[..].try_into().unwrap());
    got.iter().map(number).collect()
}

/// Returns true for 5 % of the datagrams, within chance.
fn about_five_percent(count: u64) -> bool {
    (850..1150).contains(&count)
}

#[test]
fn what_is_lost_is_missing_and_the_rest_is_in_order() {
    let (got, stats) = through("loss=0.05,seed=1");
    let got = numbers(&got);
    assert!(got.is_sorted());
    assert!(about_five_percent(stats.lost), "{stats:?}");
    assert_eq!(got.len() as u64, u64::from(COUNT) - stats.lost);
    assert_eq!(stats.passed + stats.lost, u64::from(COUNT));
}

#[test]
fn what_is_doubled_comes_twice() {
    let (got, stats) = through("dup=0.05,seed=2");
    assert!(about_five_percent(stats.doubled), "{stats:?}");
    assert_eq!(got.len() as u64, u64::from(COUNT) + stats.doubled);
    let mut got = numbers(&got);
    got.dedup();
    assert_eq!(got, (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn what_is_held_back_comes_all_the_same_and_not_much_later() {
    for (text, last) in [("reorder=0.05,seed=3", 10), ("delay=0.05,seed=4", COUNT)] {
        let (got, stats) = through(text);
        assert!(
            about_five_percent(stats.reordered + stats.delayed),
            "{stats:?}"
        );
        let got = numbers(&got);
        assert!(!got.is_sorted());
        for (place, number) in got.iter().enumerate() {
            // A datagram that passes overtakes those held back.
            assert!(
                (place as u32).abs_diff(*number) <= last,
                "{number} at {place}"
            );
        }
        let mut sorted = got;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..COUNT).collect::<Vec<_>>());
    }
}

#[test]
fn damaged_datagrams_differ_and_mark_the_service_unsafe() {
    let (got, stats) = through("corrupt=0.05,seed=5");
    let right = (0..COUNT).map(|number| number.to_le_bytes().to_vec());
    let wrong = got.iter().zip(right).filter(|(got, right)| *got != right);
    let (wrong, short): (Vec<_>, Vec<_>) = wrong.partition(|(got, _)| got.len() == 4);
    assert!(about_five_percent(stats.corrupted), "{stats:?}");
    assert!(!short.is_empty() && wrong.len() > short.len());
    // The same bit may be flipped twice.
    let all = (wrong.len() + short.len()) as u64;
    assert!(
        all <= stats.corrupted && all + 60 > stats.corrupted,
        "{all}, {stats:?}"
    );
    let damages = |text| Faults::<u8>::new(plan(text)).damages;
    assert!(!damages("loss=1") && damages("corrupt=0.001"));
}
