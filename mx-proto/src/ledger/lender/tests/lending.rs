//! First loans, wants, limits, plain peers, draws, estates.

use super::*;

#[test]
fn what_a_peer_uses_comes_home_with_the_reply() {
    let mut town = Town::new(plenty(), 2);
    assert_eq!(town.peers[1].free(), 8);
    for len in [0, 256, 1000] {
        town.arrive(1, cost(len));
    }
    assert_eq!((town.peers[1].free(), town.account(1).waiting), (2, 6));
    for len in [0, 256, 1000] {
        town.lender.taken(1, cost(len));
        let byte = town.lender.ride(1);
        assert_eq!(u32::from(byte.count), cost(len));
        assert!(town.peers[1].on_ride(byte));
    }
    assert_eq!((town.peers[1].free(), town.account(1).free()), (8, 8));
    assert_eq!(town.settle(), []);
    assert_eq!(town.lender.deadline(), None);
}

#[test]
fn many_credits_go_home_fifteen_at_a_time() {
    let mut town = Town::new(plenty(), 1);
    town.want(0, 32);
    town.arrive(0, 40);
    town.lender.taken(0, 40);
    let counts: Vec<u8> = (0..4).map(|_| town.lender.ride(0).count).collect();
    assert_eq!(counts, [15, 15, 10, 0]);
}

#[test]
fn first_loans_shrink_before_the_room_for_them_has_run_out() {
    let settings = LenderSettings {
        lent_percent: 50,
        ..plenty()
    };
    let mut lender = Lender::new(settings);
    let loans: Vec<u16> = (0..1000).map(|peer| lender.open(peer, true, T0)).collect();
    assert_eq!(loans[0], 8);
    assert!(loans.windows(2).all(|pair| pair[0] >= pair[1]));
    assert!(loans.contains(&4) && loans.contains(&1));
    assert_eq!(loans[999], 0);
    assert_eq!(lender.stats().lent, 2000);
    // Nobody is told anything, and nobody is asked for anything.
    assert_eq!(lender.poll_control(), None);
    assert_eq!(lender.deadline(), None);
}

#[test]
fn a_want_is_answered_with_what_is_owed_and_lent_on_top() {
    let mut town = Town::new(plenty(), 1);
    town.arrive(0, 8);
    town.lender.taken(0, 3);
    assert!(town.want_only(0, 30));
    assert_eq!(town.settle(), [(0, grant(3, 30))]);
    assert_eq!((town.loan(0), town.peers[0].free()), (38, 33));
    assert_eq!(town.lender.stats().granted, 30);
    // Nothing is left to say.
    assert_eq!(town.settle(), []);
}

#[test]
fn what_is_wanted_with_a_message_comes_with_the_reply() {
    let mut town = Town::new(plenty(), 1);
    assert_eq!(town.peers[0].pay(20), None);
    town.message(0, 1);
    // 12 were missing: asked for as 16, and 16 is a code.
    assert_eq!((town.loan(0), town.peers[0].free()), (24, 24));
    assert_eq!(town.settle(), []);
}

#[test]
fn what_a_message_that_was_never_sent_carried_goes_with_the_next() {
    let mut town = Town::new(plenty(), 1);
    town.arrive(0, 8);
    town.lender.taken(0, 8);
    assert_eq!(town.want(0, 20), [(0, grant(8, 20))]);
    town.arrive(0, 20);
    town.lender.taken(0, 20);
    let ride = town.lender.ride(0);
    assert_eq!((ride.count, town.account(0).owed), (15, 5));
    town.lender.unride(0, ride);
    assert_eq!(town.account(0).owed, 20);
    assert_eq!(town.lender.ride(0), ride);
    // One that was about to tell of an epoch tells with the next, too.
    town.now = town.now.after(Duration::from_secs(1));
    town.lender.tick(town.now);
    let ride = town.lender.ride(0);
    assert!(ride.epoch);
    town.lender.unride(0, ride);
    assert_eq!(town.lender.ride(0), ride);
    // Who is not there gets nothing.
    town.lender.close(0);
    town.lender.unride(0, ride);
    town.lender.unride(7, ride);
    assert_eq!(town.lender.stats().lent, 0);
}

#[test]
fn extra_credits_ride_in_the_codes_there_are() {
    let mut town = Town::new(plenty(), 1);
    let control = Control::Want(100);
    assert!(town.lender.on_control(0, control, T0));
    let extras: Vec<u16> = (0..5).map(|_| town.lender.ride(0).extra).collect();
    assert_eq!(extras, [64, 32, 4, 0, 0]);
    // The Want is not answered yet: there is nothing left to answer it with.
    assert_eq!(town.lender.poll_control(), None);
    assert_eq!(town.lender.arrived(0, byte(1, 0), 1, T0), Arrived::Paid);
    town.lender.taken(0, 1);
    let answer = town.lender.poll_control().map(|(_, word)| word.control);
    assert_eq!(answer, Some(grant(1, 0)));
}

