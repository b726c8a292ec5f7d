//! Sessions that end while something is on its way to them: connects go on, and messages are not
//! lost.

use super::bits;
use super::pair::{self, Pair, Side};
use mx_proto::{OpKind, Status};
use mx_sim::Reports;

/// Returns the status of the only completion of a or b.
macro_rules! ended {
    ($node:expr) => {{
        let done = $node.next_completion().expect("it has ended");
        assert_eq!(done.kind, OpKind::Connect);
        (done.status, done.remote)
    }};
}

#[test]
fn a_connect_that_meets_the_end_of_a_session_goes_to_the_next() {
    for newest_first in [false, true] {
        let mut pair = Pair::keeping(8);
        let a = pair.target(Side::A);
        pair.b.connect(a, pair::KEY, bits(0), 4).unwrap();
        pair.run();
        let (_, old) = ended!(pair.b);
        if newest_first {
            pair.newest_first();
        }
        let before = pair.b.remote_identity(old).unwrap();
        pair.reopen_a(8);
        pair.b.connect(a, pair::KEY, bits(0), 5).unwrap();
        assert_eq!(pair.links(), 1, "it asks over the session that is there");
        pair.run();
        let (status, new) = ended!(pair.b);
        assert_eq!(status, Status::Success);
        let after = pair.b.remote_identity(new).unwrap();
        assert_eq!((after.nic, after.endpoint), (before.nic, before.endpoint));
        assert_ne!(after.session, before.session);
        assert!(pair.b.next_completion().is_none());
    }
}
