//! Opening and closing endpoints.

use super::*;

#[test]
fn an_endpoint_is_described_by_what_it_was_opened_with() {
    let params = OpenParams {
        error_handler: 0xe44,
        ..OpenParams::default()
    };
    let a = opened_with(ROUTE_LOCAL, params);
    assert_eq!(error_handler_of(a.0), Some(0xe44));
    assert_eq!(board_of(a.0), Ok(0));
    assert!(open_endpoints().contains(&a.0));
    assert_eq!(nic::board_number(name(&a).0), Some(0));
    assert_eq!(context(own_address(a.0).unwrap()), Ok(0));
    let gone = a.0;
    drop(a);
    assert_eq!(error_handler_of(gone), None);
    assert!(!open_endpoints().contains(&gone));
}

#[test]
fn what_cannot_be_opened_is_refused_and_takes_no_place() {
    let before = open_endpoints().len();
    let params = OpenParams {
        board: Some(5000),
        ..OpenParams::default()
    };
    let settings = settings(ROUTE_LOCAL);
    for _ in 0..crate::handles::SLOTS_MAX + 1 {
        assert_eq!(code(open(&settings, params)), Code::BoardUnknown);
    }
    let params = OpenParams {
        endpoint: Some(70_000),
        ..OpenParams::default()
    };
    assert_eq!(code(open(&settings, params)), Code::BadEndpoint);
    // Other tests open and close theirs meanwhile, but not a thousand.
    assert!(open_endpoints().len() < before + 100);
}
