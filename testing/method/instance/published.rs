//! A running method, as tools see it.

use bmi_method::instance;
use mx_proto::flow::CREDIT;
use mx_sys::published::{Page, all_counters, find_in};
use std::time::{Duration, Instant};

fn mine() -> Vec<Page> {
    let of_process = find_in(std::process::id()).into_iter();
    of_process.map(|found| found.page).collect()
}

/// Returns a counter of this process, as a tool reads it.
pub(crate) fn counter(label: &str) -> u64 {
    let pages = mine();
    let mut counters = pages[0].counters.iter();
    counters.find(|(name, _)| name == label).unwrap().1
}

#[test]
fn endpoint_is_visible_until_finalize_and_counts() {
    let _alone = crate::alone();
    assert_eq!(mine(), []);
    instance::initialize(None, 0, 0, None).unwrap();
    let pages = mine();
    assert_eq!(pages.len(), 1);
    let page = &pages[0];
    assert_eq!((&*page.library, page.board), ("bmi_mx", 0));
    assert!(page.ports.contains(&"tcp") && page.nic.0 != 0 && page.endpoint.0 != 0);
    let shown: Vec<&str> = page.counters.iter().map(|(label, _)| &**label).collect();
    assert!(
        shown
            .into_iter()
            .eq(all_counters().map(|counter| counter.label))
    );
    let total = counter("flow_total");
    assert_eq!(total * CREDIT as u64, 64 << 20);
    assert_eq!((counter("flow_free"), counter("method_peers")), (total, 0));

    // A blocked call updates the counters before it sleeps.
    let sleeps = counter("wait_progress_thread_sleeps");
    let begun = Instant::now();
    while counter("wait_progress_thread_sleeps") == sleeps {
        assert!(begun.elapsed() < Duration::from_secs(20));
        instance::test_unexpected(1, 0, 5_000, |_| ()).unwrap();
    }
    instance::finalize().unwrap();
    assert_eq!(mine(), []);
}
