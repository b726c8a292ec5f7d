//! Tests of lending: first credits, requests, slots, draws, copies.

use super::*;

#[test]
fn busy_remote_is_lent_as_much_again_while_plenty_is_left() {
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
fn no_remote_needs_a_credit_to_get_through() {
    let settings = Settings {
        bytes: 1,
        ..Settings::default()
    };
    let mut town = Town::new(&settings, 3);
    for remote in 0..3 {
        for lane in Lane::ALL {
            let borrower = &mut town.remotes[remote as usize];
            assert_eq!(borrower.payment(1, lane), Some(Payment::Slot(lane)));
            borrower.pay(Payment::Slot(lane));
            town.arrive(remote, Payment::Slot(lane))
                .expect("it is free");
            assert_eq!(
                town.arrive(remote, Payment::Slot(lane)),
                Err(Violation::NoSlot)
            );
        }
        // One lane makes progress while the other is blocked.
        for _ in 0..100 {
            assert!(
                town.take(remote, Payment::Slot(Lane::Matched)),
                "told at once"
            );
            town.tell(remote);
            let borrower = &mut town.remotes[remote as usize];
            assert_eq!(borrower.payment(1, Lane::Unexpected), None);
            borrower.pay(Payment::Slot(Lane::Matched));
            town.arrive(remote, Payment::Slot(Lane::Matched))
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
    // Copies may use an eighth at most, while there is room.
    assert!(town.flow.copy(120) && !town.flow.copy(6) && town.flow.copy(5));
    let stats = town.flow.stats();
    assert_eq!((stats.free, stats.lent, stats.copies), (75, 600, 125));
    town.flow.uncopy(125);
    town.flow.undraw(200);
    assert_eq!(town.flow.stats().free, 400);
}

#[test]
fn waiting_draw_is_repeated_when_credits_become_free() {
    let mut town = Town::new(&scarce(), 1);
    assert!(town.flow.draw(1000) && !town.flow.draw(1));
    assert!(!town.flow.is_ready());
    town.flow.undraw(1);
    assert!(town.flow.is_ready() && town.flow.draw(1));
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
    // Remotes whose source has its share do not wait, and delay no others.
    assert!(!town.flow.is_waited_for());
    let other = town.open(Source(2));
    town.want(other, 100);
    assert_eq!(town.credit_limit(other), 104);
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
    // The limit is the largest possible, and others could still be lent more.
    assert!(filled(&town, 0, 150) && !filled(&town, 0, 149));
    assert!(!filled(&town, 1, 100));
    for remote in 2..5 {
        town.want(remote, 200);
    }
    // Nothing is left to lend.
    assert_eq!(town.flow.stats().lent, 800);
    let most = (3 * town.credit_limit(1)).div_ceil(4);
    assert!(filled(&town, 1, most) && !filled(&town, 1, most - 1));
}
