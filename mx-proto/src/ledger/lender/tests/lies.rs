//! Every fault, and what becomes of who has too many.

use super::*;
use crate::ledger::Fault;

fn faults(lender: &mut Lender) -> Vec<(u32, Fault)> {
    std::iter::from_fn(|| lender.poll_fault()).collect()
}

/// Three lies are forgiven; the fourth fails.
fn four_times(lie: impl Fn(&mut Town) -> bool, fault: Fault) {
    let mut town = Town::new(plenty(), 2);
    let before = town.lender.stats();
    for strike in 1..=3 {
        assert!(!lie(&mut town), "{fault}");
        assert_eq!(town.account(0).strikes, strike, "{fault}");
        assert_eq!(faults(&mut town.lender), []);
    }
    lie(&mut town);
    assert_eq!(faults(&mut town.lender), [(0, fault)]);
    assert_eq!(faults(&mut town.lender), []);
    // From now on it gets nothing and gives nothing.
    assert_eq!(town.lender.arrived(0, byte(1, 0), 1, T0), Arrived::Fail);
    assert_eq!(town.lender.ride(0), CreditByte::NONE);
    assert!(!town.lender.on_control(0, Control::Want(1), T0));
    assert_eq!(town.lender.poll_control(), None);
    let after = town.lender.stats();
    assert_eq!((after.strikes, after.failed), (4, 1));
    assert_eq!(after.lent, before.lent);
    // Nobody else notices.
    assert_eq!(town.account(1).strikes, 0);
    town.message(1, 8);
    // And with it everything it was lent comes back.
    town.lender.close(0);
    assert_eq!(town.lender.stats().lent, u32::from(town.loan(1)));
    assert_eq!(town.lender.open(0, true, T0), 8);
    assert_eq!(town.account(0).strikes, 0);
}

#[test]
fn messages_that_were_not_paid_for_are_dropped() {
    let unpaid = |town: &mut Town| {
        let arrived = town.lender.arrived(0, byte(9, 0), 9, T0);
        assert!(matches!(arrived, Arrived::Unpaid | Arrived::Fail));
        arrived == Arrived::Fail
    };
    four_times(unpaid, Fault::Unpaid);
    let huge = |town: &mut Town| town.lender.arrived(0, byte(15, 0), u32::MAX, T0) == Arrived::Fail;
    four_times(huge, Fault::Unpaid);
}

#[test]
fn a_wrong_count_is_a_lie_but_the_message_comes_in() {
    let wrong = |town: &mut Town| {
        let arrived = town.lender.arrived(0, byte(3, 64), 1, T0);
        if arrived == Arrived::Fail {
            assert_eq!(town.account(0).waiting, 0);
            return true;
        }
        assert_eq!(arrived, Arrived::Paid);
        town.lender.taken(0, 1);
        assert_eq!(town.lender.ride(0).count, 1);
        false
    };
    let mut town = Town::new(plenty(), 1);
    for _ in 0..3 {
        assert!(!wrong(&mut town));
    }
    assert!(wrong(&mut town));
    assert_eq!(faults(&mut town.lender), [(0, Fault::WrongCount)]);
}

#[test]
fn wanting_twice_is_a_lie() {
    let mut town = Town::new(scarce(1), 2);
    town.want(1, 1);
    assert!(town.lender.on_control(0, Control::Want(3), T0));
    for _ in 0..4 {
        assert!(!town.lender.on_control(0, Control::Want(3), T0));
    }
    assert_eq!(faults(&mut town.lender), [(0, Fault::WantedTwice)]);
    // It waits for nothing any more.
    assert_eq!(town.lender.stats().waiting, 0);
}

#[test]
fn returning_what_nobody_asked_for_is_a_lie() {
    let unasked = |town: &mut Town| town.lender.on_control(0, Control::Return(1), T0);
    four_times(unasked, Fault::ReturnedUnasked);
    let nothing = |town: &mut Town| town.lender.on_control(0, Control::Return(0), T0);
    four_times(nothing, Fault::ReturnedUnasked);
}

#[test]
fn a_lenders_words_from_a_borrower_are_lies() {
    let grants = |town: &mut Town| town.lender.on_control(0, grant(8191, 8191), T0);
    four_times(grants, Fault::WrongDirection);
    let revokes = |town: &mut Town| town.lender.on_control(0, Control::Revoke(1), T0);
    four_times(revokes, Fault::WrongDirection);
}

/// 0 has everything and is asked for it; 1 waits.
fn asked() -> Town {
    let mut town = Town::new(scarce(100), 2);
    town.want(0, 100);
    town.epochs(1);
    assert!(town.want_only(1, 50));
    let word = town
        .lender
        .poll_control()
        .map(|(peer, word)| (peer, word.control));
    assert_eq!(word, Some((0, Control::Revoke(50))));
    town
}

#[test]
fn more_than_was_asked_for_is_not_taken() {
    let mut town = asked();
    assert!(!town.lender.on_control(0, Control::Return(51), town.now));
    assert_eq!((town.account(0).strikes, town.loan(0)), (1, 50));
    assert_eq!(town.settle(), [(1, grant(0, 50))]);
}

