//! Tests of sessions by themselves: timers, Hellos, acknowledgements that are due.

use super::*;

#[test]
fn a_pacing_pause_ends_at_its_time_and_is_not_due_again() {
    let (config, mut stats) = (ReliableConfig::default(), ReliableStats::default());
    let (cookie, first) = (2, Seq(1));
    let caller = Some(Caller { cookie, first });
    let mut session = Session::new(Instant(1), 1, first, caller, 1400, &config);
    session.timers.set(Timer::Pacing, Instant(10));
    for (now, due) in [(9, true), (10, false)] {
        assert_eq!(session.on_timer(Instant(now), &config, &mut stats), None);
        assert_eq!(session.deadline(&config) == Instant(10), due, "{now}");
    }
    assert!(session.deadline(&config) > Instant(10));
}

/// Makes a session at time 1 in which we call.
fn calling(config: &ReliableConfig) -> Session {
    Session::new(Instant(1), 1, Seq(1), None, 1400, config)
}

/// Makes a caller's session that a peer with cookie 2 has answered.
fn opened(config: &ReliableConfig) -> Session {
    let mut session = calling(config);
    assert!(session.on_welcome(Instant(1), &Header::new(DatagramKind::Welcome, 1, 2)));
    session
}

#[test]
fn forgotten_session_reopens_after_doubling_pauses() {
    let config = ReliableConfig::default();
    let mut session = opened(&config);
    let mut pauses = Vec::new();
    while session.call_again(Instant(1), &config) {
        pauses.push(session.deadline(&config).since(Instant(1)));
        session.on_welcome(Instant(1), &Header::new(DatagramKind::Welcome, 1, 2));
    }
    let doubled = |n: usize| config.first_rto * (2 << n);
    assert!(pauses.len() > 1);
    assert_eq!(pauses, (0..pauses.len()).map(doubled).collect::<Vec<_>>());
}

#[test]
fn requested_ack_goes_first_and_in_order_ack_last() {
    let config = ReliableConfig::default();
    let now = Instant(1_000_000);
    let due = [
        (Verdict::Next, ASK),
        (Verdict::Early, 0),
        (Verdict::Next, 0),
    ]
    .map(|(verdict, flags)| {
        let mut session = opened(&config);
        session.timers.stop(Timer::Ack);
        let mut header = Header::new(DatagramKind::Data, 1, 2);
        header.flags = flags;
        session.on_segment(now, &header, verdict);
        assert!(session.timers.is_set(Timer::Ack));
        session.timers.next()
    });
    assert!(due[0] == now && now < due[1] && due[1] < due[2], "{due:?}");
}

#[test]
fn peer_without_socket_fails_at_once_or_after_reports() {
    let config = ReliableConfig::default();
    assert!(calling(&config).on_refused());
    let mut session = opened(&config);
    assert!(!session.on_refused());
    assert!((0..100).any(|_| session.on_refused()));
}

#[test]
fn a_session_is_quiet_when_nothing_was_heard_for_a_time() {
    let mut session = opened(&ReliableConfig::default());
    session.timers.stop(Timer::Ack);
    let quiet = |after| session.is_quiet(Instant(1).after(after), Duration::from_secs(1));
    assert!(!quiet(Duration::from_millis(999)) && quiet(Duration::from_secs(1)));
}

#[test]
fn sender_short_of_window_hears_when_half_is_free() {
    for (told, free, at_once) in [(249, 500, true), (250, 500, false), (249, 499, false)] {
        let (now, config) = (Instant(1), ReliableConfig::default());
        let mut session = calling(&config);
        session.on_acknowledged(told);
        session.on_drained(now, free, 1000);
        assert_eq!(session.timers.is_set(Timer::Ack), at_once, "{told} {free}");
    }
}
