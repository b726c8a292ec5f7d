//! Links without a fabric, in virtual time.

use super::*;

const SECOND: u64 = 1_000_000_000;
const PEER: Peer = Peer {
    address: 1,
    link: 2,
    cookie: 3,
};

fn at(seconds: u64) -> Instant {
    Instant(seconds * SECOND)
}

fn alarms(links: &mut Links, now: Instant) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    links.tick(now, &mut alarms);
    alarms
}

#[test]
fn a_fabric_that_does_not_answer_is_given_five_seconds() {
    let mut links = Links::new(Duration::from_secs(20));
    let id = links.call(7, PEER, at(1));
    assert_eq!(alarms(&mut links, at(5)), []);
    let down = Alarm::Down(id, LinkDown::TimedOut);
    assert_eq!(alarms(&mut links, at(6)), [down]);
}

#[test]
fn a_fabric_that_does_not_lead_there_is_no_reset() {
    let mut links = Links::new(Duration::from_secs(20));
    let id = links.call(7, PEER, at(0));
    let broken = |links: &Links, id| links.of(id).unwrap().broken();
    assert_eq!(broken(&links, id), LinkDown::Unreachable);
    let [carries] = up(&mut links);
    assert_eq!(broken(&links, carries), LinkDown::Reset);
}

#[test]
fn an_end_that_is_offered_stays_until_its_session_ends() {
    let mut links = Links::new(Duration::from_secs(20));
    let id = links.offer(7, at(0));
    for seconds in [1, 30, 3_000] {
        assert_eq!(alarms(&mut links, at(seconds)), []);
    }
    assert_eq!(links.on_frame(id, FrameKind::Packet), FrameEffect::Ignored);
    assert!(links.take(id).is_some());
}

#[test]
fn silent_peer_is_pinged_once_and_fails_in_time() {
    let mut links = Links::new(Duration::from_secs(20));
    let [id] = up(&mut links);
    assert!(links.addressed(id.index(), 8, at(0)).is_none());
    assert!(links.addressed(id.index(), 7, at(0)).is_some());
    assert_eq!(links.on_frame(id, FrameKind::Ping), FrameEffect::Carries);
    assert_eq!(alarms(&mut links, at(4)), []);
    assert_eq!(alarms(&mut links, at(6)), [Alarm::Ping(id)]);
    assert_eq!(alarms(&mut links, at(12)), []);
    let down = Alarm::Down(id, LinkDown::TimedOut);
    assert_eq!(alarms(&mut links, at(20)), [down]);
    assert!(links.addressed(id.index(), 7, at(20)).is_some());
    assert_eq!(alarms(&mut links, at(22)), []);
}

#[test]
fn death_is_noticed_on_time_not_a_round_later() {
    for millis in [100, 1_000, 20_000, 1_000_000] {
        let keepalive = Duration::from_millis(millis);
        let mut links = Links::new(keepalive);
        let [id] = up(&mut links);
        let last = at(1).after(keepalive / 37);
        links.addressed(id.index(), 7, last).unwrap();
        links.on_frame(id, FrameKind::Packet);
        let (mut now, mut seen) = (last, Vec::new());
        while seen
            .last()
            .is_none_or(|(alarm, _)| *alarm == Alarm::Ping(id))
        {
            now = links.deadline().unwrap().max(now);
            let found = alarms(&mut links, now);
            seen.extend(found.into_iter().map(|alarm| (alarm, now.since(last))));
        }
        let down = Alarm::Down(id, LinkDown::TimedOut);
        let [(ping, pinged), (end, ended)] = seen[..] else {
            panic!("{seen:?}");
        };
        assert_eq!((ping, end), (Alarm::Ping(id), down));
        let late = pinged.checked_sub(keepalive / 4).unwrap();
        assert!(late <= LOOK_EVERY, "{keepalive:?}: asked {late:?} late");
        let late = ended.checked_sub(keepalive).unwrap();
        assert!(late <= LOOK_EVERY, "{keepalive:?}: noticed {late:?} late");
    }
}

#[test]
fn an_absence_is_no_silence_of_anyone() {
    let mut links = Links::new(Duration::from_secs(20));
    let greeted = links.call(7, PEER, at(0));
    let [carries] = up(&mut links);
    let early = Frame {
        kind: FrameKind::Packet,
        number: 1,
        link: 0,
        cookie: 7,
    };
    assert!(links.hold(carries, &early, &[], at(0)));
    let minute = at(60);
    links.forgive(Duration::from_secs(60), minute);
    assert_eq!(alarms(&mut links, minute), []);
    let silent = minute.after(Duration::from_secs(5));
    let found = alarms(&mut links, silent);
    assert!(found.contains(&Alarm::Down(greeted, LinkDown::TimedOut)));
    assert!(found.contains(&Alarm::Down(carries, LinkDown::Reset)));
}

/// Creates links that are up, with separate peers.
fn up<const N: usize>(links: &mut Links) -> [LinkId; N] {
    [(); N].map(|()| {
        let id = links.offer(7, at(0));
        links.greeted(id, PEER);
        id
    })
}

