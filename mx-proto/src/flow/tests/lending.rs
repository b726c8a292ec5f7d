//! Lending: first credits, wants, and what is beside them.

use super::*;

#[test]
fn later_remotes_are_lent_less_and_at_last_nothing() {
    let settings = Settings {
        bytes: 4000 * CREDIT,
        ..Settings::default()
    };
    let mut town = Town::new(&settings, 0);
    // 3500 may be lent, 2000 of them at connect, 1000 in full credit limits.
    let credit_limits: Vec<u32> = (0..1000)
        .map(|_| {
            let remote = town.open(Source::TRUSTED);
            town.credit_limit(remote)
        })
        .collect();
    assert!(credit_limits.is_sorted_by(|before, next| before >= next));
    assert_eq!(
        (
            credit_limits[0],
            credit_limits[12],
            credit_limits[13],
            credit_limits[999]
        ),
        (80, 80, 76, 0)
    );
    assert_eq!(credit_limits.iter().sum::<u32>(), 2000);
    let stats = town.flow.stats();
    assert_eq!(
        (stats.total, stats.lent, stats.free, stats.remotes),
        (4000, 2000, 2000, 1000)
    );
    // A remote without credits sends all the same.
    town.message(999, 1);
    assert_eq!(town.flow.stats().in_slots, 1);
}

#[test]
fn a_promised_credit_limit_is_lent_again_or_not_at_all() {
    let mut town = Town::new(&scarce(), 1);
    let stats = town.flow.stats();
    town.all.0.push((Lender::default(), Source(7)));
    assert!(town.flow.open(&mut town.all, 1, 100));
    assert_eq!(town.account(1).unused(), 100);
    assert!(town.flow.close(&mut town.all, 1));
    assert_eq!(town.flow.stats(), stats);
    for (credit_limit, source) in [(201, Source::TRUSTED), (200, Source(7))] {
        town.all.0[1].1 = source;
        town.flow.pool.lend(Source(7), 300);
        assert!(
            !town.flow.open(&mut town.all, 1, credit_limit),
            "{credit_limit}"
        );
        town.flow.pool.take_back(Source(7), 300);
    }
    assert_eq!(town.flow.stats(), stats);
    assert!(!town.flow.open(&mut town.all, 2, 0), "no such remote");
}

#[test]
fn what_is_wanted_is_lent_in_eights_up_to_the_largest_credit_limit() {
    let mut town = Town::new(&scarce(), 2);
    assert_eq!(town.want(0, 3), [(0, Say::Credit)]);
    assert_eq!((town.credit_limit(0), town.free(0)), (8, 8));
    assert_eq!(town.want(0, 8), [(0, Say::Credit)]);
    assert_eq!(town.want(0, 1000), [(0, Say::Credit)]);
    assert_eq!((town.credit_limit(0), town.free(0)), (200, 200));
    // It has what one can have.
    assert_eq!(town.want(0, 2000), []);
    let stats = town.flow.stats();
    assert_eq!((stats.waiting, stats.granted, stats.wants), (0, 200, 4));
    assert!(!town.flow.is_waited_for() && !town.flow.is_ready());
}

#[test]
fn a_remote_that_uses_most_of_its_credit_limit_is_lent_as_much_again_while_there_is_plenty() {
    let settings = Settings {
        bytes: 4000 * CREDIT,
        ..Settings::default()
    };
    let mut town = Town::new(&settings, 2);
    let paid = town.send(0, 65);
    assert!(town.take(0, paid), "15 are left");
    town.tell(0);
    assert_eq!((town.credit_limit(0), town.free(0)), (130, 130));
    for _ in 0..10 {
        let paid = town.send(0, 65);
        assert!(
            !town.take(0, paid),
            "it hears of it with what is sent anyway"
        );
        town.tell(0);
    }
    assert_eq!((town.credit_limit(0), town.free(0)), (130, 130));
    // A remote that connects now has less than the first credits.
    while town.flow.first_credits(Source::TRUSTED) == 80 {
        town.open(Source::TRUSTED);
    }
    for _ in 0..3 {
        let paid = town.send(1, 65);
        assert!(town.take(1, paid));
        town.tell(1);
    }
    assert_eq!((town.credit_limit(1), town.flow.stats().granted), (80, 50));
}

#[test]
fn what_it_is_not_told_of_comes_before_what_is_lent() {
    let mut town = Town::new(&scarce(), 1);
    town.want(0, 40);
    for _ in 0..20 {
        let paid = town.send(0, 1);
        assert!(!town.take(0, paid));
    }
    assert_eq!((town.free(0), town.account(0).due()), (20, 20));
    // The header of the next one says that four are missing.
    let borrower = &mut town.remotes[0];
    let wanted = borrower.wanted(24);
    assert_eq!(wanted, 4, "all that was said before has come");
    assert!(town.flow.wants(&mut town.all, 0, 4), "it is to be told");
    town.tell(0);
    assert_eq!((town.credit_limit(0), town.free(0)), (40, 40));
    assert!(!town.flow.is_waited_for());
}

