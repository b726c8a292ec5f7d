//! Pages from creation to what tools read.

use super::layout::{LEN, NAME};
use super::publisher::Published;
use super::*;
use mx_port_base::sealed::Region;
use mx_proto::{EndpointId, Identity, NicId, SessionId, Stats};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

fn identity(session: u64) -> Identity {
    Identity {
        nic: NicId(0x4d58_c000_0201),
        endpoint: EndpointId(7),
        session: SessionId(session),
    }
}

/// Returns the pages of this test among those of the process.
fn mine(session: u64) -> Vec<Page> {
    let of_process = find_in(std::process::id()).into_iter();
    of_process
        .map(|found| found.page)
        .filter(|page| page.session.0 == session)
        .collect()
}

/// Returns whether an endpoint is no longer found. Another thread of this process may have its page open for a moment.
fn gone(session: u64) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !mine(session).is_empty() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn what_is_published_is_found_until_it_is_dropped() {
    let session = 0x1001;
    let mut published = Published::new("myriexpress", &identity(session), 2, false).unwrap();
    let page = mine(session).pop().unwrap();
    assert_eq!(page.library, "myriexpress");
    assert_eq!(page.own_pid, std::process::id());
    assert_eq!((page.board, page.endpoint), (2, EndpointId(7)));
    assert_eq!(page.nic, identity(session).nic);
    assert!(page.ports.is_empty());
    assert_eq!(page.provider, "");
    assert!(page.consistent);
    let age = SystemTime::now().duration_since(page.opened).unwrap();
    assert!(age < Duration::from_secs(60), "{age:?}");
    let names: Vec<&str> = page.counters.iter().map(|(label, _)| &**label).collect();
    assert!(
        names
            .into_iter()
            .eq(counters().iter().map(|counter| counter.label))
    );
    assert!(page.counters.iter().all(|(_, value)| *value == 0));

    let mut sample = Sample::default();
    sample.stats.matched = u64::MAX;
    sample.gauges.remotes = 3;
    sample.ports.provider = "tcp;ofi_rxm";
    // As any library of this layout writes it.
    sample.ports.open = 1 | 4;
    published.update(&sample);
    let page = mine(session).pop().unwrap();
    let of = |label: &str| {
        page.counters
            .iter()
            .find(|(name, _)| name == label)
            .unwrap()
            .1
    };
    assert_eq!((of("matched"), of("remotes")), (u64::MAX, 3));
    assert_eq!(page.provider, "tcp;ofi_rxm");
    assert_eq!(page.ports, ["local", "rdm"]);

    let everywhere = find();
    assert!(everywhere.iter().any(|found| found.page == page));
    drop(published);
    assert!(gone(session));
}

#[test]
fn a_method_shows_its_counters_behind_its_endpoints() {
    let session = 0x1005;
    let mut published = Published::new("bmi_mx", &identity(session), 0, true).unwrap();
    let mut sample = Sample::default();
    sample.stats.matched = 2;
    sample.method = Some(MethodGauges {
        peers: 3,
        operations: 4,
        dropped: 0,
    });
    published.update(&sample);
    let page = mine(session).pop().unwrap();
    let names: Vec<&str> = page.counters.iter().map(|(label, _)| &**label).collect();
    assert!(
        names
            .into_iter()
            .eq(all_counters().map(|counter| counter.label))
    );
    let shown = page.counters.iter().filter(|(_, value)| *value > 0);
    let shown: Vec<_> = shown.map(|(label, value)| (&**label, *value)).collect();
    let expected = [
        ("matched", 2),
        ("method_peers", 3),
        ("method_operations", 4),
    ];
    assert_eq!(shown, expected);
    sample.method = None;
    published.update(&sample);
    let page = mine(session).pop().unwrap();
    assert_eq!(page.counters.len(), all_counters().count());
    assert!(
        page.counters
            .iter()
            .all(|(label, value)| *value == 0 || label == "matched")
    );
}

/// A file of zeroes with the name of a page, as a process could make one to confuse.
#[test]
fn what_only_looks_like_a_page_is_left_out() {
    let _zeroes = Region::create(NAME, LEN).unwrap();
    let _short = Region::create(NAME, LEN / 2).unwrap();
    // SAFETY: a C string.
    let unsealed = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
    assert!(unsealed >= 0);
    assert_eq!(mine(0), []);
    // SAFETY: made above, and not used elsewhere.
    unsafe { libc::close(unsealed) };
}

#[test]
fn a_process_that_is_not_there_has_no_endpoints() {
    assert!(find_in(0).is_empty());
    assert!(find_in(u32::MAX).is_empty());
}

#[test]
fn a_forked_child_does_not_have_its_parents_endpoints() {
    let session = 0x1002;
    let _published = Published::new("bmi_mx", &identity(session), 0, false).unwrap();
    // SAFETY: the child does nothing but wait for a signal.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        loop {
            // SAFETY: no pointers.
            unsafe { libc::pause() };
        }
    }
    let has_page = || {
        let links = std::fs::read_dir(format!("/proc/{child}/fd")).unwrap();
        links
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|link| link.to_string_lossy().contains("memfd:mx-endpoint"))
    };
    // Until the child first runs it has all of its parent's descriptors.
    let at_first = find_in(child as u32);
    let deadline = Instant::now() + Duration::from_secs(20);
    while has_page() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (inherited, found) = (has_page(), find_in(child as u32));
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!inherited);
    assert_eq!((at_first, found), (vec![], vec![]));
    assert_eq!(mine(session).len(), 1);
}

#[test]
fn what_is_read_while_it_is_written_is_of_one_moment() {
    let session = 0x1003;
    let mut published = Published::new("bmi_mx", &identity(session), 0, false).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sample = Sample::default();
            while !stop.load(Ordering::Relaxed) {
                let next = sample.stats.packets_out + 1;
                sample.stats = Stats {
                    packets_out: next,
                    ..Stats::default()
                };
                sample.ports.provider = "p";
                // The first and the last of the words.
                sample.ports.dgram.pure_acks = next;
                published.update(&sample);
                // Update as often as a busy engine would, not all the time.
                let until = Instant::now() + Duration::from_micros(20);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
        });
        let (mut different, mut last, mut torn) = (0, 0, None);
        let begun = Instant::now();
        while different < 100 && torn.is_none() && begun.elapsed() < Duration::from_secs(20) {
            let page = mine(session).pop().unwrap();
            let (first, end) = (page.counters[0].1, page.counters[COUNT - 1].1);
            if page.consistent {
                torn = (first != end).then_some((first, end));
                different += u32::from(first != last);
                last = first;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(torn, None, "first and last counter");
        assert!(different >= 100, "{different}");
    });
}
