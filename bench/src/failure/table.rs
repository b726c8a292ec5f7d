//! The figures of cancel and recovery beside what they are wanted to be.
//!
//! Owns: the limits of the issue they were made for, as the README of the design has them.

use super::client::Cancelled;
use crate::figures::percentile;
use bmi_host::codes;

/// Cancel: the median, and every single one.
const CANCEL_MEDIAN_US: f64 = 50.0;
const CANCEL_MAX_US: f64 = 10_000.0;

/// Many cancels of one class.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    wall_us: Vec<f64>,
    own_us: Vec<f64>,
    called_off: usize,
    /// Complete before, or already failed: reported as they were.
    as_they_were: usize,
    /// Not reported by the first test call.
    late: usize,
}

impl Figures {
    pub(crate) fn add(&mut self, cancelled: &Cancelled) {
        self.wall_us.push(cancelled.wall_us);
        self.own_us.push(cancelled.own_us);
        match cancelled.error {
            codes::ECANCEL => self.called_off += 1,
            _ => self.as_they_were += 1,
        }
        self.late += usize::from(cancelled.calls > 1);
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.wall_us.extend(&other.wall_us);
        self.own_us.extend(&other.own_us);
        self.called_off += other.called_off;
        self.as_they_were += other.as_they_were;
        self.late += other.late;
    }

    fn median(&self) -> f64 {
        percentile(&self.wall_us, 50.0)
    }

    fn max(&self) -> f64 {
        percentile(&self.wall_us, 100.0)
    }

    fn reached(&self) -> bool {
        self.median() <= CANCEL_MEDIAN_US && self.max() <= CANCEL_MAX_US
    }
}

/// One line of `cancel`.
pub(crate) struct CancelRow<'a> {
    pub(crate) port: &'static str,
    pub(crate) peer: &'static str,
    pub(crate) class: &'static str,
    pub(crate) figures: &'a Figures,
}

pub(crate) fn cancel_heading() {
    println!(
        "{:<6} {:<8} {:<21} {:>7} {:>7} {:>5} {:>9} {:>9} {:>9} {:>9} {:>11}  median <= \
         {CANCEL_MEDIAN_US} us, max <= {} ms",
        "port",
        "peer",
        "cancelled",
        "count",
        "as was",
        "late",
        "median us",
        "99 %",
        "99.9 %",
        "max",
        "max, own",
        CANCEL_MAX_US / 1e3
    );
}

pub(crate) fn print_cancel(row: &CancelRow<'_>, json: bool) {
    println!(
        "{}",
        if json {
            cancel_json(row)
        } else {
            cancel_text(row)
        }
    );
}

fn cancel_text(row: &CancelRow<'_>) -> String {
    let CancelRow {
        port,
        peer,
        class,
        figures,
    } = row;
    let count = figures.wall_us.len();
    if count == 0 {
        return format!("{port:<6} {peer:<8} {class:<21} {count:>7}");
    }
    let wall = |percent| percentile(&figures.wall_us, percent);
    format!(
        "{port:<6} {peer:<8} {class:<21} {count:>7} {:>7} {:>5} {:>9.2} {:>9.1} {:>9.1} {:>9.1} \
         {:>11.1}  {}",
        figures.as_they_were,
        figures.late,
        figures.median(),
        wall(99.0),
        wall(99.9),
        figures.max(),
        percentile(&figures.own_us, 100.0),
        said(figures.reached())
    )
}

fn cancel_json(row: &CancelRow<'_>) -> String {
    let CancelRow {
        port,
        peer,
        class,
        figures,
    } = row;
    let wall = |percent| percentile(&figures.wall_us, percent);
    format!(
        concat!(
            r#"{{"test":"cancel","port":"{}","peer":"{}","class":"{}","count":{},"cancelled":{},"#,
            r#""as_they_were":{},"late":{},"median_us":{:.3},"p99_us":{:.3},"p999_us":{:.3},"#,
            r#""max_us":{:.3},"max_own_us":{:.3},"median_limit_us":{},"max_limit_us":{},"#,
            r#""reached":{}}}"#
        ),
        port,
        peer,
        class,
        figures.wall_us.len(),
        figures.called_off,
        figures.as_they_were,
        figures.late,
        figures.median(),
        wall(99.0),
        wall(99.9),
        figures.max(),
        percentile(&figures.own_us, 100.0),
        CANCEL_MEDIAN_US,
        CANCEL_MAX_US,
        figures.reached()
    )
}

/// One line of `recovery`.
pub(crate) struct Line<'a> {
    pub(crate) port: &'static str,
    pub(crate) what: &'a str,
    /// `ms`, `us`, or nothing for what is only counted.
    pub(crate) unit: &'static str,
    pub(crate) values: &'a [f64],
    pub(crate) limit: Option<Limit>,
    /// A remark.
    pub(crate) note: String,
}