#[test]
fn more_than_it_has_is_not_taken() {
    let mut town = asked();
    town.arrive(0, 70);
    assert!(!town.lender.on_control(0, Control::Return(50), town.now));
    assert_eq!((town.account(0).strikes, town.loan(0)), (1, 70));
    assert_eq!(town.account(0).free(), 0);
}

#[test]
fn no_answer_is_a_strike_each_time_that_it_was_due() {
    let mut town = asked();
    // Its time begins with the first call that brings one.
    assert_eq!(town.lender.deadline(), Some(town.now));
    town.lender.tick(town.now);
    let due = town.now.after(Duration::from_secs(10));
    for strike in 0..4 {
        assert_eq!(town.account(0).strikes, strike);
        let late = due.after(Duration::from_secs(10) * u32::from(strike));
        town.lender.tick(Instant(late.0 - 1));
        assert_eq!(town.account(0).strikes, strike);
        town.lender.tick(late);
    }
    assert_eq!(faults(&mut town.lender), [(0, Fault::NoAnswer)]);
    assert_eq!(town.lender.stats().asked, 0);
    town.lender.close(0);
    assert_eq!(town.settle(), [(1, grant(0, 50))]);
}

#[test]
fn an_answer_that_is_late_counts() {
    let mut town = asked();
    town.lender.tick(town.now);
    town.now = town.now.after(Duration::from_secs(11));
    town.lender.tick(town.now);
    assert_eq!(town.account(0).strikes, 1);
    assert!(town.lender.on_control(0, Control::Return(50), town.now));
    assert_eq!(town.settle(), [(1, grant(0, 50))]);
    assert_eq!(town.lender.deadline(), None);
}

#[test]
fn who_does_not_answer_holds_up_nobody() {
    let settings = LenderSettings {
        scavenge: 1,
        ..scarce(100)
    };
    let mut town = Town::new(settings, 3);
    town.want(0, 50);
    town.want(1, 50);
    town.epochs(1);
    assert!(town.want_only(2, 10));
    let word = town
        .lender
        .poll_control()
        .map(|(peer, word)| (peer, word.control));
    assert_eq!(word, Some((0, Control::Revoke(10))));
    town.lender.tick(town.now);
    town.now = town.now.after(Duration::from_secs(10));
    town.lender.tick(town.now);
    let sent = town.settle();
    assert_eq!(sent, [(1, Control::Revoke(10)), (2, grant(0, 10))]);
}

#[test]
fn who_keeps_what_it_has_not_used_for_many_epochs_lies() {
    let mut town = Town::new(scarce(100), 2);
    town.want(0, 100);
    // One that really used it all, but long ago, does give it back in time: see the next test.
    for _ in 0..100 {
        town.now = town.now.after(Duration::from_secs(1));
        if !town.lender.on_control(1, Control::Want(5), town.now) {
            town.lender.tick(town.now);
        }
        while let Some((peer, word)) = town.lender.poll_control() {
            assert_eq!(
                (peer, matches!(word.control, Control::Revoke(_))),
                (0, true)
            );
            town.lender.on_control(0, Control::Return(0), town.now);
        }
        // Its impatience is no lie of this test.
        town.lender.records[1].strikes = 0;
        if let Some(fault) = town.lender.poll_fault() {
            assert_eq!(fault, (0, Fault::Hoards));
            return;
        }
    }
    panic!("{:?}", town.lender);
}

#[test]
fn an_honest_peer_gives_back_what_it_no_longer_uses_before_that_is_a_lie() {
    let settings = LenderSettings {
        total: 70_000,
        maximum: u16::MAX,
        lend_limit: u16::MAX,
        revoke_limit: u16::MAX,
        initial: 0,
        lent_percent: 0,
        ..plenty()
    };
    let mut town = Town::new(settings, 2);
    for _ in 0..8 {
        town.want(0, 8191);
    }
    town.arrive(0, 65_528);
    for _ in 0..1000 {
        assert_eq!(town.peers[0].pay(1), None);
    }
    town.lender.taken(0, 65_528);
    while town.peers[0].used() > 0 {
        let byte = town.lender.ride(0);
        town.peers[0].on_ride(byte);
    }
    for _ in 0..20 {
        town.epochs(1);
        town.lender.on_use(1);
        town.lender.want(1, u16::MAX);
        town.lender.pump();
        town.settle();
    }
    assert_eq!(
        (town.account(0).strikes, town.lender.stats().strikes),
        (0, 0)
    );
    assert_eq!(town.loan(1), u16::MAX);
}

#[test]
fn a_failed_peer_that_is_closed_is_not_failed_again() {
    let mut town = Town::new(plenty(), 1);
    for _ in 0..4 {
        town.lender.on_control(0, Control::Return(1), T0);
    }
    town.lender.close(0);
    assert_eq!(faults(&mut town.lender), []);
}