#[test]
fn a_want_that_cannot_be_met_is_answered_when_something_comes_home() {
    let mut town = Town::new(scarce(6), 2);
    assert_eq!(town.want(0, 6), [(0, grant(0, 6))]);
    town.arrive(0, 2);
    town.arrive(0, 4);
    assert_eq!(town.want(0, 3), []);
    assert_eq!(town.account(0).wanted, 3);
    // The host takes several; they go together.
    town.lender.taken(0, 2);
    town.lender.taken(0, 4);
    assert_eq!(town.settle(), [(0, grant(6, 0))]);
}

#[test]
fn no_loan_is_above_the_maximum() {
    let settings = LenderSettings {
        maximum: 10,
        ..plenty()
    };
    let mut town = Town::new(settings, 1);
    assert_eq!(town.want(0, 100), [(0, grant(0, 2))]);
    assert_eq!(town.loan(0), 10);
    town.arrive(0, 10);
    assert_eq!(town.want(0, 1), []);
    assert_eq!(town.lender.stats().waiting, 0);
    town.lender.taken(0, 10);
    assert_eq!(town.settle(), [(0, grant(10, 0))]);
}

#[test]
fn only_so_much_is_lent_to_one_peer_in_an_epoch() {
    let settings = LenderSettings {
        lend_limit: 16,
        ..plenty()
    };
    let mut town = Town::new(settings, 1);
    assert_eq!(town.want(0, 10), [(0, grant(0, 10))]);
    assert_eq!(town.want(0, 10), [(0, grant(0, 6))]);
    assert_eq!(town.want(0, 10), []);
    // A quarter still counts in the next.
    assert_eq!(town.epochs(1), []);
    assert_eq!(town.peers[0].pay(100), None);
    town.message(0, 1);
    assert_eq!(town.loan(0), 8 + 16 + 12);
    let settings = LenderSettings {
        lend_limit: 1,
        ..scarce(5)
    };
    let mut town = Town::new(settings, 1);
    assert_eq!(town.want(0, 10), [(0, grant(0, 1))]);
}

#[test]
fn who_has_nothing_is_served_first_and_then_who_has_waited_longest() {
    let mut town = Town::new(scarce(30), 8);
    // The bank has only what comes back.
    assert!(town.lender.draw(20));
    town.want(0, 10);
    town.want(1, 20);
    // Everything is lent, and nobody is quiet or has anything to give.
    town.arrive(0, 10);
    town.arrive(1, 20);
    for peer in [1, 0, 5, 3, 4] {
        assert!(town.want_only(peer, 4));
    }
    assert_eq!(town.settle(), []);
    assert_eq!(town.lender.stats().waiting, 5);
    town.lender.close(7);
    town.lender.open(7, true, T0);
    assert!(town.want_only(7, 1));
    // What comes back now has nobody to go home to.
    town.lender.close(1);
    town.lender.taken(1, 8);
    assert_eq!(town.settle(), [(5, grant(0, 4)), (3, grant(0, 4))]);
    town.lender.taken(1, 4);
    assert_eq!(town.settle(), [(4, grant(0, 4))]);
    town.lender.taken(1, 2);
    assert_eq!(town.settle(), [(7, grant(0, 1)), (0, grant(0, 1))]);
    assert_eq!(town.lender.stats().waiting, 0);
}

#[test]
fn lending_leaves_the_reserve_to_draws() {
    let mut town = Town::new(scarce(30), 2);
    assert!(town.lender.draw(15));
    assert_eq!(town.want(0, 100), [(0, grant(0, 30))]);
    assert_eq!(town.lender.stats().bank, 5);
    town.arrive(0, 30);
    assert!(!town.lender.draw(20));
    assert!(town.lender.draw(5));
    assert!(!town.lender.draw(1));
    town.lender.undraw(15);
    assert_eq!(town.want(1, 1), [], "what was drawn is not lent");
    town.lender.undraw(5);
    // Now the largest there may be can be pulled.
    assert!(town.lender.draw(20));
    assert_eq!(town.lender.stats().draws_refused, 2);
}

