//! Taking back: from which remotes, when, how much.

use super::*;

/// Remotes of which the first four have what may be lent.
fn rich(remotes: u32) -> Town {
    let mut town = Town::new(&scarce(), remotes);
    for remote in 0..4 {
        town.want(remote, 200);
    }
    assert_eq!(town.flow.stats().lent, 800);
    town
}

#[test]
fn nothing_moves_while_no_remote_wants_credits() {
    let mut town = rich(6);
    for _ in 0..10_000 {
        town.message(5, 1);
    }
    // Nor when those with more than their share use it.
    for (remote, cost) in [(4, 1), (0, 60), (1, 60), (2, 60), (3, 60), (0, 60)] {
        town.message(remote, cost);
    }
    town.epochs(10);
    assert_eq!(town.run_until_idle(), []);
    let stats = town.flow.stats();
    assert_eq!((stats.revoked, stats.narrowed, stats.granted), (0, 0, 800));
    assert_eq!(stats.epochs, 12);
}

#[test]
fn the_longest_quiet_is_asked_for_what_is_above_the_minimum() {
    let mut town = rich(6);
    town.epochs(1);
    for remote in [0, 2, 3] {
        town.message(remote, 1);
    }
    town.epochs(1);
    // The second has used nothing since the first epoch: it is the only quiet one. As another one has
    // none, it keeps none.
    let said = town.want(4, 20);
    assert_eq!(Town::revoked(&said), [(1, 200)]);
    assert_eq!((town.credit_limit(1), town.credit_limit(4)), (0, 24));
    assert_eq!(town.flow.stats().revoked, 200);
    // There are some left over, and no other remote is asked.
    assert_eq!(town.want(4, 170), [(4, Say::Credit)]);
    assert_eq!((town.credit_limit(4), town.flow.stats().free), (200, 200));
}

#[test]
fn no_more_is_asked_for_than_is_wanted() {
    let mut town = rich(6);
    town.epochs(2);
    town.miss(4, 20);
    let said = town.flow.poll(&mut town.all);
    assert!(matches!(said, Some((0, Say::Revoke(200)))), "{said:?}");
    assert_eq!(town.flow.poll(&mut town.all), None);
}

#[test]
fn the_quiet_keep_the_minimum_while_all_have_some() {
    let settings = Settings {
        first: 8,
        ..scarce()
    };
    let mut town = Town::new(&settings, 5);
    for (remote, credits) in [(0, 192), (1, 192), (2, 192), (3, 184)] {
        assert_eq!(town.want(remote, credits), [(remote, Say::Credit)]);
    }
    town.epochs(2);
    for remote in 1..4 {
        town.message(remote, 1);
    }
    let said = town.want(4, 20);
    assert_eq!(said, [(0, Say::Revoke(196)), (4, Say::Credit)]);
    assert_eq!((town.credit_limit(0), town.credit_limit(4)), (4, 32));
}

#[test]
fn a_remote_with_few_credits_is_asked_only_when_another_has_none() {
    let settings = Settings {
        first: 4,
        ..scarce()
    };
    let mut town = Town::new(&settings, 100);
    let poor = 99;
    let credit_limits: u32 = (0..100).map(|remote| town.credit_limit(remote)).sum();
    assert!(
        town.credit_limit(0) == 4
            && town.credit_limit(98) > 0
            && credit_limits == town.flow.stats().lent
    );
    // There is nothing else.
    town.flow.draw(1000 - credit_limits);
    town.epochs(2);
    assert_eq!(town.want(50, 20), [], "it has some");
    town.flow.set_wanted(&mut town.all.0[50].0, 0);
    town.flow.file(&mut town.all, 50);
    town.all.0[poor].0 = Lender::default();
    town.flow.pool.take_back(Source::TRUSTED, 1);
    town.flow.draw(1);
    town.remotes[poor] = Borrower::default();
    let said = town.want(poor as u32, 3);
    // With the first of them it has some.
    assert_eq!(Town::revoked(&said), [(0, 4)]);
    assert_eq!(
        (town.credit_limit(0), town.credit_limit(poor as u32)),
        (0, 4)
    );
}

