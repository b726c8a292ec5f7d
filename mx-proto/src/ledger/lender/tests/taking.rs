//! Taking credits back from quiet peers, epochs, and what is kept.

use super::*;

/// Everything is lent to peers 0 to 3, who are quiet: 25 each, beside which there are 4 more peers.
fn lent_out(settings: LenderSettings) -> Town {
    let mut town = Town::new(settings, 8);
    for peer in 0..4 {
        assert_eq!(town.want(peer, 25), [(peer, grant(0, 25))]);
    }
    assert_eq!(town.epochs(1), []);
    assert_eq!(town.lender.stats().bank, 20);
    town
}

#[test]
fn nothing_moves_unless_somebody_wants() {
    let settings = LenderSettings {
        low_percent: 80,
        ..scarce(100)
    };
    let mut town = lent_out(settings);
    let before = town.lender.stats();
    for _ in 0..10 {
        for peer in 0..4 {
            town.message(peer, 5);
        }
        assert_eq!(town.epochs(1), []);
    }
    let after = town.lender.stats();
    assert_eq!(after.controls, before.controls);
    assert_eq!((after.lent, after.bank), (before.lent, before.bank));
    assert_eq!(after.epochs, before.epochs + 10);
    assert_eq!(town.lender.deadline(), None);
}

#[test]
fn who_was_quiet_longest_is_asked_first_and_keeps_the_minimum() {
    let mut town = lent_out(scarce(100));
    town.message(0, 1);
    assert_eq!(town.epochs(1), []);
    town.message(2, 1);
    town.message(3, 1);
    // 1 has not been heard of since it was lent, then comes 0; 2 and 3 are busy.
    let sent = town.want(7, 25);
    let asked = [(1, Control::Revoke(21)), (0, Control::Revoke(4))];
    assert_eq!(sent[..2], asked);
    assert_eq!(sent[2..], [(7, grant(0, 21)),]);
    assert_eq!((town.loan(1), town.loan(0)), (4, 21));
}

#[test]
fn what_is_asked_for_is_what_is_missing() {
    let mut town = lent_out(scarce(100));
    let sent = town.want(7, 3);
    assert_eq!(sent, [(0, Control::Revoke(3)), (7, grant(0, 3))]);
    assert_eq!(town.peers[0].free(), 22);
}

#[test]
fn one_revoke_is_out_per_peer_and_so_many_in_all() {
    let settings = LenderSettings {
        scavenge: 2,
        revoke_limit: 5,
        ..scarce(100)
    };
    let mut town = lent_out(settings);
    assert!(town.want_only(7, 100));
    assert!(town.want_only(6, 100));
    let mut asked = Vec::new();
    while let Some((peer, word)) = town.lender.poll_control() {
        assert_eq!(word.control, Control::Revoke(5));
        asked.push(peer);
    }
    assert_eq!(asked, [0, 1]);
    assert_eq!(town.lender.stats().asked, 2);
    // However often it looks, or who else wants: nobody is asked twice.
    assert!(town.want_only(5, 100));
    town.lender.tick(at(1500));
    town.lender.tick(at(9000));
    assert_eq!(town.lender.poll_control(), None);
    // An answer makes room for the next.
    assert!(town.lender.on_control(0, Control::Return(0), at(9000)));
    let next = town
        .lender
        .poll_control()
        .map(|(peer, word)| (peer, word.control));
    assert_eq!(next, Some((2, Control::Revoke(5))));
}