/// The maximum of a figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Limit {
    /// Every single value.
    Max(f64),
    /// The middle one.
    Median(f64),
}

impl Limit {
    fn reached(self, values: &[f64]) -> bool {
        match self {
            Self::Max(limit) => percentile(values, 100.0) <= limit,
            Self::Median(limit) => percentile(values, 50.0) <= limit,
        }
    }
}

pub(crate) fn recovery_heading() {
    println!(
        "{:<6} {:<44} {:>5} {:>10} {:>10} {:>10}  {:<16} ",
        "port", "measure", "count", "median", "99 %", "max", "limit"
    );
}

pub(crate) fn print_line(line: &Line<'_>, json: bool) {
    println!(
        "{}",
        if json {
            line_json(line)
        } else {
            line_text(line)
        }
    );
}

fn line_text(line: &Line<'_>) -> String {
    let Line {
        port,
        what,
        unit,
        values,
        limit,
        note,
    } = line;
    let at = |percent| short(percentile(values, percent));
    let limit = limit.map_or(String::new(), |limit| {
        let (name, most) = match limit {
            Limit::Max(most) => ("max", most),
            Limit::Median(most) => ("median", most),
        };
        format!("{name} <= {most}: {}", said(limit.reached(values)))
    });
    let what = if unit.is_empty() {
        (*what).to_owned()
    } else {
        format!("{what}, {unit}")
    };
    let count = values.len();
    let text = format!(
        "{port:<6} {what:<44} {count:>5} {:>10} {:>10} {:>10}  {limit:<24} {note}",
        at(50.0),
        at(99.0),
        at(100.0)
    );
    text.trim_end().to_owned()
}

fn line_json(line: &Line<'_>) -> String {
    let Line {
        port,
        what,
        unit,
        values,
        limit,
        note,
    } = line;
    let at = |percent| percentile(values, percent);
    let what = crate::report::escaped(what);
    let mut text = format!(
        concat!(
            r#"{{"test":"recovery","port":"{}","measure":"{}","unit":"{}","count":{},"#,
            r#""median":{:.4},"p99":{:.4},"max":{:.4}"#
        ),
        port,
        what,
        unit,
        values.len(),
        at(50.0),
        at(99.0),
        at(100.0)
    );
    if let Some(limit) = limit {
        let (name, most) = match limit {
            Limit::Max(most) => ("max_limit", most),
            Limit::Median(most) => ("median_limit", most),
        };
        text += &format!(r#","{name}":{most},"reached":{}"#, limit.reached(values));
    }
    if !note.is_empty() {
        text += &format!(r#","note":"{}""#, crate::report::escaped(note));
    }
    text + "}"
}

fn said(reached: bool) -> &'static str {
    if reached { "reached" } else { "MISSED" }
}

/// Three significant digits or so.
fn short(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn figures(times: &[f64]) -> Figures {
        let mut figures = Figures::default();
        for &wall_us in times {
            figures.add(&Cancelled {
                wall_us,
                own_us: 1.0,
                error: codes::ECANCEL,
                calls: 1,
            });
        }
        figures
    }

    #[test]
    fn both_limits_count_at_their_value() {
        assert!(figures(&[50.0, 50.0, 10_000.0]).reached());
        assert!(!figures(&[50.0, 51.0, 51.0]).reached());
        assert!(!figures(&[1.0, 1.0, 10_001.0]).reached());
    }

    #[test]
    fn what_was_complete_is_told_from_what_was_called_off() {
        let mut all = figures(&[1.0]);
        let mut other = Figures::default();
        other.add(&Cancelled {
            wall_us: 2.0,
            own_us: 1.0,
            error: 0,
            calls: 2,
        });
        all.join(&other);
        assert_eq!((all.called_off, all.as_they_were, all.late), (1, 1, 1));
        let row = CancelRow {
            port: "tcp",
            peer: "alive",
            class: "all",
            figures: &all,
        };
        let json = cancel_json(&row);
        assert!(json.contains(r#""count":2,"cancelled":1,"as_they_were":1,"late":1,"#));
        assert!(
            json.ends_with(r#""max_limit_us":10000,"reached":true}"#),
            "{json}"
        );
    }

    #[test]
    fn a_limit_is_for_every_value_or_for_the_middle_one() {
        let values = [1.0, 2.0, 9.0];
        assert!(Limit::Median(2.0).reached(&values) && !Limit::Median(1.9).reached(&values));
        assert!(Limit::Max(9.0).reached(&values) && !Limit::Max(8.9).reached(&values));
        let line = Line {
            port: "local",
            what: "death",
            unit: "ms",
            values: &values,
            limit: Some(Limit::Max(5.0)),
            note: "a \"note\"".into(),
        };
        assert!(line_text(&line).contains("max <= 5: MISSED"));
        assert!(
            line_json(&line).ends_with(r#""max_limit":5,"reached":false,"note":"a \"note\""}"#)
        );
    }
}
