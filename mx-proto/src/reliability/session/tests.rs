//! Sessions by themselves: timers, Hellos, acknowledgements that are due.

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

/// A session at time 1 in which we call.
fn calling(config: &ReliableConfig) -> Session {
    Session::new(Instant(1), 1, Seq(1), None, 1400, config)
}

/// A caller's session that a peer with cookie 2 has answered.
fn opened(config: &ReliableConfig) -> Session {
    let mut session = calling(config);
    assert!(session.on_welcome(Instant(1), &Header::new(DatagramKind::Welcome, 1, 2)));
    session
}

#[test]
fn a_forgotten_session_is_opened_again_after_pauses_that_double() {
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
fn a_segment_that_is_asked_for_is_acknowledged_first_and_one_in_order_last() {
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
fn a_peer_without_a_socket_is_dead_at_once_while_connecting_and_after_some_reports_later() {
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
fn a_peer_that_was_told_of_less_than_a_quarter_hears_at_once_that_half_is_free() {
    for (told, free, at_once) in [(249, 500, true), (250, 500, false), (249, 499, false)] {
        let (now, config) = (Instant(1), ReliableConfig::default());
        let mut session = calling(&config);
        session.on_acknowledged(told);
        session.on_drained(now, free, 1000);
        assert_eq!(session.timers.is_set(Timer::Ack), at_once, "{told} {free}");
    }
}