#[test]
fn who_gave_nothing_is_not_asked_again_in_the_epoch() {
    let mut town = Town::new(scarce(101), 2);
    town.want(0, 100);
    town.want(1, 1);
    for _ in 0..20 {
        assert_eq!(town.peers[0].pay(200), None);
    }
    town.epochs(1);
    assert_eq!(town.want(1, 10), [(0, Control::Revoke(10))]);
    for _ in 0..10 {
        assert_eq!(town.peers[1].pay(50), None);
        town.message(1, 1);
        town.lender.tick(town.now);
        assert_eq!(town.settle()[..], []);
    }
    // It was short 20 times: a quarter of a quarter of that is forgotten with the third epoch.
    assert_eq!(
        town.lender.deadline(),
        Some(town.now.after(Duration::from_secs(1)))
    );
    assert_eq!(town.epochs(1), [(0, Control::Revoke(64))]);
    town.message(1, 1);
    assert_eq!(
        town.epochs(1),
        [(0, Control::Revoke(64)), (1, grant(0, 64))]
    );
}

#[test]
fn who_wants_is_not_asked() {
    let mut town = lent_out(scarce(100));
    for peer in 0..4 {
        town.arrive(peer, 25);
    }
    // They are quiet afterwards, but want.
    for peer in 0..4 {
        assert_eq!(town.want(peer, 5), []);
    }
    for _ in 0..2 {
        let sent = town.epochs(1);
        let revoked = sent
            .iter()
            .any(|(_, control)| matches!(control, Control::Revoke(_)));
        assert!(!revoked, "{sent:?}");
    }
}

#[test]
fn only_so_much_is_taken_from_one_peer_in_an_epoch() {
    let settings = LenderSettings {
        revoke_limit: 8,
        ..scarce(101)
    };
    let mut town = Town::new(settings, 2);
    town.want(0, 100);
    town.want(1, 1);
    town.epochs(1);
    assert_eq!(
        town.want(1, 50),
        [(0, Control::Revoke(8)), (1, grant(0, 8))]
    );
    assert_eq!(town.want(1, 50), []);
    assert_eq!(town.loan(0), 92);
    // A quarter still counts in the next.
    assert_eq!(town.epochs(1), [(0, Control::Revoke(6)), (1, grant(0, 6))]);
}

#[test]
fn quiet_peers_give_all_when_everybody_has_the_minimum_and_somebody_waits() {
    let mut town = Town::new(scarce(16), 6);
    for peer in 0..4 {
        town.want(peer, 4);
    }
    town.epochs(1);
    let sent = town.want(5, 6);
    assert_eq!(
        sent[..2],
        [(0, Control::Revoke(4)), (1, Control::Revoke(2))]
    );
    assert_eq!((town.loan(0), town.loan(1)), (0, 2));
    // Who has nothing asks first, and gets some.
    town.peers[0].on_epoch();
    let sent = town.want(0, 1);
    assert_eq!(sent.last(), Some(&(0, grant(0, 1))));
}

#[test]
fn quiet_peers_keep_the_minimum_from_who_has_something() {
    let mut town = Town::new(scarce(16), 4);
    for peer in 0..4 {
        town.want(peer, 4);
    }
    town.epochs(1);
    town.message(3, 4);
    assert_eq!(town.want(3, 100), []);
    assert_eq!(town.epochs(3), []);
    assert!((0..4).all(|peer| town.loan(peer) == 4));
}

#[test]
fn credits_that_are_owed_to_a_quiet_peer_are_kept_without_asking() {
    let mut town = lent_out(scarce(100));
    town.arrive(0, 20);
    town.lender.taken(0, 20);
    for peer in 1..4 {
        town.arrive(peer, 1);
    }
    town.epochs(1);
    for peer in 1..4 {
        town.arrive(peer, 1);
    }
    let sent = town.want(7, 21);
    assert_eq!(sent[0], (0, Control::Revoke(1)));
    let account = town.account(0);
    assert_eq!((account.owed, account.kept), (0, 20));
    assert_eq!(town.lender.stats().kept, 20);
    // The peer does not know: its credits seem to be under way, and come home when it is lent more.
    assert_eq!(town.peers[0].used(), 20);
    town.lender.close(1);
    town.lender.taken(1, 2);
    town.peers[0].on_epoch();
    assert_eq!(town.want(0, 15), [(0, grant(15, 0))]);
    assert_eq!((town.peers[0].used(), town.account(0).kept), (5, 5));
    assert_eq!(town.peers[0].lies(), 0);
}

