use super::*;
use crate::config::lender_settings;
use crate::match_layout::{MessageType, bits};
use crate::peer::handshake::REQUEST_MAX;
use mx_proto::ledger::{self, CREDIT_COST, Control, ControlWord, CreditByte};
use mx_proto::{
    Arrival, EndpointId, Identity, Kind, MatchBits, Memory, NicId, Outcome, SessionId, Status,
    Verdict,
};
use mx_sys::UserMemory;

fn peer(id: u32) -> PeerKey {
    PeerKey::from_word(1 << 32 | u64::from(id))
}

fn arrival(kind: MessageType, from: u32, tag: u32, length: usize) -> Arrival {
    Arrival {
        source: PartnerId::new(from, 1),
        source_context: peer(from).to_word(),
        identity: Identity {
            nic: NicId(1),
            endpoint: EndpointId(from),
            session: SessionId(1),
        },
        bits: bits(kind, from, tag),
        length: length as u32,
    }
}

/// Of two of this size, the second has to wait.
const BIG: usize = 4 << 20;

/// With room for `total` credits, of which the peers 1 and 2 have been lent 40 each; 3 knows none, and
/// may leave 10 here.
fn inbox_of(total: u32, largest: usize) -> Inbox {
    let knobs = LenderSettings {
        initial: 40,
        minimum: 4,
        maximum: 100,
        lent_percent: 80,
        low_percent: 0,
        fixed: 10,
        ..LenderSettings::default()
    };
    let settings = lender_settings(total as usize * CREDIT_COST, largest, knobs);
    let mut inbox = Inbox::new(settings, largest);
    assert_eq!(inbox.lend_to(peer(1), true), 40);
    assert_eq!(inbox.lend_to(peer(2), true), 40);
    inbox.lend_to(peer(3), false);
    inbox
}

fn paid(arrival: &mut Arrival, count: u32) {
    let byte = CreditByte {
        count: count.min(15) as u8,
        ..CreditByte::NONE
    };
    arrival.bits = byte.put(arrival.bits);
}

/// A message that its sender has paid for, if it knows how to.
fn small(inbox: &mut Inbox, from: u32, tag: u32, body: &[u8]) -> Verdict<UserMemory> {
    let mut arrival = arrival(MessageType::Unexpected, from, tag, body.len());
    if from != 3 {
        paid(&mut arrival, ledger::cost(body.len() as u32));
    }
    inbox.arrived(&arrival, Some(body))
}

/// One for which it has paid a single credit.
fn offered(from: u32, tag: u32, len: usize) -> Arrival {
    let mut arrival = arrival(MessageType::Unexpected, from, tag, len);
    if from != 3 {
        paid(&mut arrival, 1);
    }
    arrival
}

fn large(inbox: &mut Inbox, from: u32, tag: u32, len: usize) -> Option<(UserMemory, u64)> {
    match inbox.arrived::<[u8]>(&offered(from, tag, len), None) {
        Verdict::Receive { memory, context } => Some((memory, context)),
        _ => None,
    }
}

fn picked(inbox: &mut Inbox, arrival: &Arrival) -> Option<(UserMemory, u64)> {
    match inbox.pick_up(arrival) {
        Pick::Receive(memory, context) => Some((memory, context)),
        Pick::Drop | Pick::Next | Pick::Wait => None,
    }
}

/// Nothing waits, and all credits are lent, owed or in the bank.
fn assert_empty(inbox: &mut Inbox) {
    assert!(inbox.is_empty());
    assert_eq!((inbox.bytes(), inbox.held()), (0, 0));
    assert_eq!(inbox.lender.stats().drawn, 0);
    for id in 1..3 {
        let waiting = inbox.lender.account(id).map(|account| account.waiting);
        assert_eq!(waiting, Some(0));
    }
}

fn received(inbox: &mut Inbox, context: u64, length: usize, status: Status) {
    let outcome = Outcome {
        kind: Kind::Recv,
        status,
        partner: PartnerId::new(0, 0),
        bits: MatchBits(0),
        length: length as u32,
        transferred: length as u32,
        announced: true,
        matched: true,
    };
    inbox.on_received(context, &outcome.at_once(context));
}

fn tags(inbox: &mut Inbox) -> Vec<i32> {
    std::iter::from_fn(|| inbox.pop()).map(|m| m.tag).collect()
}

