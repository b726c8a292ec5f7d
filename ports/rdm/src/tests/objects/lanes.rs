//! Lanes: endpoints for one peer, with queues of their own.

use super::*;
use libfabric_sys::abi::FI_ADDR_UNSPEC;

/// Posts a place for the message with a tag.
///
/// # Safety
///
/// `place` and `context` outlive `lane`; nothing looks into the place meanwhile.
unsafe fn receive_tagged(lane: &Lane, place: &mut [u8], tag: u64, context: *mut c_void) {
    let (start, len) = (place.as_mut_ptr(), place.len());
    let none = std::ptr::null_mut();
    // SAFETY: the caller's word.
    let posted = unsafe {
        lane.ep
            .tagged_receive(start, len, none, FI_ADDR_UNSPEC, tag, context)
    };
    posted.unwrap();
}

/// Sends a message of these parts from lane to lane, as soon as there is room.
///
/// # Safety
///
/// The parts and `context` outlive `from`, or the send.
unsafe fn send_tagged(
    (from, to): (&Lane, u64),
    parts: &[&[u8]],
    tag: u64,
    context: *mut c_void,
    poll: impl Fn(),
) {
    let iov = parts.iter().map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    let iov: Vec<_> = iov.collect();
    let none = std::ptr::null_mut();
    post("tagged send", poll, || {
        // SAFETY: the caller's word.
        unsafe { from.ep.tagged_send(&iov, none, to, tag, context) }
    });
}

fn poll_lanes(a: &Lane, b: &Lane) {
    a.poll();
    b.poll();
}

#[test]
fn tagged_messages_go_from_lane_to_lane_into_their_place() {
    with_providers(|library, choice| {
        let (a, b, ..) = pair(library, choice);
        assert_eq!(choice.plan.large, Large::Lanes);
        let from = a.lane();
        let to = b.lane();
        let lane = a.domain.insert(to.ep.address()).unwrap();
        let mut contexts = Contexts::new(4);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let mut places = [vec![0_u8; bytes.len()], vec![0_u8; 1000]];
        // Tags the other way round than they will be sent.
        for (index, tag) in [(0, 11_u64), (1, 12)] {
            let context = contexts.at(index);
            // SAFETY: the places and the contexts outlive the lane.
            unsafe { receive_tagged(&to, &mut places[index], tag, context) };
        }
        // The small one whole, the large one in two segments.
        let (head, tail) = bytes.split_at(1_234_567);
        let messages: [(u64, &[&[u8]]); 2] = [(12, &[&bytes[..1000]]), (11, &[head, tail])];
        for (index, (tag, parts)) in messages.into_iter().enumerate() {
            let context = contexts.at(2 + index);
            let poll = || poll_lanes(&from, &to);
            // SAFETY: the bytes and the contexts outlive the lane.
            unsafe { send_tagged((&from, lane), parts, tag, context, poll) };
        }
        for index in 0..4 {
            let context = contexts.at(index);
            let event = until("tagged message", || {
                let (at_a, at_b) = (from.take_context(context), to.take_context(context));
                at_a.or(at_b)
            });
            assert!(is_done(&event), "{event:?}");
            if let (CqEvent::Done { len, tag, .. }, 0 | 1) = (event, index) {
                assert_eq!((len, tag), (places[index].len(), [11, 12][index]));
            }
        }
        assert!(places[0] == bytes && places[1] == bytes[..1000]);
    });
}

#[test]
fn closing_a_lane_gives_back_a_posted_receive_and_leaves_the_rest_working() {
    with_providers(|library, choice| {
        let (a, b, to_b, _) = pair(library, choice);
        let plan = choice.plan.clone();
        let to = b.lane();
        let from = a.lane();
        let lane = a.domain.insert(to.ep.address()).unwrap();
        let mut contexts = Contexts::new(4);
        let mut place = vec![0_u8; 8 << 20];
        let bytes = vec![1_u8; 8 << 20];
        let mut room = vec![0_u8; 2 * (plan.prefix + plan.slot_bytes)];
        let received = contexts.at(0);
        // SAFETY: `room` and the context outlive `b`.
        unsafe { receive(&b, &mut room, received) };
        // One receive that nothing will match, and one whose message is under way.
        for (index, tag) in [(1, 77_u64), (2, 78)] {
            let context = contexts.at(index);
            // SAFETY: `place` and the contexts outlive the lane; nothing looks into it meanwhile.
            unsafe { receive_tagged(&to, &mut place, tag, context) };
        }
        let (send, poll_both) = (contexts.at(3), || poll_lanes(&from, &to));
        // SAFETY: the bytes and the context outlive the lane.
        unsafe { send_tagged((&from, lane), &[&bytes], 78, send, poll_both) };
        let began = Instant::now();
        assert_eq!(to.ep.close(), Ok(()));
        assert_eq!(from.ep.close(), Ok(()));
        assert!(began.elapsed() < Duration::from_secs(5));
        // Nobody writes there any more.
        place.fill(9);
        for _ in 0..1000 {
            a.poll();
            b.poll();
        }
        assert!(place.iter().all(|byte| *byte == 9), "{}", plan.provider);
        // Whatever was left in the queues is over; the shared endpoints do not care.
        let frame = vec![5_u8; plan.prefix + 32];
        post("inject", || poll(&a, &b), || a.main.inject(&frame, to_b));
        let event = until("receive", || {
            a.poll();
            b.take_context(received)
        });
        assert!(is_done(&event), "{event:?}");
        a.domain.remove(lane);
        // And there can be a lane again.
        b.domain.endpoint(Role::Lane).unwrap();
    });
}

