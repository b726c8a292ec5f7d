//! Links without a fabric, and time that goes by as told.

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

fn from() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], 40_000))
}

fn alarms(links: &mut Links, now: Instant) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    links.tick(now, &mut alarms);
    alarms
}

#[test]
fn a_fabric_that_does_not_answer_sends_the_endpoint_to_its_fallback() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let id = links.reserve(7, Some(Route(2)), at(0));
    assert!(links.greet(id, PEER, from(), at(1)));
    assert!(!links.greet(id, PEER, from(), at(1)));
    assert_eq!(alarms(&mut links, at(5)), []);
    let down = Alarm::Down(id, LinkDown::Elsewhere(Route(2)));
    assert_eq!(alarms(&mut links, at(6)), [down]);
}

#[test]
fn a_fabric_that_does_not_lead_there_is_no_reset() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let id = links.reserve(7, Some(Route(2)), at(0));
    let only = links.reserve(8, None, at(0));
    for link in [id, only] {
        assert!(links.greet(link, PEER, from(), at(1)));
    }
    let broken = |links: &Links, id| links.of(id).unwrap().broken();
    assert_eq!(broken(&links, id), LinkDown::Elsewhere(Route(2)));
    assert_eq!(broken(&links, only), LinkDown::Unreachable);
    let [carries] = up(&mut links);
    assert_eq!(broken(&links, carries), LinkDown::Reset);
}

#[test]
fn a_silent_peer_is_asked_once_and_failed_after_the_configured_time() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let id = links.answer(7, PEER, from(), at(0));
    assert!(links.addressed(id.index(), 8, at(0)).is_none());
    assert!(links.addressed(id.index(), 7, at(0)).is_some());
    assert_eq!(links.on_frame(id, FrameKind::Hello), Heard::Carries);
    assert!(links.accept(id));
    assert_eq!(alarms(&mut links, at(4)), []);
    assert_eq!(alarms(&mut links, at(6)), [Alarm::Ping(id)]);
    assert_eq!(alarms(&mut links, at(12)), []);
    let down = Alarm::Down(id, LinkDown::TimedOut);
    assert_eq!(alarms(&mut links, at(20)), [down]);
    assert!(links.addressed(id.index(), 7, at(20)).is_some());
    assert_eq!(alarms(&mut links, at(22)), []);
}

#[test]
fn a_death_is_noticed_when_its_time_is_over_and_not_a_round_later() {
    for millis in [100, 1_000, 20_000, 1_000_000] {
        let keepalive = Duration::from_millis(millis);
        let mut links = Links::new(keepalive, 50);
        let id = links.answer(7, PEER, from(), at(1));
        let last = at(1).after(keepalive / 37);
        links.addressed(id.index(), 7, last).unwrap();
        links.on_frame(id, FrameKind::Packet);
        assert!(links.accept(id));
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
    let mut links = Links::new(Duration::from_secs(20), 50);
    let greeted = links.reserve(7, None, at(0));
    assert!(links.greet(greeted, PEER, from(), at(0)));
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

/// Links that are up, with peers of their own.
fn up<const N: usize>(links: &mut Links) -> [LinkId; N] {
    [(); N].map(|()| {
        let id = links.answer(7, PEER, from(), at(0));
        links.addressed(id.index(), 7, at(0)).unwrap();
        links.on_frame(id, FrameKind::Hello);
        assert!(links.accept(id));
        id
    })
}

#[test]
fn a_doubted_peer_that_does_not_answer_is_failed_once_it_is_silent() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let [dead, talks, answers, idle] = up(&mut links);
    assert_eq!(alarms(&mut links, at(1)), []);
    for id in [dead, talks, answers] {
        assert!(links.doubt(id, at(1)));
        assert!(!links.doubt(id, at(1)), "asked twice");
    }
    // What came before its death is not lost, and does not clear the doubt.
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
    // Those that live are asked again when they have been silent for as long as all others.
    let pings = [Alarm::Ping(answers), Alarm::Ping(idle)];
    assert_eq!(alarms(&mut links, at(6)), pings);
}

#[test]
fn only_links_on_which_a_peer_can_answer_are_doubted() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let waiting = links.answer(7, PEER, from(), at(0));
    let locating = links.reserve(8, None, at(0));
    let [closing] = up(&mut links);
    links.closing(closing, at(0));
    for id in [waiting, locating, closing, LinkId::new(99, 99)] {
        assert!(!links.doubt(id, at(0)));
    }
    // Of a peer that has not said anything it is the fabric that is doubted.
    let greeting = links.reserve(9, Some(Route(2)), at(0));
    assert!(links.greet(greeting, PEER, from(), at(0)));
    assert!(!links.doubt(greeting, at(0)));
    let elsewhere = Alarm::Down(greeting, LinkDown::Elsewhere(Route(2)));
    assert_eq!(alarms(&mut links, at(0).after(LAST_WORDS)), [elsewhere]);
}