#[test]
fn a_large_message_is_not_overtaken_by_its_own_sender_but_by_others() {
    let mut inbox = inbox_of(20_000, 1 << 18);
    let (mut memory, context) = large(&mut inbox, 1, 10, 200 << 10).unwrap();
    assert!(matches!(small(&mut inbox, 1, 11, b"x"), Verdict::Finished));
    assert!(matches!(small(&mut inbox, 2, 20, b"y"), Verdict::Finished));
    assert_eq!(tags(&mut inbox), [20]);
    assert!(inbox.holds(peer(1)) && !inbox.holds(peer(2)));
    memory.fill(0, 200 << 10, &vec![7u8; 200 << 10][..], 0);
    drop(memory);
    received(&mut inbox, context, 200 << 10, Status::Success);
    let first = inbox.pop().unwrap();
    assert_eq!((first.tag, first.buffer.len()), (10, 200 << 10));
    assert_eq!(tags(&mut inbox), [11]);
    assert_empty(&mut inbox);
}

#[test]
fn peers_have_turns_and_each_one_s_messages_stay_in_order() {
    let mut inbox = inbox_of(20_000, 100);
    for tag in 10..14 {
        small(&mut inbox, 1, tag, b"x");
    }
    small(&mut inbox, 2, 20, b"x");
    small(&mut inbox, 2, 21, b"x");
    assert_eq!(inbox.first_peer(), Some(peer(1)));
    assert_eq!(inbox.pop().unwrap().tag, 10);
    // Who comes now stands behind those who have not had their turn, and before nobody's second one.
    small(&mut inbox, 3, 30, b"x");
    assert_eq!(tags(&mut inbox), [20, 11, 30, 21, 12, 13]);
    assert_empty(&mut inbox);
}

#[test]
fn messages_of_one_peer_under_two_names_are_handed_out_by_age() {
    let mut inbox = inbox_of(20_000, 100);
    for (id, tag) in [(2, 0), (1, 1), (3, 30), (1, 2), (2, 3), (1, 4), (2, 5)] {
        small(&mut inbox, id, tag, b"x");
    }
    inbox.rename(peer(1), peer(2));
    assert_eq!(tags(&mut inbox), [0, 30, 1, 2, 3, 4, 5]);
    // Whose new name has nothing here keeps its turn.
    for (id, tag) in [(1, 10), (3, 30), (1, 11)] {
        small(&mut inbox, id, tag, b"x");
    }
    inbox.rename(peer(1), peer(2));
    assert!(inbox.holds(peer(2)) && !inbox.holds(peer(1)));
    assert_eq!(tags(&mut inbox), [10, 30, 11]);
    assert_empty(&mut inbox);
}

#[test]
fn a_large_message_that_fails_lets_the_rest_through_and_gives_its_room_back() {
    let mut inbox = inbox_of(20_000, 1 << 18);
    let (memory, context) = large(&mut inbox, 1, 10, 1000).unwrap();
    small(&mut inbox, 1, 11, b"x");
    drop(memory);
    received(&mut inbox, context, 1000, Status::Cancelled);
    assert_eq!(tags(&mut inbox), [11]);
    assert_empty(&mut inbox);
}

#[test]
fn what_the_bank_cannot_pay_stays_with_the_endpoint_in_order_and_others_go_on() {
    let mut inbox = inbox_of(20_000, BIG);
    let first = large(&mut inbox, 1, 1, BIG).unwrap();
    assert!(large(&mut inbox, 1, 2, BIG).is_none());
    // It could be had, but for the one before it.
    assert!(matches!(small(&mut inbox, 1, 3, b""), Verdict::Continue));
    assert!(matches!(small(&mut inbox, 2, 4, b""), Verdict::Finished));
    assert!(!inbox.wants_more());
    drop(first.0);
    received(&mut inbox, first.1, BIG, Status::Success);
    assert_eq!(tags(&mut inbox), [4, 1]);
    assert!(inbox.wants_more());
    assert_eq!(inbox.wanted().unwrap().0, peer(1));
    let (memory, context) = picked(&mut inbox, &offered(1, 2, BIG)).unwrap();
    let mut waiting = arrival(MessageType::Unexpected, 1, 3, 0);
    paid(&mut waiting, 1);
    let (second, behind) = picked(&mut inbox, &waiting).unwrap();
    drop((memory, second));
    received(&mut inbox, behind, 0, Status::Success);
    assert!(tags(&mut inbox).is_empty());
    received(&mut inbox, context, BIG, Status::Success);
    inbox.has_all(peer(1));
    assert!(matches!(small(&mut inbox, 1, 5, b""), Verdict::Finished));
    assert_eq!(tags(&mut inbox), [2, 3, 5]);
    assert_empty(&mut inbox);
}

