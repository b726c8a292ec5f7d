//! Messages over every port.

use super::*;

const PORTS: [PortChoice; 3] = [PortChoice::Auto, PortChoice::Local, PortChoice::Tcp];

#[test]
fn messages_of_all_sizes_go_both_ways() {
    for port in PORTS {
        let (a, b, to_b) = pair(port);
        for len in [0usize, 1, 8, 4096, 32_768, 32_769, 1 << 20, 8 << 20] {
            let mut out: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
            let mut into = vec![0; len];
            let got = recv(&b, 5, ALL, &mut into);
            let sent = send(&a, to_b, 5, &mut out);
            let got = ended(&b, got);
            assert_eq!((got.code, got.xfer_length as usize), (0, len), "{port:?}");
            assert_eq!(ended(&a, sent).xfer_length as usize, len);
            assert!(into == out);
            let sent = send(&b, got.source, 6, &mut out);
            into.fill(0);
            let back = recv(&a, 6, ALL, &mut into);
            assert_eq!(ended(&a, back).source, to_b);
            assert_eq!(ended(&b, sent).code, 0);
            assert!(into == out);
        }
    }
}

#[test]
fn messages_to_oneself_arrive() {
    for port in PORTS {
        let a = opened(port);
        let own = own_address(a.0).unwrap();
        for len in [0usize, 100, 1 << 20] {
            assert_eq!(connected(&a, &a), own);
            let (mut out, mut into) = (vec![3; len], vec![0; len]);
            let sent = send(&a, own, 1, &mut out);
            let got = recv(&a, 1, ALL, &mut into);
            assert_eq!(ended(&a, got).source, own);
            assert_eq!(ended(&a, sent).code, 0);
            assert!(into == out);
        }
    }
}

#[test]
fn a_queue_of_no_bytes_makes_senders_wait_and_loses_nothing() {
    let params = OpenParams {
        unexpected_bytes: Some(0),
        ..OpenParams::default()
    };
    let (a, b) = (
        opened(PortChoice::Local),
        opened_with(PortChoice::Local, params),
    );
    let to_b = connected(&a, &b);
    let mut out: Vec<[u8; 1000]> = (0..200u8).map(|n| [n; 1000]).collect();
    let sends: Vec<_> = out
        .iter_mut()
        .map(|bytes| send(&a, to_b, 1, bytes))
        .collect();
    for n in 0..200u8 {
        let mut into = [0; 1000];
        let got = recv(&b, 1, ALL, &mut into);
        assert_eq!(ended(&b, got).code, 0);
        assert_eq!(into, [n; 1000]);
    }
    for sent in sends {
        assert_eq!(ended(&a, sent).code, 0);
    }
}

#[test]
fn connecting_tells_why_it_failed() {
    for port in PORTS {
        let (a, b) = (opened(port), opened(port));
        let (nic, endpoint) = name(&b);
        let wrong = connect(a.0, nic, endpoint, KEY + 1, LONG);
        assert_eq!(code(wrong), Code::BadConnectionKey);
        drop(b);
        let absent = connect(a.0, nic, 1000, KEY, LONG);
        assert_eq!(code(absent), Code::ConnectionFailed, "{port:?}");
        let out_of_range = connect(a.0, nic, 70_000, KEY, LONG);
        assert_eq!(code(out_of_range), Code::BadEndpointId, "{port:?}");
    }
}

#[test]
fn an_unknown_nic_is_refused_at_once() {
    let a = opened(PortChoice::Tcp);
    for (nowhere, why) in [
        (NicId(0xffff_1234_5678), "unknown NIC id 0xffff12345678"),
        (
            NicId(1 << 48),
            "0x1000000000000 is no NIC id: it has more than 48 bits",
        ),
    ] {
        let posted = iconnect(a.0, (nowhere, 0), KEY, 0, 0, false).unwrap_err();
        assert_eq!(posted.code(), Code::NicNotFound);
        assert_eq!(posted.to_string(), why);
        assert_eq!(code(connect(a.0, nowhere, 0, KEY, LONG)), Code::NicNotFound);
    }
    assert_eq!(test_any(a.0, 0, 0), Ok(None));
}