#[test]
fn a_remote_that_needs_its_credits_keeps_them_and_is_asked_when_it_is_quiet_again() {
    let mut town = rich(5);
    town.epochs(2);
    for remote in 1..4 {
        town.message(remote, 1);
    }
    // The first has something that it cannot send, and answers so.
    town.miss(4, 16);
    assert_eq!(town.flow.poll(&mut town.all), Some((0, Say::Revoke(200))));
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
fn a_remote_that_does_not_answer_is_asked_once_and_holds_up_no_other() {
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
            assert!(matches!(say, Say::Revoke(_)));
            asked.push(remote);
        }
        asked
    };
    assert_eq!(ask(&mut town), (0..32).collect::<Vec<_>>());
    assert_eq!(town.flow.stats().asked, 32);
    // One that is heard of meanwhile stays out of the lists from which remotes are asked.
    town.flow.file(&mut town.all, 3);
    assert_eq!(town.account(3).place, Place::Nowhere);
    // One answers: one more is asked.
    assert_eq!(town.flow.returned(&mut town.all, 7, 0), Ok(()));
    assert_eq!(ask(&mut town), [32]);
    // Then another epoch, and others.
    town.miss(99, 200);
    town.flow.end_epoch();
    assert_eq!(ask(&mut town), (33..65).collect::<Vec<_>>());
    // Much later it does answer.
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
    assert_eq!(town.flow.poll(&mut town.all), Some((1, Say::Revoke(200))));
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
    assert_eq!(town.run_until_idle(), [(4, Say::Credit)]);
}

#[test]
fn while_none_is_quiet_credits_above_a_share_are_not_told_again() {
    let mut town = rich(8);
    town.epochs(1);
    // All eight are active: a share is 100. The first four use what they have.
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
        town.take(remote, Paid::Credits(60));
        assert_eq!(
            (town.credit_limit(remote), town.account(remote).due()),
            (140, 0)
        );
    }
    let said = town.run_until_idle();
    assert_eq!(said, [(4, Say::Credit), (5, Say::Credit), (6, Say::Credit)]);
    assert_eq!(
        [4, 5, 6, 7].map(|remote| town.credit_limit(remote)),
        [100, 100, 40, 0]
    );
    for remote in 0..4 {
        town.take(remote, Paid::Credits(140));
        town.tell(remote);
    }
    town.run_until_idle();
    // All have their share; they want more than there is, and nothing moves for that.
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
fn while_one_is_asked_no_other_is_narrowed() {
    let mut town = rich(8);
    town.epochs(2);
    for remote in 1..8 {
        town.message(remote, 1);
    }
    let paid = town.send(1, 50);
    town.miss(4, 8);
    assert_eq!(town.flow.poll(&mut town.all), Some((0, Say::Revoke(200))));
    town.take(1, paid);
    assert_eq!(town.credit_limit(1), 200);
}

#[test]
fn a_credit_limit_falls_by_what_the_message_cost_though_more_is_due() {
    let mut town = rich(8);
    town.epochs(1);
    for remote in 0..8 {
        town.message(remote, 1);
    }
    for remote in 0..4 {
        for cost in [60, 40, 100] {
            town.send(remote, cost);
        }
    }
    town.take(0, Paid::Credits(60));
    town.miss(4, 200);
    assert_eq!(town.run_until_idle(), []);
    town.take(0, Paid::Credits(40));
    assert_eq!((town.credit_limit(0), town.account(0).due()), (160, 60));
}

#[test]
fn a_remote_that_uses_few_of_many_is_asked_while_another_has_less_than_its_share() {
    let mut town = rich(5);
    town.epochs(1);
    for remote in 0..4 {
        town.message(remote, 1);
    }
    town.epochs(1);
    town.message(3, 1);
    // No remote is quiet. A share is 200 with four active ones, and 160 with five.
    town.message(4, 1);
    for _ in 0..2 {
        town.tell(0);
        town.tell(1);
    }
    assert_eq!(town.want(4, 70), []);
    town.epochs(1);
    for remote in 0..5 {
        town.message(remote, 1);
    }
    town.epochs(1);
    town.message(4, 1);
    let said = town.want(4, 71);
    assert_eq!(Town::revoked(&said), [(0, 40), (1, 40)]);
    assert_eq!(
        [0, 1, 4].map(|remote| town.credit_limit(remote)),
        [160, 160, 72]
    );
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
    assert_eq!(town.flow.poll(&mut town.all), Some((0, Say::Revoke(140))));
    assert_eq!((town.credit_limit(0), town.account(0).due()), (140, 0));
    assert_eq!(town.flow.stats().narrowed, 60);
}

#[test]
fn quiet_remotes_whose_credits_are_all_in_messages_here_are_not_looked_at_again() {
    let mut town = rich(5);
    for remote in 0..4 {
        town.send(remote, 200);
    }
    town.epochs(2);
    assert_eq!(town.want(4, 8), []);
    assert!(!town.flow.is_ready());
}