#[test]
fn remotes_without_credits_are_served_first_then_those_below_their_share() {
    let mut town = Town::new(&scarce(), 5);
    // 800 may be lent; the last gets what is left of it.
    for remote in 0..4 {
        town.want(remote, 192);
    }
    town.want(4, 200);
    let credit_limits = [0, 1, 2, 3, 4].map(|remote| town.credit_limit(remote));
    assert_eq!(credit_limits, [192, 192, 192, 192, 32]);
    assert!(town.flow.is_waited_for());
    let poor = town.open(Source::TRUSTED);
    town.miss(poor, 10);
    assert_eq!(town.flow.poll(&mut town.all), None);
    let stats = town.flow.stats();
    assert_eq!((stats.waiting, stats.poor), (2, 1));
    // Some come free, as if the first had given them back.
    let give_back = |town: &mut Town, credits: u16| {
        town.flow.pool.take_back(Source::TRUSTED, credits.into());
        let account = &mut town.all.0[0].0;
        (account.credit_limit, account.told) = (
            account.credit_limit - credits,
            account.told - u32::from(credits),
        );
        town.flow.wake();
        town.run_until_idle()
    };
    assert_eq!(give_back(&mut town, 8), [(poor, Say::Credit)]);
    assert_eq!((town.credit_limit(poor), town.credit_limit(4)), (8, 32));
    // It has some now, and the other one has waited for longer. A share is 800 / 6.
    assert_eq!(give_back(&mut town, 100), [(4, Say::Credit)]);
    assert_eq!((town.credit_limit(poor), town.credit_limit(4)), (8, 132));
    // Below its share comes before above it.
    assert_eq!(
        give_back(&mut town, 10),
        [(poor, Say::Credit), (4, Say::Credit)]
    );
    assert_eq!((town.credit_limit(poor), town.credit_limit(4)), (16, 134));
    assert!(town.flow.close(&mut town.all, 1));
    town.run_until_idle();
    assert_eq!(town.credit_limit(4), 200);
    assert!(!town.flow.is_waited_for());
}

#[test]
fn the_last_credit_is_lent() {
    let mut town = Town::new(&scarce(), 5);
    for (remote, credits) in [(0, 200), (1, 200), (2, 200), (3, 192)] {
        town.want(remote, credits);
    }
    assert!(town.flow.copy(7));
    assert_eq!(town.want(4, 8), [(4, Say::Credit)]);
    assert_eq!((town.credit_limit(4), town.flow.stats().free), (1, 200));
}

#[test]
fn a_remote_that_waits_alone_is_not_held_to_its_share() {
    let mut town = Town::new(&scarce(), 10);
    for remote in 0..10 {
        town.message(remote, 1);
    }
    town.epochs(1);
    // The share of one of ten is 80.
    assert_eq!(town.want(0, 150), [(0, Say::Credit)]);
    assert!(town.credit_limit(0) >= 150, "{}", town.credit_limit(0));
}

#[test]
fn no_remote_needs_a_credit_to_get_through() {
    let settings = Settings {
        bytes: 1,
        ..Settings::default()
    };
    let mut town = Town::new(&settings, 3);
    for remote in 0..3 {
        for lane in Lane::ALL {
            let borrower = &mut town.remotes[remote as usize];
            assert_eq!(borrower.means(1, lane), Some(Paid::Slot(lane)));
            borrower.pay(Paid::Slot(lane));
            town.arrive(remote, Paid::Slot(lane)).expect("it is free");
            assert_eq!(
                town.arrive(remote, Paid::Slot(lane)),
                Err(Violation::NoSlot)
            );
        }
        // One lane moves though the other stands.
        for _ in 0..100 {
            assert!(town.take(remote, Paid::Slot(Lane::Matched)), "told at once");
            town.tell(remote);
            let borrower = &mut town.remotes[remote as usize];
            assert_eq!(borrower.means(1, Lane::Unexpected), None);
            borrower.pay(Paid::Slot(Lane::Matched));
            town.arrive(remote, Paid::Slot(Lane::Matched))
                .expect("it is free");
        }
    }
    assert_eq!(town.flow.stats().violations, 6);
}

