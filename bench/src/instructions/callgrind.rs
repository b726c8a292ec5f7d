//! Costs of calls into a library, from callgrind's file.
//!
//! ```text
//!   fn=method::test'bmi::test'bmi_mx_perf::...::counted_test      a function and its callers
//!   31 12                                                         its own instructions
//!   cob=libbmi_mx.so.0                                            a call into another object
//!   cfn=testcontext'...
//!   calls=2000 0                                                  number of calls
//!   31 2438000                                                    instructions of the callee, with all it called
//! ```

/// Number of callers behind a function's name: enough to tell which counted function it runs for.
pub(super) const CALLERS: usize = 5;

/// Returns the instructions of all calls into other objects from functions of the object `program`
/// whose name, with its callers, contains `function`. Names and positions in `text` must not be
/// abbreviated.
///
/// The file's number of calls is not used: it includes calls before collection began.
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

/// Returns the number at a position among blanks, or 0.
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
