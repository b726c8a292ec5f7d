//! Costs of the calls of a library that some functions make, from callgrind's file.
//!
//! ```text
//!   fn=method::test'bmi::test'bmi_mx_perf::...::counted_test      a function, and who called it
//!   31 12                                                         what it runs itself
//!   cob=libbmi_mx.so.0                                            calls another object's
//!   cfn=testcontext'...
//!   calls=2000 0                                                  how often
//!   31 2438000                                                    what that ran, with all it called
//! ```

/// Callers that a function's name has to have behind it, so that it tells for which of the counted
/// functions it runs.
pub(super) const CALLERS: usize = 5;

/// Instructions that ran in all calls into other objects, from functions of the object `program` that run
/// for one whose name contains `function`. Names and positions stand in `text` without abbreviations.
///
/// The number of calls is not taken from the file: it counts those before collecting began.
pub(super) fn within(text: &str, program: &str, function: &str) -> u64 {
    let (mut total, mut ours, mut inside, mut leaves) = (0, false, false, false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(object) = line.strip_prefix("ob=") {
            ours = object == program;
        } else if let Some(name) = line.strip_prefix("fn=") {
            inside = ours && name.contains(function);
        } else if line.starts_with("cob=") {
            leaves = true;
        } else if line.starts_with("calls=") {
            let cost = number(lines.next().unwrap_or_default(), 1);
            if std::mem::take(&mut leaves) && inside {
                total += cost;
            }
        }
    }
    total
}

/// The number at a place among blanks; 0 where none is.
fn number(line: &str, at: usize) -> u64 {
    let word = line.split(' ').nth(at).unwrap_or_default();
    word.parse().unwrap_or(0)
}

#[cfg(test)]
mod unit {
    use super::*;

    const FILE: &str = "\
events: Ir

ob=perf
fl=rounds.rs
fn=perf::counted_rounds
10 50
cfn=perf::counted_post_recv'perf::counted_rounds
calls=20 0
11 2600
cob=libc.so
cfn=read'perf::counted_rounds
calls=1 0
12 9

fn=perf::counted_post_recv'perf::counted_rounds
30 100
cfn=perf::wrapper'perf::counted_post_recv
calls=20 0
31 2450

fn=perf::wrapper'perf::counted_post_recv
40 50
cob=libbmi_mx.so
cfn=post_recv'perf::wrapper
calls=20 0
41 2400

fn=perf::wrapper'perf::counted_post_send
40 50
cob=libbmi_mx.so
cfn=post_send'perf::wrapper
calls=20 0
41 300

ob=libbmi_mx.so
fn=post_recv'perf::wrapper'perf::counted_post_recv
7 2300
cob=libc.so
cfn=memcpy
calls=20 0
8 100
";

    #[test]
    fn only_calls_into_other_objects_for_that_function_count() {
        assert_eq!(within(FILE, "perf", "counted_post_recv"), 2400);
        assert_eq!(within(FILE, "perf", "counted_post_send"), 300);
        assert_eq!(within(FILE, "perf", "counted_test"), 0);
    }
}
