//! A provider that keeps its domain although everything in it has been closed. The port reports
//! that once, and not as a warning, because the user cannot change it.

use crate::direct::made_up::{nodes, shapes};
use crate::direct::nodes::pattern;
use crate::own_process::in_own_process;
use libfabric_fake::Fake;
use mx_proto::Status;
use std::sync::Mutex;

/// Log lines about closing, from `debug` on.
static SAID: Mutex<Vec<(log::Level, String)>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        if text.contains("cannot be closed") {
            SAID.lock().unwrap().push((record.level(), text));
        }
    }

    fn flush(&self) {}
}

#[test]
fn domain_kept_by_the_provider_is_reported_once() {
    in_own_process!();
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let mut domains = 0;
    for shape in shapes() {
        // A provider with remote reads is first tried in a domain of its own.
        domains += if shape.provider.starts_with("tcp") {
            2
        } else {
            4
        };
        let fake = Fake::new(shape, 1);
        fake.faults(|faults| faults.keeps_domains = true);
        let mut nodes = nodes(&fake, 2);
        let to = nodes.connect(0, 1);
        let sent = pattern(200_003, 1);
        let mut got = vec![0; sent.len()];
        nodes.post(1, 1, &mut got, 7);
        nodes.send_all(0, to, 1, &sent);
        assert_eq!(nodes.wait(1, 7).status, Status::Success);
        drop(nodes);
        // No object of ours remains in the domains, and nothing was closed in the wrong order.
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
    let said = std::mem::take(&mut *SAID.lock().unwrap());
    let loud: Vec<_> = said
        .iter()
        .filter(|(level, _)| *level < log::Level::Debug)
        .collect();
    let [(log::Level::Info, text)] = loud[..] else {
        panic!("{loud:?}");
    };
    assert!(
        text.contains("domain") && text.contains("objects open in it"),
        "{text}"
    );
    // Each domain and its fabric.
    assert_eq!(said.len(), 1 + 2 * domains);
}