#[test]
fn a_remote_keeps_the_minimum_where_a_share_is_less() {
    let mut town = rich(300);
    for remote in 0..300 {
        town.message(remote, 1);
    }
    town.epochs(1);
    for remote in 1..300 {
        town.message(remote, 1);
    }
    town.miss(299, 8);
    assert_eq!(town.flow.poll(&mut town.all), Some((0, Say::Revoke(196))));
}

#[test]
fn for_one_that_wants_more_than_its_share_no_other_is_asked() {
    let mut town = Town::new(&scarce(), 5);
    for (remote, credits) in [(0, 200), (1, 200), (2, 200), (3, 40), (4, 160)] {
        town.want(remote, credits);
    }
    town.epochs(1);
    town.message(4, 1);
    // A share is 160. The first three have more, and have been idle in this epoch.
    assert_eq!(town.want(4, 40), []);
    assert_eq!([0, 4].map(|remote| town.credit_limit(remote)), [200, 160]);
    assert_eq!(town.flow.stats().waiting, 1);
}

#[test]
fn a_remote_that_has_just_been_lent_credits_is_not_asked_for_them() {
    let mut town = rich(6);
    for remote in 0..4 {
        // Nothing is to be had from them.
        town.send(remote, 200);
    }
    town.miss(4, 40);
    assert_eq!(town.run_until_idle(), []);
    town.epochs(1);
    // The first's credits above its share, which is 160, come free; the rest it uses again.
    town.take(0, Paid::Credits(200));
    town.tell(0);
    town.send(0, 160);
    assert_eq!(town.run_until_idle(), [(4, Say::Credit)]);
    assert_eq!(town.credit_limit(4), 40);
    town.epochs(1);
    // Its request is two epochs old, its credit limit one. The first is busy all the time.
    assert_eq!(town.send(0, 1), Paid::Slot(Lane::Unexpected));
    assert_eq!(town.want(5, 8), []);
    assert_eq!((town.credit_limit(4), town.credit_limit(5)), (40, 0));
}

#[test]
fn a_request_is_forgotten_when_its_remote_is_not_heard_of_for_two_epochs() {
    let mut town = rich(7);
    for remote in 0..4 {
        // Nothing is to be had from them.
        town.send(remote, 200);
    }
    for remote in 4..7 {
        town.miss(remote, 50);
    }
    assert_eq!(town.run_until_idle(), []);
    town.epochs(1);
    town.message(5, 1);
    assert_eq!(town.run_until_idle(), []);
    assert_eq!(town.flow.stats().waiting, 3);
    town.epochs(1);
    assert_eq!(town.run_until_idle(), []);
    // The one behind the first is alive; what is behind it is looked at when it is its turn.
    assert_eq!((town.flow.stats().waiting, town.flow.wanted), (2, 112));
    town.epochs(1);
    assert_eq!(town.run_until_idle(), []);
    assert_eq!((town.flow.stats().waiting, town.flow.wanted), (0, 0));
    assert!(!town.flow.is_waited_for());
}

#[test]
fn a_remote_that_is_not_heard_of_for_two_epochs_gets_none_of_what_comes_free() {
    let mut town = rich(6);
    for remote in [4, 5] {
        town.miss(remote, 50);
    }
    town.epochs(2);
    town.message(5, 1);
    assert!(town.flow.close(&mut town.all, 0));
    town.run_until_idle();
    assert_eq!([4, 5].map(|remote| town.credit_limit(remote)), [0, 56]);
    assert!(!town.flow.is_waited_for());
}

#[test]
fn an_epoch_ends_after_so_many_messages_and_is_told() {
    let mut town = Town::new(&scarce(), 2);
    for n in 0..4096u32 {
        assert_eq!(town.flow.stats().epochs, 0, "{n}");
        town.message(0, 1);
    }
    assert_eq!(town.flow.stats().epochs, 1);
    assert_eq!(town.tell(1).epoch, 1);
    town.epochs(255);
    assert_eq!(town.tell(1).epoch, 0);
}

#[test]
fn with_many_active_each_has_less_on_its_way() {
    let settings = Settings {
        bytes: 64 << 20,
        first: 0,
        ..Settings::default()
    };
    let mut town = Town::new(&settings, 20);
    town.want(0, 4096);
    assert_eq!((town.credit_limit(0), town.free(0)), (4096, 4096));
    for remote in 1..20 {
        town.message(remote, 1);
    }
    town.want(1, 4096);
    assert_eq!((town.credit_limit(1), town.free(1)), (4096, AT_ONCE / 20));
    town.send(1, AT_ONCE / 20 - 4);
    town.tell(1);
    assert_eq!(town.free(1), AT_ONCE / 20);
}
