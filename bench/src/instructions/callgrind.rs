//! Costs of the calls that some functions make, from callgrind's file.
//!
//! ```text
//!   fn=bmi_mx_perf::...::counted_post_recv     the function
//!   31 12                                      what it runs itself
//!   cfn=BMI_mx_post_recv                       calls another:
//!   calls=2000 0                               how often
//!   31 2438000                                 what that ran, with all it called
//! ```

/// Instructions that ran in all calls made within functions whose name contains `function`. Names and
/// positions stand in `text` without abbreviations.
///
/// The number of calls is not taken from the file: it counts those before collecting began.
pub(super) fn within(text: &str, function: &str) -> u64 {
    let (mut total, mut inside) = (0, false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("fn=") {
            inside = name.contains(function);
        } else if line.starts_with("calls=") && inside {
            total += number(lines.next().unwrap_or_default(), 1);
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

fl=rounds.rs
fn=perf::counted_rounds
10 50
cfn=perf::counted_post_recv
calls=20 0
11 2600
cfn=perf::other
calls=1 0
12 9

fn=perf::counted_post_recv
30 100
cob=libbmi_mx.so
cfn=post_recv
calls=20 0
31 2400

fn=post_recv
7 2300
cfn=memcpy
calls=20 0
8 100

fn=perf::counted_post_recv'2
cfn=post_recv
calls=2 0
31 300
";

    #[test]
    fn only_calls_of_the_function_itself_count() {
        assert_eq!(within(FILE, "counted_post_recv"), 2700);
        assert_eq!(within(FILE, "counted_post_send"), 0);
    }
}
