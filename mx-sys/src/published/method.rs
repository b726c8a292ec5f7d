//! The counters of a method above its endpoint.
//!
//! Owns: the method's figures, their labels and their order.
//! Not here: methods.
//! Cost: [`method_values`] copies words; no allocation, no system call.

use super::counters::table;

/// The current figures and the counters of a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MethodGauges {
    /// Peers there are records of.
    pub peers: u64,
    /// Operations that were posted and have not been handed out.
    pub operations: u64,
    /// Messages dropped because they made no sense.
    pub dropped: u64,
}

table! {
    LABELS, METHOD_COUNT, method_values(gauges: &MethodGauges);
    "method_" MethodGauges = *gauges, { peers, operations, dropped };
}

/// The labels of a method's counters, in a fixed order; they differ from the endpoint's.
pub fn method_labels() -> &'static [&'static str] {
    LABELS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::labels;
    use std::collections::HashSet;

    #[test]
    fn every_counter_of_endpoint_and_method_has_a_label_of_its_own() {
        let all = || labels().iter().chain(method_labels());
        let different: HashSet<&&str> = all().collect();
        assert_eq!(different.len(), all().count());
        for label in method_labels() {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(label.chars().all(plain), "{label}");
        }
    }

    #[test]
    fn values_stand_where_their_labels_do() {
        let gauges = MethodGauges {
            peers: 1,
            operations: 2,
            dropped: 3,
        };
        let values = method_values(&gauges);
        let of = |label: &str| {
            let place = method_labels().iter().position(|other| *other == label);
            values[place.unwrap()]
        };
        for (label, value) in [
            ("method_peers", 1),
            ("method_operations", 2),
            ("method_dropped", 3),
        ] {
            assert_eq!(of(label), value, "{label}");
        }
        assert_eq!(values.iter().sum::<u64>(), 6);
    }
}