#[test]
fn a_lane_can_be_closed_at_any_moment_of_a_large_message() {
    with_providers(|library, choice| {
        let (a, b, ..) = pair(library, choice);
        let mut contexts = Contexts::new(2);
        let bytes = vec![1_u8; 8 << 20];
        for moment in 0..20 {
            let (from, to) = (a.lane(), b.lane());
            let lane = a.domain.insert(to.ep.address()).unwrap();
            let mut place = vec![0_u8; bytes.len()];
            let (received, send) = (contexts.at(0), contexts.at(1));
            // SAFETY: `place` and the contexts outlive the lane; nothing looks into it meanwhile.
            unsafe { receive_tagged(&to, &mut place, 5, received) };
            let poll_both = || poll_lanes(&from, &to);
            // SAFETY: the bytes and the context outlive the lane.
            unsafe { send_tagged((&from, lane), &[&bytes], 5, send, poll_both) };
            for _ in 0..moment {
                poll_lanes(&from, &to);
            }
            // By turns, the receiver's first or the sender's.
            let (first, second) = if moment % 2 == 0 {
                (to, from)
            } else {
                (from, to)
            };
            assert_eq!(first.ep.close(), Ok(()));
            for _ in 0..100 {
                second.poll();
            }
            assert_eq!(second.ep.close(), Ok(()));
            place.fill(9);
            poll(&a, &b);
            assert!(place.iter().all(|byte| *byte == 9));
            a.domain.remove(lane);
            // Of a lane that is gone nothing is left to ask.
            a.domain.may_sleep();
            b.domain.may_sleep();
        }
    });
}

#[test]
fn one_sleeps_on_a_lane_s_own_descriptor() {
    with_providers(|library, choice| {
        let (a, b, ..) = pair(library, choice);
        let (from, to) = (a.lane(), b.lane());
        let lane = a.domain.insert(to.ep.address()).unwrap();
        let fd = to.ep.wait_fd().expect("software providers have one");
        assert_ne!(Some(fd), b.domain.wait_fd());
        let mut contexts = Contexts::new(4);
        let mut place = [0_u8; 64];
        for (index, number) in [(0, 1_u8), (2, 2)] {
            let (received, send) = (contexts.at(index), contexts.at(index + 1));
            // SAFETY: the place and the contexts outlive the lane.
            unsafe { receive_tagged(&to, &mut place, 5, received) };
            if number == 2 {
                until("rest", || {
                    poll_lanes(&from, &to);
                    (to.ep.may_sleep() && !sleep(fd, 20)).then_some(())
                });
            }
            let bytes = [number; 64];
            // The first one connects, for which both sides must be polled.
            let connect = || match number {
                1 => poll_lanes(&from, &to),
                _ => from.poll(),
            };
            // SAFETY: the bytes and the context outlive the send, which is waited for.
            unsafe { send_tagged((&from, lane), &[&bytes], 5, send, connect) };
            let event = until("receive", || {
                from.poll();
                if number == 2 && to.ep.may_sleep() {
                    assert!(sleep(fd, 5000), "slept through it");
                }
                to.take_context(received)
            });
            assert!(is_done(&event), "{event:?}");
            let sent = until("sent", || {
                to.poll();
                from.take_context(send)
            });
            assert!(is_done(&sent), "{sent:?}");
        }
        assert_eq!(place, [2; 64]);
    });
}

#[test]
fn a_failed_receive_is_an_event_with_a_positive_number() {
    with_providers(|library, choice| {
        let (a, b, ..) = pair(library, choice);
        let from = a.lane();
        let to = b.lane();
        let lane = a.domain.insert(to.ep.address()).unwrap();
        let mut contexts = Contexts::new(2);
        let (received, send) = (contexts.at(0), contexts.at(1));
        let mut place = [0_u8; 10];
        // SAFETY: the place and the context outlive the lane.
        unsafe { receive_tagged(&to, &mut place, 1, received) };
        let bytes = [1_u8; 100];
        let poll_both = || poll_lanes(&from, &to);
        // SAFETY: the bytes and the context outlive the lane.
        unsafe { send_tagged((&from, lane), &[&bytes], 1, send, poll_both) };
        let event = until("truncation", || {
            from.poll();
            to.take_context(received)
        });
        let CqEvent::Failed { errno, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(errno, libfabric_sys::abi::FI_ETRUNC);
    });
}