#[test]
fn a_peer_that_knows_no_credits_has_an_allotment() {
    let mut town = Town::new(plenty(), 1);
    assert_eq!(town.lender.open(9, false, T0), 0);
    let arrived = |lender: &mut Lender, cost| lender.arrived(9, byte(7, 64), cost, T0);
    let lender = &mut town.lender;
    assert_eq!(arrived(lender, 4), Arrived::Paid);
    assert_eq!(arrived(lender, 3), Arrived::Hold);
    assert_eq!(arrived(lender, 2), Arrived::Paid);
    assert_eq!(arrived(lender, 1), Arrived::Hold);
    assert_eq!((lender.stats().drawn, lender.stats().held), (6, 2));
    lender.taken(9, 4);
    assert_eq!(arrived(lender, 4), Arrived::Paid);
    lender.taken(9, 2);
    lender.taken(9, 4);
    // One that is larger than the allotment comes alone.
    assert_eq!(arrived(lender, 20), Arrived::Paid);
    assert_eq!(arrived(lender, 1), Arrived::Hold);
    lender.taken(9, 20);
    assert_eq!((lender.stats().drawn, lender.stats().strikes), (0, 0));
    assert_eq!(lender.ride(9), CreditByte::NONE);
    assert!(!lender.on_control(9, Control::Want(1), T0));
    // More than there is can never come.
    assert_eq!(arrived(lender, 4001), Arrived::Hold);
    assert_eq!(arrived(lender, u32::MAX), Arrived::Hold);
}

#[test]
fn messages_of_an_earlier_life_hold_their_credits_until_they_are_taken() {
    let mut town = Town::new(plenty(), 1);
    town.arrive(0, 5);
    town.lender.close(0);
    let stats = town.lender.stats();
    assert_eq!((stats.lent, stats.estates, stats.bank), (0, 5, 3995));
    // It comes back twice, and each time leaves something.
    let loan = town.lender.open(0, true, T0);
    town.peers[0] = Borrower::open(loan);
    town.arrive(0, 2);
    let loan = town.lender.open(0, true, T0);
    town.peers[0] = Borrower::open(loan);
    assert_eq!(town.account(0).estate, 7);
    town.arrive(0, 8);
    // Messages of an earlier life go home to nobody.
    town.lender.taken(0, 5);
    assert_eq!(town.lender.ride(0), byte(0, 0));
    town.lender.taken(0, 2);
    assert_eq!((town.account(0).estate, town.account(0).owed), (0, 0));
    town.lender.taken(0, 8);
    assert_eq!(town.lender.ride(0), byte(8, 0));
    assert_eq!(town.lender.stats().estates, 0);
    // Of a peer that knows no credits likewise.
    town.lender.open(1, false, T0);
    assert_eq!(
        town.lender.arrived(1, CreditByte::NONE, 3, T0),
        Arrived::Paid
    );
    town.lender.close(1);
    assert_eq!((town.lender.account(1), town.lender.estate(1)), (None, 3));
    assert_eq!(
        (town.lender.stats().drawn, town.lender.stats().estates),
        (0, 3)
    );
    town.lender.taken(1, 3);
    assert_eq!(town.lender.estate(1), 0);
    assert_eq!(town.lender.stats().bank + town.lender.stats().lent, 4000);
}

#[test]
fn who_is_not_open_has_nothing() {
    let mut lender = Lender::new(plenty());
    for peer in [0, 7, PEER_MAX, PEER_MAX + 1, u32::MAX] {
        assert_eq!(lender.arrived(peer, byte(1, 0), 1, T0), Arrived::Unpaid);
        assert_eq!(lender.ride(peer), CreditByte::NONE);
        assert!(!lender.on_control(peer, Control::Want(1), T0));
        lender.taken(peer, 1);
        lender.close(peer);
        assert_eq!(lender.account(peer), None);
    }
    assert_eq!(lender.open(PEER_MAX + 1, true, T0), 0);
    assert_eq!(lender.stats().unpaid, 5);
    assert_eq!(lender.stats().lent, 0);
    lender.open(3, true, T0);
    assert_eq!(lender.arrived(2, byte(1, 0), 1, T0), Arrived::Unpaid);
}

#[test]
fn loans_up_to_16_bits_work() {
    let settings = LenderSettings {
        total: 200_000,
        maximum: u16::MAX,
        lend_limit: u16::MAX,
        ..plenty()
    };
    let mut town = Town::new(settings, 2);
    for _ in 0..8 {
        town.want(0, 8191);
    }
    assert_eq!((town.loan(0), town.peers[0].free()), (u16::MAX, u16::MAX));
    town.arrive(0, u16::MAX.into());
    assert_eq!(town.lender.arrived(0, byte(1, 0), 1, T0), Arrived::Unpaid);
    town.lender.taken(0, u16::MAX.into());
    assert!(town.want_only(0, 1));
    // A control message carries 13 bits.
    assert_eq!(town.settle(), [(0, grant(8191, 0))]);
    let mut home = 8191;
    for _ in 0..10_000 {
        let byte = town.lender.ride(0);
        town.peers[0].on_ride(byte);
        home += u32::from(byte.count);
    }
    assert_eq!((home, town.peers[0].free()), (u16::MAX.into(), u16::MAX));
}

#[test]
fn a_ledger_of_many_peers_takes_up_32_bytes_each() {
    let mut lender = Lender::new(LenderSettings::default());
    let peers = 1 << 16;
    for peer in 0..peers {
        lender.open(peer, true, T0);
    }
    assert!(lender.stats().memory <= peers as usize * 32 + 1000);
}