#[test]
fn a_peer_that_closes_is_unreachable_and_can_be_connected_again() {
    for port in PORTS {
        let (a, b, to_b) = pair(port);
        let (_, endpoint) = name(&b);
        let (nic, _, session) = decompose(to_b).unwrap();
        set_context(to_b, 0x5e).unwrap();
        let mut byte = [0];
        let waiting = issend(&a, to_b, 0, &mut byte);
        assert_eq!(
            wait_for(a.0, waiting, Some(Duration::from_millis(1))),
            Ok(None)
        );
        drop(b);
        let status = ended(&a, waiting);
        assert_eq!(status.code, StatusCode::EndpointUnreachable as u32);
        assert_eq!(status.source, to_b);
        // Another test may have taken the id meanwhile; it has another session too.
        let again = OpenParams {
            endpoint: Some(endpoint),
            key: KEY,
            ..OpenParams::default()
        };
        let Ok(again) = open(&settings(port), again) else {
            continue;
        };
        let again = Opened(again);
        assert_eq!(connected(&a, &again), to_b);
        assert_eq!(context(to_b), Ok(0x5e));
        let (same, id, other) = decompose(to_b).unwrap();
        assert_eq!((same, id), (nic, endpoint));
        assert_ne!(other, session);
        disconnect(a.0, to_b).unwrap();
        assert_eq!(code(context(to_b)), Code::BadEndpoint);
    }
}

#[test]
fn small_messages_outlive_the_endpoint_that_sent_them() {
    for port in PORTS {
        let (a, b, to_b) = pair(port);
        for n in 0..10u8 {
            let mut out = [n; 100];
            let sent = send(&a, to_b, n.into(), &mut out);
            assert_eq!(ended(&a, sent).code, 0);
        }
        drop(a);
        for n in 0..10u8 {
            let mut into = [0; 100];
            let got = recv(&b, n.into(), ALL, &mut into);
            assert_eq!(ended(&b, got).code, 0);
            assert_eq!(into, [n; 100]);
        }
    }
}

#[test]
fn a_buffered_send_and_a_synchronous_one_are_told_apart() {
    let (a, b, to_b) = pair(PortChoice::Local);
    let (mut one, mut two) = ([1], [2]);
    let small = send(&a, to_b, 1, &mut one);
    assert_eq!(wait_buffered(a.0, small, Some(Duration::ZERO)), Ok(true));
    assert_eq!(wait_buffered(a.0, small, None), Ok(true));
    let large = isend(
        a.0,
        memory(&mut two),
        to_b,
        2,
        9,
        SendMode::Synchronous,
        false,
    )
    .unwrap();
    assert_eq!(wait_buffered(a.0, large, Some(Duration::ZERO)), Ok(false));
    assert_eq!(
        wait_buffered(a.0, large, Some(Duration::from_millis(1))),
        Ok(false)
    );
    assert_eq!(context_of(large), Ok(9));
    let mut into = [0];
    let got = recv(&b, 2, ALL, &mut into);
    assert_eq!(ended(&b, got).code, 0);
    assert_eq!(wait_buffered(a.0, large, LONG), Ok(true));
    assert_eq!(
        code(wait_buffered(b.0, got, Some(Duration::ZERO))),
        Code::BadRequest
    );
    forget(a.0, large).unwrap();
    assert_eq!(code(context_of(large)), Code::BadRequest);
    let probed = probe(b.0, 1, ALL, LONG).unwrap().unwrap();
    assert_eq!((probed.msg_length, probed.xfer_length), (1, 1));
    assert_eq!(peek(a.0, NOW), Ok(Some(small)));
    assert_eq!(
        cancel(a.0, small).map_err(|error| error.code()),
        Err(Code::CancelNotSupported)
    );
}

#[test]
fn a_request_time_out_ends_an_unanswered_request() {
    let (a, _b, to_b) = pair(PortChoice::Local);
    set_timeout(a.0, None, Some(Duration::from_millis(30))).unwrap();
    let mut byte = [0];
    let request = issend(&a, to_b, 0, &mut byte);
    assert_eq!(ended(&a, request).code, StatusCode::Timeout as u32);
    set_timeout(a.0, None, None).unwrap();
    let request = issend(&a, to_b, 0, &mut byte);
    set_timeout(a.0, Some(request), Some(Duration::from_millis(30))).unwrap();
    assert_eq!(ended(&a, request).code, StatusCode::Timeout as u32);
}