#[test]
fn a_message_that_its_sender_calls_off_while_it_is_held_gives_its_credit_back() {
    let mut inbox = inbox_of(20_000, BIG);
    let (memory, context) = large(&mut inbox, 1, 1, BIG).unwrap();
    assert!(large(&mut inbox, 2, 2, BIG).is_none());
    assert_eq!(inbox.lender.account(2).unwrap().waiting, 1);
    inbox.has_all(peer(2));
    assert_eq!(inbox.lender.account(2).unwrap().waiting, 0);
    assert!(large(&mut inbox, 2, 3, BIG).is_none());
    inbox.lose(peer(2));
    assert_eq!(inbox.lend_to(peer(2), true), 40);
    drop(memory);
    received(&mut inbox, context, BIG, Status::Cancelled);
    assert_empty(&mut inbox);
}

#[test]
fn who_sends_more_than_it_was_lent_is_dropped_and_in_the_end_failed() {
    let mut inbox = inbox_of(20_000, 50_000);
    for tag in 0..40 {
        assert!(matches!(small(&mut inbox, 1, tag, b""), Verdict::Finished));
    }
    assert_eq!(inbox.len(), 40);
    let mut lies = 0;
    while inbox.lender.poll_fault().is_none() {
        small(&mut inbox, 1, 99, b"");
        lies += 1;
        assert!(lies < 100);
    }
    assert_eq!(lies, u64::from(LenderSettings::default().strikes) + 1);
    assert_eq!((inbox.len(), inbox.dropped()), (40, lies));
    assert!(matches!(small(&mut inbox, 2, 7, b""), Verdict::Finished));
    assert_eq!(inbox.len(), 41);
}

#[test]
fn a_wrong_number_of_credits_is_a_lie() {
    let mut inbox = inbox_of(20_000, 50_000);
    for (length, said) in [(1000, 0), (1000, 2), (1000, 3), (0, 2), (4000, 14)] {
        let mut arrival = arrival(MessageType::Unexpected, 1, 0, length);
        paid(&mut arrival, said);
        let body = vec![0; length];
        let verdict = inbox.arrived(&arrival, Some(&body[..]));
        assert!(matches!(verdict, Verdict::Finished));
    }
    assert_eq!(inbox.lender.account(1).unwrap().strikes, 5);
}

#[test]
fn a_peer_that_knows_no_credits_leaves_its_allotment_here_and_the_rest_below() {
    let mut inbox = inbox_of(20_000, 50_000);
    for tag in 0..10 {
        assert!(matches!(small(&mut inbox, 3, tag, b""), Verdict::Finished));
    }
    for tag in 10..12 {
        assert!(matches!(small(&mut inbox, 3, tag, b""), Verdict::Continue));
    }
    let next = offered(3, 10, 0);
    assert!(picked(&mut inbox, &next).is_none());
    assert_eq!(inbox.pop().unwrap().tag, 0);
    assert!(inbox.wants_more());
    let (memory, context) = picked(&mut inbox, &next).unwrap();
    drop(memory);
    received(&mut inbox, context, 0, Status::Success);
    assert!(picked(&mut inbox, &offered(3, 11, 0)).is_none());
    assert_eq!(tags(&mut inbox), (1..11).collect::<Vec<_>>());
    inbox.has_all(peer(3));
    // More than its allotment behind another: it waits below, and then the bank pays.
    assert!(matches!(small(&mut inbox, 3, 11, b""), Verdict::Finished));
    assert!(matches!(
        small(&mut inbox, 3, 12, &[0; 8000]),
        Verdict::Continue
    ));
    let (memory, context) = picked(&mut inbox, &offered(3, 12, 8000)).unwrap();
    drop(memory);
    received(&mut inbox, context, 8000, Status::Success);
    assert_eq!(tags(&mut inbox), [11, 12]);
    inbox.has_all(peer(3));
    assert_empty(&mut inbox);
}

#[test]
fn what_is_never_lent_is_enough_for_the_largest_message_of_who_knows_no_credits() {
    let largest = 100 * 256;
    let mut inbox = inbox_of(180, largest);
    assert_eq!(inbox.lender.stats().bank, ledger::cost(largest as u32));
    let (memory, context) = large(&mut inbox, 1, 1, 20 * 256).unwrap();
    assert!(large(&mut inbox, 3, 2, largest).is_none());
    drop(memory);
    received(&mut inbox, context, 20 * 256, Status::Success);
    assert!(picked(&mut inbox, &offered(3, 2, largest)).is_none());
    assert_eq!(tags(&mut inbox), [1]);
    let (memory, context) = picked(&mut inbox, &offered(3, 2, largest)).unwrap();
    // No other may wait for more than there is.
    assert_eq!(inbox.lender.stats().bank, 0);
    drop(memory);
    received(&mut inbox, context, largest, Status::Success);
    inbox.has_all(peer(3));
    assert_eq!(tags(&mut inbox), [2]);
    assert_empty(&mut inbox);
}