#[test]
fn draws_have_the_reserve_and_copies_what_could_be_lent() {
    let mut town = Town::new(&scarce(), 5);
    for remote in 0..5 {
        town.want(remote, 200);
    }
    assert!(!town.flow.copy(1));
    assert!(town.flow.draw(198) && !town.flow.draw(3) && town.flow.draw(2));
    let stats = town.flow.stats();
    assert_eq!((stats.free, stats.drawn, stats.draws_refused), (0, 200, 1));
    for remote in [0, 1] {
        assert!(town.flow.close(&mut town.all, remote));
        town.run_until_idle();
    }
    assert_eq!(town.credit_limit(4), 200);
    // An eighth at most, while there is room.
    assert!(town.flow.copy(120) && !town.flow.copy(6) && town.flow.copy(5));
    let stats = town.flow.stats();
    assert_eq!((stats.free, stats.lent, stats.copies), (75, 600, 125));
    town.flow.uncopy(125);
    town.flow.undraw(200);
    assert_eq!(town.flow.stats().free, 400);
}

#[test]
fn a_draw_that_has_to_wait_is_to_be_repeated_when_credits_come_free() {
    let mut town = Town::new(&scarce(), 1);
    assert!(town.flow.draw(1000) && !town.flow.draw(1));
    assert!(!town.flow.is_ready());
    town.flow.undraw(1);
    assert!(town.flow.is_ready() && town.flow.draw(1));
}

#[test]
fn what_the_gone_leave_here_is_held_until_it_is_taken() {
    let mut town = Town::new(&scarce(), 0);
    let remote = town.open(Source(9));
    town.want(remote, 100);
    let paid = town.send(remote, 30);
    town.arrive(remote, Paid::Slot(Lane::Matched))
        .expect("free");
    assert!(town.flow.close(&mut town.all, remote));
    let stats = town.flow.stats();
    assert_eq!(
        (stats.lent, stats.tombstones, stats.free, stats.remotes),
        (0, 31, 969, 0)
    );
    // It stays in its source's share: half of what may be lent, less that.
    assert_eq!(town.flow.pool.room(Source(9)), 400 - 31);
    town.flow.reclaim(Source(9), paid);
    town.flow.reclaim(Source(9), Paid::Slot(Lane::Matched));
    assert_eq!(town.flow.stats().free, 1000);
    assert_eq!(town.flow.pool.room(Source(9)), 400);
    // Without room what came in slots does not stay.
    let remote = town.open(Source(9));
    town.arrive(remote, Paid::Slot(Lane::Unexpected))
        .expect("free");
    assert!(town.flow.draw(1000));
    assert!(!town.flow.close(&mut town.all, remote));
    assert_eq!(town.flow.stats().tombstones, 0);
}

#[test]
fn remotes_of_one_source_have_half_of_what_the_others_leave() {
    let mut town = Town::new(&scarce(), 0);
    let greedy: Vec<u32> = (0..5).map(|_| town.open(Source(1))).collect();
    for remote in &greedy {
        town.want(*remote, 1000);
    }
    let credit_limits: Vec<u32> = greedy
        .iter()
        .map(|remote| town.credit_limit(*remote))
        .collect();
    assert_eq!(credit_limits, [200, 200, 0, 0, 0]);
    // Remotes whose source has its share wait for nothing, and hold up no others.
    assert!(!town.flow.is_waited_for());
    let other = town.open(Source(2));
    town.want(other, 100);
    assert_eq!(town.credit_limit(other), 104);
}

#[test]
fn credit_fields_say_more_if_they_allow_more_or_want_some() {
    let mut town = Town::new(&scarce(), 1);
    let fields = town.tell(0);
    assert!(!Flow::says_more(town.account(0), &fields));
    let wanting = CreditFields {
        wanted: 1,
        ..fields
    };
    assert!(Flow::says_more(town.account(0), &wanting));
    town.miss(0, 10);
    assert_eq!(town.flow.poll(&mut town.all), Some((0, Say::Credit)));
    let fields = town
        .flow
        .credit_fields(town.account(0), &Borrower::default(), 0);
    assert!(Flow::says_more(town.account(0), &fields));
}

#[test]
fn three_quarters_of_a_credit_limit_fill_it_unless_it_can_grow() {
    let mut town = Town::new(&scarce(), 5);
    let filled = |town: &Town, remote, held| {
        town.flow
            .is_filled(town.account(remote), Source::TRUSTED, held)
    };
    town.want(0, 200);
    town.want(1, 100);
    // The largest limit, and there is more for others.
    assert!(filled(&town, 0, 150) && !filled(&town, 0, 149));
    assert!(!filled(&town, 1, 100));
    for remote in 2..5 {
        town.want(remote, 200);
    }
    // Nothing is left.
    assert_eq!(town.flow.stats().lent, 800);
    let most = (3 * town.credit_limit(1)).div_ceil(4);
    assert!(filled(&town, 1, most) && !filled(&town, 1, most - 1));
}
