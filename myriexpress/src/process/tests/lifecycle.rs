//! Opening and closing endpoints.

use super::*;
use std::sync::mpsc;
use std::thread;

#[test]
fn an_endpoint_is_described_by_what_it_was_opened_with() {
    let params = OpenParams {
        error_handler: 0xe44,
        ..OpenParams::default()
    };
    let a = opened_with(PortChoice::Local, params);
    assert_eq!(error_handler_of(a.0), Some(0xe44));
    assert_eq!(board_of(a.0), Ok(0));
    assert!(open_endpoints().contains(&a.0));
    assert_eq!(nic::board_number(name(&a).0), Some(0));
    assert_eq!(context(own_address(a.0).unwrap()), Ok(0));
    let gone = a.0;
    drop(a);
    assert_eq!(error_handler_of(gone), None);
    assert!(!open_endpoints().contains(&gone));
}

#[test]
fn a_closed_endpoints_handles_fit_nothing_that_comes_after() {
    let a = opened(PortChoice::Local);
    let (ep, own) = (a.0, own_address(a.0).unwrap());
    let mut byte = [0];
    let request = recv(&a, 0, 0, &mut byte);
    drop(a);
    // As many as are needed to have the same slot again.
    let later: Vec<Opened> = std::iter::repeat_with(|| opened(PortChoice::Local))
        .take(8)
        .collect();
    for ep in later.iter().map(|later| later.0).chain([ep]) {
        assert!(test(ep, request).is_err());
        assert!(
            isend(
                ep,
                UserMemory::empty(),
                own,
                0,
                0,
                SendMode::Buffered,
                false
            )
            .is_err()
        );
    }
    assert_eq!(code(context_of(request)), Code::BadRequest);
    assert_eq!(code(decompose(own)), Code::BadEndpoint);
    assert_eq!(code(set_context(own, 1)), Code::BadEndpoint);
    assert_eq!(code(progress(ep)), Code::BadEndpoint);
    assert_eq!(code(close(ep)), Code::BadEndpoint);
    for word in [0, 1, u64::MAX, 1 << 32] {
        assert!(
            matches!(close(EndpointHandle(word)), Err(error) if error.code() == Code::BadEndpoint)
                || later.iter().any(|later| later.0.0 == word)
        );
    }
    assert_eq!(code(context_of(RequestHandle(u64::MAX))), Code::BadRequest);
    assert_eq!(code(set_context(Address::NONE, 1)), Code::BadEndpoint);
}

#[test]
fn an_endpoint_id_is_busy_while_it_is_open_and_free_right_after() {
    for port in [PortChoice::Local, PortChoice::Tcp] {
        let a = opened(port);
        let (_, endpoint) = name(&a);
        let params = OpenParams {
            endpoint: Some(endpoint),
            key: KEY,
            ..OpenParams::default()
        };
        assert_eq!(code(open(&settings(port), params)), Code::Busy);
        // An id of one's own, so that no other test takes it.
        drop(a);
        let params = OpenParams {
            endpoint: Some(900 + port as u32),
            ..params
        };
        for _ in 0..5 {
            drop(Opened(open(&settings(port), params).unwrap()));
        }
    }
}

#[test]
fn what_cannot_be_opened_is_refused_and_takes_no_place() {
    let before = open_endpoints().len();
    let params = OpenParams {
        board: Some(5000),
        ..OpenParams::default()
    };
    let settings = settings(PortChoice::Local);
    for _ in 0..crate::handles::SLOTS_MAX + 1 {
        assert_eq!(code(open(&settings, params)), Code::BoardUnknown);
    }
    let params = OpenParams {
        endpoint: Some(70_000),
        ..OpenParams::default()
    };
    assert_eq!(code(open(&settings, params)), Code::BadEndpoint);
    // Other tests open and close theirs meanwhile, but not a thousand.
    assert!(open_endpoints().len() < before + 100);
}

#[test]
fn closing_releases_waiters() {
    let a = opened(PortChoice::Local);
    let ep = a.0;
    let (ready, go) = mpsc::channel();
    let waiters: Vec<_> = (0..3)
        .map(|n| {
            let ready = ready.clone();
            thread::spawn(move || {
                ready.send(()).unwrap();
                match n {
                    0 => wait_any(ep, 0, 0, None).map(|_| ()),
                    1 => peek(ep, None).map(|_| ()),
                    _ => probe(ep, 0, 0, None).map(|_| ()),
                }
            })
        })
        .collect();
    for _ in 0..3 {
        go.recv().unwrap();
    }
    close(ep).unwrap();
    for waiter in waiters {
        assert_eq!(code(waiter.join().unwrap()), Code::BadEndpoint);
    }
}

#[test]
fn without_a_helper_thread_the_programs_calls_are_enough() {
    let settings = Settings {
        helper: false,
        ..settings(PortChoice::Local)
    };
    let params = OpenParams {
        key: KEY,
        ..OpenParams::default()
    };
    let a = Opened(open(&settings, params).unwrap());
    let b = Opened(open(&settings, params).unwrap());
    let (nic, endpoint) = name(&b);
    let request = iconnect(a.0, (nic, endpoint), KEY, 3, 4, false).unwrap();
    let status = loop {
        progress(b.0).unwrap();
        if let Some(status) = test_any(a.0, 3, ALL).unwrap() {
            break status;
        }
    };
    assert_eq!((status.code, status.match_info, status.context), (0, 3, 4));
    assert_eq!(code(test(a.0, request)), Code::BadRequest);
}

#[test]
fn counters_count() {
    let (a, b, to_b) = pair(PortChoice::Local);
    let mut byte = [1];
    let before = counters(a.0).unwrap();
    let sent = send(&a, to_b, 0, &mut byte);
    ended(&a, sent);
    let after = counters(a.0).unwrap();
    assert_eq!(after.len(), published::COUNT);
    assert!(
        after
            .iter()
            .zip(&before)
            .any(|(after, before)| after > before)
    );
    drop(b);
}
