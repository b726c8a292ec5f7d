//! Messages over every port.

use super::*;

const PORTS: [Route; 3] = [Route::AUTO, ROUTE_LOCAL, ROUTE_TCP];

#[test]
fn connecting_tells_why_it_failed() {
    for port in PORTS {
        let (a, b) = (opened(port), opened(port));
        let (nic, endpoint) = name(&b);
        let wrong = connect(a.0, nic, endpoint, KEY + 1, LONG);
        assert_eq!(code(wrong), Code::BadConnectionKey);
        drop(b);
        let absent = connect(a.0, nic, 1000, KEY, LONG);
        assert_eq!(code(absent), Code::ConnectionFailed, "{port:?}");
        let out_of_range = connect(a.0, nic, 70_000, KEY, LONG);
        assert_eq!(code(out_of_range), Code::BadEndpointId, "{port:?}");
    }
}

#[test]
fn a_request_time_out_ends_an_unanswered_request() {
    let (a, _b, to_b) = pair(ROUTE_LOCAL);
    set_timeout(a.0, None, Some(Duration::from_millis(30))).unwrap();
    let mut byte = [0];
    let request = issend(&a, to_b, 0, &mut byte);
    assert_eq!(ended(&a, request).code, StatusCode::Timeout as u32);
    set_timeout(a.0, None, None).unwrap();
    let request = issend(&a, to_b, 0, &mut byte);
    set_timeout(a.0, Some(request), Some(Duration::from_millis(30))).unwrap();
    assert_eq!(ended(&a, request).code, StatusCode::Timeout as u32);
}
