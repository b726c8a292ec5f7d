//! Small crowds: limits of their cost, and a kept table.
//!
//! ```text
//!   plenty   the default settings, 100 and 1000 peers
//!   scarce   a hundredth of the credits, 1000 peers: as 100 000 peers with the default settings
//!                                                                    tests/golden/flow.txt
//! ```
//!
//! All figures follow from the settings, so a change of the table is a change of behaviour. If the
//! change is good, write the table with `MX_BLESS=1`.

use super::scenarios::{self, HEADER, Row};
use mx_proto::flow::Settings;
use std::fmt::Write;

fn scarce() -> Settings {
    let plenty = Settings::default();
    Settings {
        bytes: plenty.bytes / 100,
        ..plenty
    }
}

fn check_plenty(row: &Row) {
    let settling = row.settling.expect("it settles");
    assert!(settling.epochs <= 40, "{row}");
    // A request and its answer, or a Revoke and its Return: two packets for eight credits or more.
    let moved = settling.granted + settling.returned;
    assert!(settling.controls <= moved / 4, "{row}");
    check_any(row);
}

fn check_any(row: &Row) {
    assert_eq!(row.longest_wait, 0, "{row}");
    let (updates, messages) = row.updates;
    assert!(updates <= messages / 25, "{updates} of {messages}: {row}");
}

#[test]
fn a_pattern_that_stays_settles_and_then_moves_nothing() {
    for peers in [100, 1000] {
        for row in [
            scenarios::still(&Settings::default(), peers),
            scenarios::all(&Settings::default(), peers),
        ] {
            check_plenty(&row);
            assert_eq!(row.controls_after, 0, "{row}");
        }
    }
    // Most credits have to be taken from idle peers, or there are fewer credits than peers.
    for row in [
        scenarios::still(&scarce(), 1000),
        scenarios::all(&scarce(), 1000),
    ] {
        assert!(row.settling.is_some(), "{row}");
        assert_eq!(row.controls_after, 0, "{row}");
        check_any(&row);
    }
}

#[test]
fn credits_follow_the_busy_and_moving_them_takes_few_packets() {
    for peers in [100, 1000] {
        check_plenty(&scenarios::moving(&Settings::default(), peers));
    }
}

#[test]
fn with_fewer_credits_than_peers_all_progress_alike() {
    let row = scenarios::all(&scarce(), 1000);
    let (fewest, most) = row.served;
    assert!(fewest > 0 && most <= 3 * fewest, "{row}");
}

#[test]
fn a_storm_is_through_as_soon_as_the_host_can_take_it() {
    for settings in [Settings::default(), scarce()] {
        let row = scenarios::storm(&settings, 1000);
        let settling = row.settling.expect("all came");
        // One microsecond each, and the time for the path and for fetching.
        let most = std::time::Duration::from_micros(1000 + 500);
        assert!(settling.time <= most, "{row}");
        assert!(settling.controls <= 1000, "{row}");
        check_any(&row);
    }
}

#[test]
fn crowds_cost_what_they_did() {
    let mut text = format!("{HEADER}\n");
    let mut add = |row: Row| writeln!(text, "{row}").expect("memory");
    for run in [
        scenarios::still,
        scenarios::moving,
        scenarios::all,
        scenarios::storm,
    ] {
        for peers in [100, 1000] {
            add(run(&Settings::default(), peers));
        }
        add(run(&scarce(), 1000));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/flow.txt");
    mx_sim::golden::is_kept(path, &text);
}