/// Alarms that are due by then, when the port looks often.
fn over(links: &mut Links, (since, until): (u64, u64)) -> Vec<Alarm> {
    let step = Duration::from_millis(500);
    let (mut now, mut found) = (at(since), Vec::new());
    while now < at(until) {
        now = now.after(step);
        while let Some(alarm) = links.overdue(now) {
            let (Alarm::Gone(id) | Alarm::Down(id, _) | Alarm::Ping(id)) = alarm;
            links.take(id).unwrap();
            found.push(alarm);
        }
    }
    found
}

#[test]
fn a_stranger_keeps_its_link_for_five_seconds_whatever_it_says() {
    let mut links = Links::new(Duration::from_secs(1000), 50);
    let [silent, talks, known] = [6, 7, 8].map(|cookie| links.answer(cookie, PEER, from(), at(0)));
    for (id, cookie) in [(talks, 7), (known, 8)] {
        links.addressed(id.index(), cookie, at(3)).unwrap();
        links.on_frame(id, FrameKind::Ping);
    }
    assert!(links.accept(known));
    assert_eq!(over(&mut links, (0, 4)), []);
    links.addressed(talks.index(), 7, at(4)).unwrap();
    links.on_frame(talks, FrameKind::Ping);
    // Of the one that has said nothing the endpoint never knew.
    let ends = [Alarm::Gone(silent), Alarm::Down(talks, LinkDown::TimedOut)];
    assert_eq!(over(&mut links, (4, 5)), ends);
    assert_eq!(over(&mut links, (5, 100)), []);
    assert!(links.len() == 1 && links.of(known).is_some());
    assert_eq!((links.strangers.len(), links.places.used()), (0, 1));
    // It is accepted once.
    assert!(links.accept(known));
    assert_eq!(links.places.used(), 1);
    links.take(known).unwrap();
    assert_eq!((links.places.used(), links.deadline()), (0, None));
}

/// Another address than [`from`].
fn elsewhere() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 8], 40_000))
}

#[test]
fn strangers_are_bounded_and_the_oldest_of_the_greediest_source_makes_room() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let other = links.answer(7, PEER, elsewhere(), at(0));
    for _ in 1..STRANGERS_MAX {
        assert_eq!(links.vacancy_for(from()), Vacancy::Free);
        links.answer(7, PEER, from(), at(0));
    }
    // They have had no turn.
    assert_eq!(links.vacancy_for(from()), Vacancy::None);
    links.next_round();
    let first = links.ids()[1];
    for address in [from(), elsewhere()] {
        assert_eq!(links.vacancy_for(address), Vacancy::Of(first));
    }
    // One that has been heard goes last.
    links.on_frame(first, FrameKind::Hello);
    let second = links.ids()[2];
    assert_eq!(links.vacancy_for(elsewhere()), Vacancy::Of(second));
    links.take(second).unwrap();
    assert_eq!(links.vacancy_for(elsewhere()), Vacancy::Free);
    assert!(links.of(other).is_some());
}

#[test]
fn ten_thousand_clients_fit_into_one_machines_share_and_others_get_in() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let mut bound = 0;
    loop {
        let (room, id) = (
            links.vacancy_for(from()),
            links.answer(7, PEER, from(), at(0)),
        );
        if !links.accept(id) {
            assert_eq!(room, Vacancy::None);
            break;
        }
        assert_eq!(room, Vacancy::Free);
        bound += 1;
    }
    assert_eq!(bound, LINKS_MAX / 2);
    assert!(bound > 10_000);
    assert_eq!(links.vacancy_for(elsewhere()), Vacancy::Free);
    let id = links.answer(7, PEER, elsewhere(), at(0));
    assert!(links.accept(id));
    // Links that we begin ourselves have no share.
    let ours = links.reserve(7, None, at(0));
    assert!(links.accept(ours));
    for id in links.ids() {
        links.take(id).unwrap();
    }
    assert_eq!((links.places.used(), links.strangers.len()), (0, 0));
    assert_eq!(links.vacancy_for(from()), Vacancy::Free);
}