#[test]
fn who_has_nothing_gets_what_the_busy_have_above_their_share() {
    // All is lent to two peers who never rest.
    let mut town = Town::new(scarce(40), 4);
    town.want(0, 20);
    town.want(1, 20);
    town.arrive(0, 20);
    town.arrive(1, 20);
    assert_eq!(town.want(2, 4), []);
    assert_eq!(town.want(3, 4), []);
    // The next message that the host takes serves the first of them, the one after that the second.
    town.lender.taken(0, 4);
    assert_eq!(town.settle(), [(2, grant(0, 4))]);
    town.lender.taken(1, 4);
    assert_eq!(town.settle(), [(3, grant(0, 4))]);
    assert_eq!([0, 1, 2, 3].map(|peer| town.loan(peer)), [16, 16, 4, 4]);
    // Nobody waits any more: what is taken goes home.
    town.lender.taken(0, 4);
    assert_eq!(town.lender.ride(0).count, 4);
}

#[test]
fn with_more_peers_than_credits_they_take_turns() {
    let mut town = Town::new(scarce(1), 3);
    assert_eq!(town.want(0, 1), [(0, grant(0, 1))]);
    town.arrive(0, 1);
    assert_eq!(town.want(1, 1), []);
    assert_eq!(town.want(2, 1), []);
    assert_eq!(town.want(0, 1), []);
    let mut order = Vec::new();
    let mut at = 0;
    for _ in 0..9 {
        town.lender.taken(at, 1);
        let sent = town.settle();
        assert_eq!(sent.len(), 1, "{sent:?}");
        at = sent[0].0;
        order.push(at);
        town.arrive(at, 1);
        assert_eq!(town.want(at, 1), []);
    }
    assert_eq!(order, [1, 2, 0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn busy_peers_are_asked_when_somebody_has_nothing() {
    let mut town = Town::new(scarce(100), 4);
    town.want(0, 100);
    town.epochs(1);
    town.message(0, 5);
    // In the same epoch; it has used 5 at once, so 95 are to be had.
    let sent = town.want(1, 10);
    assert_eq!(sent, [(0, Control::Revoke(10)), (1, grant(0, 10))]);
    // Who has some waits for the epoch to end.
    assert_eq!(town.want(1, 10), []);
    let sent = town.epochs(1);
    assert_eq!(sent, [(0, Control::Revoke(10)), (1, grant(0, 10))]);
}

#[test]
fn lending_that_leaves_the_bank_low_is_made_good_by_the_quiet() {
    let settings = LenderSettings {
        low_percent: 20,
        ..scarce(100)
    };
    let mut town = Town::new(settings, 8);
    town.want(0, 70);
    town.epochs(1);
    // Low is below 24 of 120: the 6 missing are asked for though nobody waits.
    let sent = town.want(1, 12);
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent.contains(&(1, grant(0, 12))) && sent.contains(&(0, Control::Revoke(6))));
    assert_eq!(town.lender.stats().bank, 20 + 24);
    assert_eq!(town.epochs(3), []);
}

#[test]
fn one_call_looks_at_so_many_peers_and_the_next_goes_on() {
    let peers = 2000;
    let mut town = Town::new(scarce(2 * peers), peers + 1);
    for peer in 0..peers {
        town.want(peer, 2);
        town.arrive(peer, 2);
    }
    town.epochs(2);
    let spent = |town: &Town| {
        let records = town.lender.records.iter();
        records
            .filter(|record| record.flags.any(Flags::SPENT))
            .count()
    };
    assert_eq!(spent(&town), 0);
    // Nobody has anything to give, and one call does not find that out.
    assert_eq!(town.want(peers, 5), []);
    assert_eq!(spent(&town), 512);
    for looked in [1024, 1536, 2000, 2000] {
        town.lender.tick(town.now);
        assert_eq!((spent(&town), town.lender.poll_control()), (looked, None));
    }
    // What the host takes of one that has more than others serves it.
    town.lender.taken(3, 2);
    assert_eq!(town.settle(), [(peers, grant(0, 1))]);
}

#[test]
fn the_end_of_an_epoch_is_told_once_to_each_peer() {
    let mut town = Town::new(plenty(), 3);
    assert!(!town.lender.ride(0).epoch);
    town.epochs(1);
    assert!(town.lender.ride(0).epoch && !town.lender.ride(0).epoch);
    assert!(town.lender.on_control(2, Control::Want(1), town.now));
    let word = town.lender.poll_control().map(|(_, word)| word.epoch);
    assert_eq!(word, Some(true));
    assert!(!town.lender.ride(2).epoch);
    town.epochs(5);
    assert!(town.lender.ride(0).epoch && !town.lender.ride(0).epoch);
}

#[test]
fn messages_end_epochs_too() {
    let settings = LenderSettings {
        epoch_messages: 50,
        ..plenty()
    };
    let mut town = Town::new(settings, 3);
    for _ in 0..120 {
        town.message(0, 1);
    }
    assert_eq!(town.lender.stats().epochs, 2);
}

#[test]
fn a_wish_of_somebody_who_has_some_is_forgotten_after_two_epochs() {
    let mut town = Town::new(scarce(50), 2);
    town.want(0, 50);
    town.arrive(0, 50);
    assert_eq!(town.want(0, 5), []);
    assert_eq!(town.lender.stats().waiting, 1);
    assert!(town.lender.deadline().is_some());
    assert_eq!(town.epochs(2), []);
    assert_eq!(town.lender.stats().waiting, 0);
    assert_eq!(town.lender.deadline(), None);
    // What it waits for still comes.
    town.lender.taken(0, 50);
    assert_eq!(town.settle(), [(0, grant(50, 0))]);
}

#[test]
fn a_wish_that_ends_a_long_rest_is_as_old_as_the_next_tick() {
    let mut town = Town::new(scarce(50), 2);
    town.want(0, 50);
    town.arrive(0, 50);
    town.lender.tick(town.now);
    assert_eq!(town.lender.deadline(), None);
    // Nobody tells the time as long as nobody wants anything.
    town.lender.rest();
    assert_eq!(town.want(0, 5), []);
    town.now = town.now.after(Duration::from_secs(3600));
    town.lender.tick(town.now);
    assert_eq!(town.lender.stats().waiting, 1);
    assert_eq!(town.epochs(2), []);
    assert_eq!(town.lender.stats().waiting, 0);
}

#[test]
fn a_revoke_that_was_not_sent_yet_is_dropped_when_the_peer_wants() {
    let mut town = lent_out(scarce(100));
    assert!(town.want_only(7, 5));
    assert_eq!(town.lender.stats().asked, 1);
    town.arrive(0, 25);
    assert!(town.want_only(0, 5));
    let sent = town.settle();
    assert!(!sent.contains(&(0, Control::Revoke(5))), "{sent:?}");
    assert_eq!(town.lender.stats().revoked, town.lender.stats().returned);
}

#[test]
fn a_revoke_ends_with_its_peer() {
    let mut town = lent_out(scarce(100));
    assert!(town.want_only(7, 21));
    let asked = town
        .lender
        .poll_control()
        .map(|(peer, word)| (peer, word.control));
    assert_eq!(asked, Some((0, Control::Revoke(21))));
    town.lender.close(0);
    assert_eq!(town.lender.stats().asked, 0);
    assert_eq!(town.settle(), [(7, grant(0, 21))]);
    // Its next life knows nothing of it.
    town.lender.open(0, true, town.now);
    assert!(!town.lender.on_control(0, Control::Return(1), town.now));
}