#[test]
fn doubted_peer_without_an_answer_fails_when_silent() {
    let mut links = Links::new(Duration::from_secs(20));
    let [dead, talks, answers, idle] = up(&mut links);
    assert_eq!(alarms(&mut links, at(1)), []);
    for id in [dead, talks, answers] {
        assert!(links.probe_peer(id, at(1)));
        assert!(!links.probe_peer(id, at(1)), "asked twice");
    }
    // Frames from before the peer's death arrive, and do not clear the suspicion.
    let later = at(1).after(LAST_WORDS / 2);
    links.addressed(talks.index(), 7, later).unwrap();
    links.trust(answers);
    let down = |id| Alarm::Down(id, LinkDown::Reset);
    assert!(links.deadline().unwrap() < at(1).after(LAST_WORDS));
    assert_eq!(alarms(&mut links, later), []);
    let (first, second) = (at(1).after(LAST_WORDS), later.after(LAST_WORDS));
    assert_eq!(alarms(&mut links, first), [down(dead)]);
    links.take(dead).unwrap();
    assert_eq!(alarms(&mut links, second), [down(talks)]);
    links.take(talks).unwrap();
    // Live peers are pinged again only after the usual silence.
    let pings = [Alarm::Ping(answers), Alarm::Ping(idle)];
    assert_eq!(alarms(&mut links, at(6)), pings);
}

#[test]
fn only_links_on_which_a_peer_can_answer_are_doubted() {
    let mut links = Links::new(Duration::from_secs(20));
    let offered = links.offer(7, at(0));
    let [closing] = up(&mut links);
    links.closing(closing, at(0));
    for id in [offered, closing, LinkId::new(99, 99)] {
        assert!(!links.probe_peer(id, at(0)));
    }
    // For a peer that has sent nothing, the fabric is in doubt.
    let greeting = links.call(9, PEER, at(0));
    assert!(!links.probe_peer(greeting, at(0)));
    let down = Alarm::Down(greeting, LinkDown::TimedOut);
    assert_eq!(alarms(&mut links, at(0).after(LAST_WORDS)), [down]);
}

#[test]
fn both_ends_share_a_binding_unique_to_the_link() {
    let mut links = Links::new(Duration::from_secs(20));
    let peer = |cookie| Peer { cookie, ..PEER };
    let of = |links: &Links, id| links.of(id).unwrap().binding();
    let called = links.offer(9, at(0));
    assert_eq!(of(&links, called), [0, 0], "the peer is not there yet");
    links.greeted(called, peer(7));
    let calls = links.call(7, peer(9), at(0));
    assert_eq!(of(&links, calls), [7, 9]);
    assert_eq!(of(&links, called), [7, 9]);
    // A relay has a separate cookie on each side.
    let relayed = links.offer(9, at(0));
    links.greeted(relayed, peer(8));
    assert_ne!(of(&links, calls), of(&links, relayed));
}

#[test]
fn closing_link_ends_when_acknowledged_or_overdue() {
    let mut links = Links::new(Duration::from_secs(20));
    let [told] = up(&mut links);
    links.closing(told, at(1));
    let (left, leaving) = (links.depart(PEER, at(1)), links.depart(PEER, at(1)));
    links.of_mut(leaving).unwrap().slots = 1;
    let gone = alarms(&mut links, at(1));
    assert!(gone.contains(&Alarm::Gone(left)));
    assert!(!gone.contains(&Alarm::Gone(told)) && !gone.contains(&Alarm::Gone(leaving)));
    let gone = alarms(&mut links, at(2));
    assert!(gone.contains(&Alarm::Gone(told)) && gone.contains(&Alarm::Gone(leaving)));
}

#[test]
fn frames_before_their_turn_are_bounded_on_all_links_together() {
    let mut links = Links::new(Duration::from_secs(20));
    let early = Frame {
        kind: FrameKind::Packet,
        number: 1,
        link: 0,
        cookie: 7,
    };
    let body = vec![0; 4_000_000];
    let mut kept = Vec::new();
    for _ in 0..16 {
        let id = links.offer(7, at(0));
        let before = links.held;
        assert!(!links.hold(id, &early, &body, at(0)), "before its Hello");
        assert_eq!(links.held, before);
        links.greeted(id, PEER);
        assert!(links.hold(id, &early, &body, at(0)));
        kept.push(id);
    }
    let [id] = up(&mut links);
    assert!(!links.hold(id, &early, &body, at(0)), "one too many");
    links.take(id).unwrap();
    let next = links.of_mut(kept[0]).unwrap().sequence.arrived(0);
    assert_eq!(next, crate::sequence::FrameOrder::InOrder);
    assert!(links.next_held(kept[0], at(0)).is_some());
    assert!(links.next_held(kept[0], at(0)).is_none());
    for id in kept {
        links.take(id).unwrap();
    }
    assert_eq!(links.held, 0);
}

#[test]
fn an_old_name_leads_nowhere() {
    let mut links = Links::new(Duration::from_secs(20));
    let old = links.offer(7, at(0));
    links.take(old).unwrap();
    let new = links.offer(7, at(0));
    assert_eq!(old.index(), new.index());
    assert!(links.of(old).is_none() && links.take(old).is_none());
    assert!(links.of(new).is_some());
}
