//! A process that uses shared memory and TCP loads nothing of libfabric.

use crate::node::Node;
use crate::own_process::in_own_process;
use mx_proto::{Route, Status};
use mx_sys::{ROUTE_LOCAL, ROUTE_TCP};

/// In a process of its own, because other tests load it.
#[test]
fn libfabric_is_not_loaded_for_the_other_ports() {
    in_own_process!();
    if !mx_sys::hardware::adapters().is_empty() {
        println!("this machine has an adapter, which Route::AUTO uses: only the other routes");
    }
    for route in [Route::AUTO, ROUTE_LOCAL, ROUTE_TCP] {
        let mut options = mx_sys::OpenOptions::new(mx_sys::EndpointChoice::Any);
        options.policy = route;
        if route == Route::AUTO && !mx_sys::hardware::adapters().is_empty() {
            continue;
        }
        let open = |options| Node::open(options, mx_proto::Config::default(), true).unwrap();
        let (a, b) = (open(options.clone()), open(options));
        let to_b = a.connect(b.target(Route::AUTO)).unwrap();
        assert_eq!(a.send_all(to_b, 1, b"x"), Status::Success);
        assert_eq!(b.receive(1, &mut [0; 1]).status, Status::Success);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("libfabric"), "{maps}");
}