#[test]
fn what_a_message_that_is_too_large_has_paid_goes_home() {
    let mut inbox = inbox_of(20_000, 1000);
    // With its data, and offered.
    assert!(matches!(
        small(&mut inbox, 1, 1, &[0; 1001]),
        Verdict::Finished
    ));
    assert!(large(&mut inbox, 1, 2, 1001).is_none());
    let account = inbox.lender.account(1).unwrap();
    assert_eq!((account.waiting, account.owed, account.strikes), (0, 5, 0));
    // A lie is one also when it is too large.
    let mut unpaid = arrival(MessageType::Unexpected, 1, 3, 1001);
    paid(&mut unpaid, 2);
    inbox.arrived::<[u8]>(&unpaid, None);
    assert_eq!(inbox.lender.account(1).unwrap().strikes, 1);
    // Who knows no credits has paid nothing.
    assert!(matches!(
        small(&mut inbox, 3, 4, &[0; 1001]),
        Verdict::Finished
    ));
    assert_eq!((inbox.len(), inbox.dropped()), (0, 4));
    assert_empty(&mut inbox);
}

#[test]
fn credits_that_ride_on_messages_and_control_messages_are_heard_of_in_order() {
    let mut inbox = inbox_of(20_000, 100);
    let byte = CreditByte {
        count: 3,
        ..CreditByte::NONE
    };
    let plain = bits(MessageType::Expected, 1, 5);
    inbox.arriving(peer(1).to_word(), plain);
    inbox.arriving(peer(1).to_word(), byte.put(plain));
    // That an unexpected message has used some, the ledger hears when it decides about it.
    inbox.arriving(
        peer(1).to_word(),
        byte.put(bits(MessageType::Unexpected, 1, 5)),
    );
    let revoke = ControlWord {
        control: Control::Revoke(4),
        epoch: true,
    };
    let control = arrival(MessageType::Credit, 1, revoke.to_tag(), 0);
    inbox.arrived(&control, Some(&b""[..]));
    let mut forged = control;
    forged.bits = bits(MessageType::Credit, 2, revoke.to_tag());
    inbox.arrived(&forged, Some(&b""[..]));
    assert_eq!(inbox.pop_tiding(), Some((peer(1), Tiding::Ride(byte))));
    assert_eq!(inbox.pop_tiding(), Some((peer(1), Tiding::Control(revoke))));
    assert_eq!(inbox.pop_tiding(), None);
    assert_eq!(inbox.dropped(), 1);
    inbox.arriving(peer(1).to_word(), byte.put(plain));
    inbox.lose(peer(1));
    assert_eq!(inbox.pop_tiding(), None);
}

#[test]
fn messages_with_a_foreign_id_or_from_strangers_or_too_large_are_dropped() {
    let mut inbox = inbox_of(20_000, 100);
    let mut forged = arrival(MessageType::Unexpected, 1, 0, 1);
    forged.bits = bits(MessageType::Unexpected, 2, 0);
    let mut stranger = arrival(MessageType::Unexpected, 1, 0, 1);
    stranger.source_context = 0;
    stranger.bits = bits(MessageType::Unexpected, 0, 0);
    for bad in [
        forged,
        stranger,
        arrival(MessageType::Unexpected, 1, 0, 101),
    ] {
        let verdict = inbox.arrived(&bad, Some(&b"x"[..]));
        assert!(matches!(verdict, Verdict::Finished));
    }
    let mut forged = arrival(MessageType::Expected, 1, 0, 1);
    forged.bits = bits(MessageType::Expected, 2, 0);
    let verdict = inbox.arrived(&forged, Some(&b"x"[..]));
    assert!(matches!(verdict, Verdict::Finished));
    for kind in [0, 1, 7, 9, 0xb, 0xf] {
        let mut odd = arrival(MessageType::Expected, 1, 0, 1);
        odd.bits = MatchBits(kind << 60);
        let verdict = inbox.arrived(&odd, Some(&b"x"[..]));
        assert!(matches!(verdict, Verdict::Finished));
    }
    assert_eq!(inbox.dropped(), 10);
    assert!(inbox.is_empty());
}

