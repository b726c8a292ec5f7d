//! From rows of one test and port to a picture.
//!
//! ```text
//!   rows ---> a curve for the method, with what it was beside any reference
//!        ---> a curve for each reference
//!        ---> the goals, which are parts of a reference
//! ```

use crate::figures::Spread;
use crate::plot::{Axis, Curve, Goal, NONE, Numbers, Plot};
use crate::report::Row;
use crate::targets::Target;

/// The plot of these rows; `None` where a table says it all.
pub(crate) fn of(rows: &[Row]) -> Option<Plot> {
    let (y, numbers) = match rows.first()?.test {
        "latency" => ("one way, us", Numbers::Bytes),
        "bandwidth" => ("MB/s", Numbers::Bytes),
        "rate" => ("messages a second", Numbers::Bytes),
        "loss" => ("MB/s", Numbers::Percent),
        _ => return None,
    };
    // A logarithm has no zero. Against loss one size is drawn, the first there is.
    let mut rows = rows.iter().filter(|row| row.size > 0).peekable();
    let first = *rows.peek()?;
    let mut curves = vec![Curve::new("method")];
    let mut goals = Vec::<Limits>::new();
    for row in rows.filter(|row| row.loss_percent.is_none() || row.size == first.size) {
        let x = row
            .loss_percent
            .map_or(row.size as f64, |percent| percent.max(NONE));
        curves[0].add(x, row.value);
        let Some((name, value)) = &row.reference else {
            continue;
        };
        let known = curves.iter().position(|curve| curve.name == *name);
        let curve = known.unwrap_or_else(|| {
            curves.push(Curve::new(name));
            curves.len() - 1
        });
        curves[curve].add(x, *value);
        if let Some(target) = Target::of(row) {
            let limit = (x, target);
            match goals.iter_mut().find(|(of, _)| *of == curve) {
                Some((_, limits)) => limits.push(limit),
                None => goals.push((curve, vec![limit])),
            }
        }
    }
    let goals = goals.iter().map(|limits| goal(limits, &curves)).collect();
    Some(Plot {
        name: format!("{}-{}", first.test, first.port),
        title: match numbers {
            Numbers::Percent => format!(
                "{}, {} over {}",
                first.test,
                Numbers::Bytes.label(first.size as f64),
                first.port
            ),
            _ => format!("{} over {}", first.test, first.port),
        },
        x: Axis {
            title: match numbers {
                Numbers::Percent => "datagrams lost",
                _ => "message size",
            },
            numbers,
        },
        y: Axis {
            title: y,
            numbers: Numbers::Plain,
        },
        curves,
        goals,
    })
}

/// The curve they are parts of, and where they hold.
type Limits = (usize, Vec<(f64, Target)>);

fn goal((curve, limits): &Limits, curves: &[Curve]) -> Goal {
    let Curve { name, points } = &curves[*curve];
    let mut parts = limits
        .iter()
        .map(|(_, target)| target.goal.to_string())
        .collect::<Vec<_>>();
    parts.dedup();
    let sign = limits.first().map_or("", |(_, target)| target.sign());
    let limit = |(at, target): &(f64, Target)| {
        let (_, reference) = points.iter().find(|(x, _)| x == at)?;
        Some((*at, target.goal * reference.median))
    };
    Goal {
        name: format!("goal: {sign} {} x {name}", parts.join(", ")),
        curve: *curve,
        points: limits.iter().filter_map(limit).collect(),
    }
}

impl Curve {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            points: Vec::new(),
        }
    }

    /// Beside each of several references the method was measured again: the first median counts,
    /// and the band holds all of them.
    fn add(&mut self, x: f64, y: Spread) {
        match self.points.iter_mut().find(|(known, _)| *known == x) {
            Some((_, known)) => {
                known.min = known.min.min(y.min);
                known.max = known.max.max(y.max);
            }
            None => self.points.push((x, y)),
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::bursts::Bursts;
    use crate::plot::unit::Seen;
    use crate::report;

    fn row(size: usize, value: f64, reference: &str, loss_percent: Option<f64>) -> Row {
        Row {
            test: if loss_percent.is_some() {
                "loss"
            } else {
                "bandwidth"
            },
            port: "dgram",
            size,
            unit: "mb_s",
            value: Spread::of(&[value, 0.9 * value, 1.1 * value]),
            p99_us: None,
            reference: Some((reference.into(), Spread::of(&[2.0 * value]))),
            ratio: None,
            loss_percent,
            pieces: None,
            bursts: Bursts::default(),
        }
    }

    #[test]
    fn every_reference_of_the_table_has_a_curve_and_the_method_has_one() {
        let names = ["bare TCP", "bare UDP 1472 x 44", "udp;ofi_rxd"];
        let rows = [(8, 1.0), (1 << 20, 3.0)]
            .into_iter()
            .flat_map(|(size, value)| names.map(|name| row(size, value, name, None)))
            .collect::<Vec<_>>();
        let section = &report::sections(&rows)[0];
        let seen = Seen::of(&section.plots[0]);
        let mut colours = Vec::new();
        for (n, name) in ["method"].iter().chain(&names).enumerate() {
            assert!(seen.texts.iter().any(|text| text.words == *name), "{name}");
            assert!(n == 0 || section.table.contains(name), "{name}");
            // Two sizes, and the sample beside the name. The method's are drawn last.
            let colour = &seen.points[seen.points.len() - 1 - 3 * n].0;
            let points = seen.points.iter().filter(|point| point.0 == *colour);
            assert_eq!(points.count(), 3, "{name}");
            assert!(!colours.contains(&colour), "{name}");
            colours.push(colour);
        }
        assert_eq!(seen.points.len(), 3 * colours.len());
        // 1 MiB beside TCP has a goal, the others have none.
        let goals = seen
            .texts
            .iter()
            .filter(|text| text.words.starts_with("goal"));
        let goals = goals.map(|text| text.words.as_str()).collect::<Vec<_>>();
        assert_eq!(goals, ["goal: >= 1 x bare TCP"]);
        let points = &section.plots[0].goals[0].points;
        assert_eq!(*points, [((1 << 20) as f64, 6.0)]);
    }

    #[test]
    fn the_method_beside_two_references_has_one_point_and_a_band_of_both() {
        let rows = [row(8, 1.0, "a", None), row(8, 3.0, "b", None)];
        let plot = of(&rows).unwrap();
        let [(x, Spread { median, min, max })] = plot.curves[0].points[..] else {
            panic!("one point")
        };
        assert_eq!((x, median, min, max), (8.0, 1.0, 0.9, 1.1 * 3.0));
    }

    #[test]
    fn no_loss_has_a_place_on_a_logarithmic_axis() {
        let rows = [
            row(8, 1.0, "a", Some(0.0)),
            row(8, 0.5, "a", Some(1.0)),
            row(9, 7.0, "a", Some(1.0)),
        ];
        let plot = of(&rows).unwrap();
        let places = plot.curves[0].points.iter().map(|(x, y)| (*x, y.median));
        assert_eq!(places.collect::<Vec<_>>(), [(NONE, 1.0), (1.0, 0.5)]);
        assert_eq!(plot.goals[0].points, [(1.0, 0.8)]);
        assert!(plot.title.contains("8 B"));
    }

    #[test]
    fn empty_messages_and_single_figures_stand_in_the_table_only() {
        assert!(of(&[row(0, 1.0, "a", None)]).is_none());
        let idle = Row {
            test: "idle",
            ..row(8, 1.0, "a", None)
        };
        assert!(of(&[idle]).is_none());
    }
}
