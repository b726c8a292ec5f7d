//! Tests of Revokes and narrowing: from which remotes, when, how much.

use super::*;

/// Makes a lender whose first four remotes have been lent everything.
fn rich(remotes: u32) -> Town {
    let mut town = Town::new(&scarce(), remotes);
    for remote in 0..4 {
        town.want(remote, 200);
    }
    assert_eq!(town.flow.stats().lent, 800);
    town
}

#[test]
fn the_longest_quiet_is_asked_for_what_is_above_the_minimum() {
    let mut town = rich(6);
    town.epochs(1);
    for remote in [0, 2, 3] {
        town.message(remote, 1);
    }
    town.epochs(1);
    // The second remote has used nothing since the first epoch: it is the only quiet one. As another remote has none,
    // it may keep none.
    let said = town.want(4, 20);
    assert_eq!(Town::revoked(&said), [(1, 200)]);
    assert_eq!((town.credit_limit(1), town.credit_limit(4)), (0, 24));
    assert_eq!(town.flow.stats().revoked, 200);
    // Some credits are left over, so no other remote is asked.
    assert_eq!(town.want(4, 170), [(4, CreditMessage::Credit)]);
    assert_eq!((town.credit_limit(4), town.flow.stats().free), (200, 200));
}

#[test]
fn no_more_is_asked_for_than_is_wanted() {
    let mut town = rich(6);
    town.epochs(2);
    town.miss(4, 20);
    let said = town.flow.poll(&mut town.all);
    assert!(
        matches!(said, Some((0, CreditMessage::Revoke(200)))),
        "{said:?}"
    );
    assert_eq!(town.flow.poll(&mut town.all), None);
}

#[test]
fn remote_keeps_needed_credits_and_is_asked_when_quiet() {
    let mut town = rich(5);
    town.epochs(2);
    for remote in 1..4 {
        town.message(remote, 1);
    }
    // The first remote has a message that it cannot send, and returns nothing.
    town.miss(4, 16);
    assert_eq!(
        town.flow.poll(&mut town.all),
        Some((0, CreditMessage::Revoke(200)))
    );
    town.tell(0);
    assert_eq!(town.remotes[0].give_back(200, 1), 0);
    assert_eq!(town.flow.returned(&mut town.all, 0, 0), Ok(()));
    for _ in 0..2 {
        assert_eq!(town.run_until_idle(), []);
        town.epochs(1);
        for remote in 1..4 {
            town.message(remote, 1);
        }
        town.flow.note_use(&mut town.all, 4);
    }
    let said = town.run_until_idle();
    assert_eq!(Town::revoked(&said), [(0, 200)]);
    assert_eq!((town.credit_limit(0), town.credit_limit(4)), (0, 16));
}

#[test]
fn unresponsive_remote_is_asked_once_and_blocks_no_other() {
    let settings = Settings {
        bytes: 4000 * CREDIT,
        first: 5,
        ..Settings::default()
    };
    let mut town = Town::new(&settings, 100);
    assert!(town.flow.draw(3500));
    town.epochs(2);
    town.miss(99, 100);
    let ask = |town: &mut Town| {
        let mut asked = Vec::new();
        while let Some((remote, say)) = town.flow.poll(&mut town.all) {
            assert!(matches!(say, CreditMessage::Revoke(_)));
            asked.push(remote);
        }
        asked
    };
    assert_eq!(ask(&mut town), (0..32).collect::<Vec<_>>());
    assert_eq!(town.flow.stats().asked, 32);
    // A remote heard from meanwhile stays out of the lists from which remotes are asked.
    town.flow.file(&mut town.all, 3);
    assert_eq!(town.account(3).place, AccountList::Nowhere);
    // One remote answers, so one more is asked.
    assert_eq!(town.flow.returned(&mut town.all, 7, 0), Ok(()));
    assert_eq!(ask(&mut town), [32]);
    // In the next epoch others are asked.
    town.miss(99, 200);
    town.flow.end_epoch();
    assert_eq!(ask(&mut town), (33..65).collect::<Vec<_>>());
    // The first remote answers much later.
    assert_eq!(town.flow.returned(&mut town.all, 0, 1), Ok(()));
    assert_eq!(town.credit_limit(0), 4);
    assert_eq!(
        town.flow.returned(&mut town.all, 0, 0),
        Err(Violation::NotAsked)
    );
}

#[test]
fn what_is_given_back_was_asked_for_and_there() {
    let mut town = rich(5);
    let unasked = town.flow.returned(&mut town.all, 0, 1);
    assert_eq!(unasked, Err(Violation::NotAsked));
    town.epochs(2);
    for remote in [0, 2, 3] {
        town.message(remote, 1);
    }
    town.miss(4, 8);
    assert_eq!(
        town.flow.poll(&mut town.all),
        Some((1, CreditMessage::Revoke(200)))
    );
    for much in [201, u32::MAX] {
        let answer = town.flow.returned(&mut town.all, 1, much);
        assert_eq!(answer, Err(Violation::NotHad));
    }
    assert_eq!(town.credit_limit(1), 200, "nothing has happened");
    assert_eq!(
        (town.flow.stats().lent, town.flow.stats().violations),
        (800, 3)
    );
    assert_eq!(town.flow.returned(&mut town.all, 1, 200), Ok(()));
    assert_eq!(town.run_until_idle(), [(4, CreditMessage::Credit)]);
}

#[test]
fn busy_remotes_are_not_told_again_of_credits_above_a_share() {
    let mut town = rich(8);
    town.epochs(1);
    // All eight are active, so a share is 100. The first four use their credits.
    for remote in 0..8 {
        town.message(remote, 1);
    }
    for remote in 0..4 {
        town.send(remote, 60);
        town.send(remote, 140);
    }
    for remote in 4..8 {
        town.miss(remote, 200);
    }
    assert_eq!(town.run_until_idle(), []);
    for remote in 0..4 {
        town.take(remote, Payment::Credits(60));
        assert_eq!(
            (town.credit_limit(remote), town.account(remote).due()),
            (140, 0)
        );
    }
    let said = town.run_until_idle();
    assert_eq!(
        said,
        [
            (4, CreditMessage::Credit),
            (5, CreditMessage::Credit),
            (6, CreditMessage::Credit)
        ]
    );
    assert_eq!(
        [4, 5, 6, 7].map(|remote| town.credit_limit(remote)),
        [100, 100, 40, 0]
    );
    for remote in 0..4 {
        town.take(remote, Payment::Credits(140));
        town.tell(remote);
    }
    town.run_until_idle();
    // All have their share; they request more than there is, and nothing moves for that.
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6, 7].map(|remote| town.credit_limit(remote)),
        [100; 8]
    );
    for remote in 0..8 {
        town.message(remote, 1);
    }
    assert_eq!(town.run_until_idle(), []);
    let stats = town.flow.stats();
    assert_eq!((stats.narrowed, stats.lent, stats.revoked), (400, 800, 0));
    assert_eq!((stats.waiting, stats.poor), (4, 0));
}

#[test]
fn what_a_quiet_remote_was_not_told_of_is_taken_without_asking() {
    let mut town = rich(5);
    let paid = town.send(0, 60);
    town.take(0, paid);
    town.epochs(2);
    for remote in 1..4 {
        town.message(remote, 1);
    }
    town.miss(4, 100);
    assert_eq!(
        town.flow.poll(&mut town.all),
        Some((0, CreditMessage::Revoke(140)))
    );
    assert_eq!((town.credit_limit(0), town.account(0).due()), (140, 0));
    assert_eq!(town.flow.stats().narrowed, 60);
}