#[test]
fn a_stranger_says_no_more_than_an_introduction() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let id = links.answer(7, PEER, from(), at(0));
    let takes = |links: &Links, kind, len| links.of(id).unwrap().takes(kind, len);
    assert!(takes(&links, FrameKind::Packet, INTRODUCTION_MAX));
    assert!(!takes(&links, FrameKind::Packet, INTRODUCTION_MAX + 1));
    assert!(!takes(&links, FrameKind::Reading, 1));
    links.accept(id);
    assert!(takes(&links, FrameKind::Packet, 1 << 20) && takes(&links, FrameKind::Reading, 64));
}

#[test]
fn what_strangers_make_us_hold_is_bounded_and_one_source_has_a_share_of_it() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let early = |number| Frame {
        kind: FrameKind::Packet,
        number,
        link: 0,
        cookie: 7,
    };
    let fill = |address, links: &mut Links| {
        let id = links.answer(7, PEER, address, at(0));
        links.on_frame(id, FrameKind::Hello);
        let held = |number: &u16| links.hold(id, &early(*number), &[0; INTRODUCTION_MAX], at(0));
        let count = (1..u16::MAX).take_while(held).count();
        (id, count * (INTRODUCTION_MAX + 64))
    };
    let (first, bytes) = fill(from(), &mut links);
    assert!(bytes <= HELD_STRANGE_MAX / 2 && bytes > HELD_STRANGE_MAX / 2 - 1000);
    let (_, none) = fill(from(), &mut links);
    assert_eq!(none, 0);
    let (other, bytes) = fill(elsewhere(), &mut links);
    assert!(bytes > HELD_STRANGE_MAX / 5);
    // Once it is bound, its frames do not count as a stranger's.
    links.accept(first);
    let held = links.held;
    let (_, again) = fill(from(), &mut links);
    assert!(again > HELD_STRANGE_MAX / 5 && links.held > held);
    for id in links.ids() {
        links.take(id).unwrap();
    }
    assert!(links.of(other).is_none());
    assert_eq!((links.held, links.held_strange.used()), (0, 0));
}

#[test]
fn both_ends_of_a_link_have_the_same_binding_and_no_two_links_have() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let peer = |cookie| Peer { cookie, ..PEER };
    let asks = links.reserve(7, None, at(0));
    let of = |links: &Links, id| links.of(id).unwrap().binding();
    assert_eq!(of(&links, asks), [0, 0], "the peer is not there yet");
    links.greet(asks, peer(9), from(), at(0));
    let answers = links.answer(9, peer(7), from(), at(0));
    assert_eq!(of(&links, asks), [7, 9]);
    assert_eq!(of(&links, answers), [7, 9]);
    // A relay has a cookie of its own on each side.
    let relayed = links.answer(9, peer(8), from(), at(0));
    assert_ne!(of(&links, asks), of(&links, relayed));
}

#[test]
fn a_closing_link_goes_when_its_peer_knows_and_all_has_left_or_its_time_is_over() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let told = links.answer(7, PEER, from(), at(0));
    links.on_frame(told, FrameKind::Hello);
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
    let mut links = Links::new(Duration::from_secs(20), 50);
    let early = Frame {
        kind: FrameKind::Packet,
        number: 1,
        link: 0,
        cookie: 7,
    };
    let body = vec![0; 4_000_000];
    let mut kept = Vec::new();
    for _ in 0..16 {
        let id = links.answer(7, PEER, from(), at(0));
        let before = links.held;
        assert!(!links.hold(id, &early, &body, at(0)), "of a stranger");
        assert_eq!(links.held, before);
        links.on_frame(id, FrameKind::Hello);
        links.accept(id);
        assert!(links.hold(id, &early, &body, at(0)));
        kept.push(id);
    }
    let id = links.answer(7, PEER, from(), at(0));
    links.on_frame(id, FrameKind::Hello);
    links.accept(id);
    assert!(!links.hold(id, &early, &body, at(0)), "one too many");
    links.take(id).unwrap();
    let next = links.of_mut(kept[0]).unwrap().sequence.arrived(0);
    assert_eq!(next, crate::sequence::FrameTurn::Now);
    assert!(links.next_held(kept[0], at(0)).is_some());
    assert!(links.next_held(kept[0], at(0)).is_none());
    for id in kept {
        links.take(id).unwrap();
    }
    assert_eq!(links.held, 0);
}

#[test]
fn an_old_name_leads_nowhere() {
    let mut links = Links::new(Duration::from_secs(20), 50);
    let old = links.reserve(7, None, at(0));
    links.take(old).unwrap();
    let new = links.reserve(7, None, at(0));
    assert_eq!(old.index(), new.index());
    assert!(links.of(old).is_none() && links.take(old).is_none());
    assert!(links.of(new).is_some());
}