#[test]
fn the_handshake_is_kept_apart_and_never_longer_than_allowed() {
    let mut inbox = inbox_of(20_000, 100);
    let request = arrival(MessageType::ConnReq, 1, 0x100, 5);
    inbox.arrived(&request, Some(&b"mx://"[..]));
    let long = arrival(MessageType::ConnReq, 1, 0x100, 9000);
    inbox.arrived::<[u8]>(&long, None);
    inbox.arrived(&long, Some(&vec![0u8; 9000][..]));
    assert_eq!(inbox.pop_note().unwrap().body, b"mx://");
    for _ in 0..2 {
        assert_eq!(inbox.pop_note().unwrap().body.len(), REQUEST_MAX + 1);
    }
    assert!(inbox.pop_note().is_none() && inbox.is_empty());
}

#[test]
fn of_one_partner_few_messages_of_the_handshake_wait() {
    let mut inbox = inbox_of(20_000, 100);
    let call = |from| arrival(MessageType::ConnReq, from, 0x100, 5);
    let mut asked = Vec::new();
    for _ in 0..1000 {
        inbox.arrived(&call(1), Some(&b"mx://"[..]));
        if let Verdict::Receive { context, .. } = inbox.arrived::<[u8]>(&call(2), None) {
            asked.push(context);
        }
    }
    let most = usize::from(NOTES_MAX);
    assert_eq!((inbox.notes(), asked.len()), (most, most));
    // Each that is gone lets the next one in, whatever became of it.
    for context in asked.drain(..) {
        received(&mut inbox, context, 5, Status::Unreachable);
    }
    while inbox.pop_note().is_some() {}
    assert!(inbox.notes_of.is_empty());
    inbox.arrived(&call(1), Some(&b"mx://"[..]));
    assert_eq!(inbox.pop_note().unwrap().body, b"mx://");
}

#[test]
fn a_request_that_was_only_offered_is_received_first() {
    let mut inbox = inbox_of(20_000, 100);
    let request = arrival(MessageType::ConnReq, 1, 0x100, 5);
    for status in [Status::Unreachable, Status::Success] {
        let verdict = inbox.arrived::<[u8]>(&request, None);
        let Verdict::Receive {
            mut memory,
            context,
        } = verdict
        else {
            panic!("{verdict:?}");
        };
        memory.fill(0, 5, &b"mx://"[..], 0);
        drop(memory);
        assert!(inbox.pop_note().is_none());
        received(&mut inbox, context, 5, status);
    }
    assert_eq!(inbox.pop_note().unwrap().body, b"mx://");
    assert!(inbox.pop_note().is_none() && inbox.asked.is_empty());
    assert_empty(&mut inbox);
}

#[test]
fn whose_messages_wait_is_known_without_looking_at_them() {
    let mut inbox = inbox_of(20_000, 100);
    let held = |inbox: &Inbox| [1, 2, 3].map(|id| inbox.holds(peer(id)));
    for (id, tag) in [(1, 10), (2, 20), (1, 11), (2, 21), (1, 12)] {
        small(&mut inbox, id, tag, b"x");
    }
    assert_eq!((held(&inbox), inbox.len()), ([true, true, false], 5));
    assert_eq!(inbox.pop().unwrap().tag, 10);
    inbox.rename(peer(2), peer(1));
    assert_eq!((held(&inbox), inbox.len()), ([true, false, false], 4));
    small(&mut inbox, 2, 22, b"x");
    inbox.forget(peer(1));
    assert_eq!((held(&inbox), inbox.len()), ([false, true, false], 1));
    assert_eq!(tags(&mut inbox), [22]);
    assert_eq!(held(&inbox), [false; 3]);
    small(&mut inbox, 1, 13, b"x");
    assert_eq!(
        (held(&inbox), tags(&mut inbox)),
        ([true, false, false], vec![13])
    );
    assert_empty(&mut inbox);
}

#[test]
fn a_peer_that_is_forgotten_leaves_nothing_behind() {
    let mut inbox = inbox_of(20_000, 1 << 18);
    small(&mut inbox, 1, 1, b"abc");
    let (memory, context) = large(&mut inbox, 1, 2, 50_000).unwrap();
    small(&mut inbox, 1, 3, b"abc");
    small(&mut inbox, 2, 4, b"abc");
    inbox.forget(peer(1));
    drop(memory);
    received(&mut inbox, context, 50_000, Status::Success);
    assert_eq!(tags(&mut inbox), [4]);
    assert_empty(&mut inbox);
}
