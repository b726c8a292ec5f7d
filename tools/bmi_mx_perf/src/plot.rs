//! SVG plots: what depends on the message size, goodput against loss, and a server against its peers.
//!
//! ```text
//!   rows of one test and port ---> a line for the method
//!                             ---> a line for each reference
//! ```
//!
//! Owns: how figures become lines.
//! Knows nothing of: how they were measured.

use crate::args::Port;
use crate::report::Row;
use plotters::prelude::{
    BLUE, CYAN, ChartBuilder, Color, GREEN, IntoDrawingArea, IntoLogRange, LineSeries, MAGENTA,
    PathElement, RED, RGBColor, SVGBackend, SeriesLabelPosition, WHITE,
};
use std::path::Path;

/// Writes `TEST-PORT.svg` for latency, bandwidth and loss.
pub(crate) fn write(directory: &Path, rows: &[Row]) -> Result<(), String> {
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    for test in ["latency", "bandwidth", "loss"] {
        for port in Port::ALL.map(Port::name) {
            let rows: Vec<_> = rows
                .iter()
                .filter(|row| row.test == test && row.port == port && row.size > 0)
                .collect();
            if rows.len() > 1 {
                let file = directory.join(format!("{test}-{port}.svg"));
                draw(&file, &format!("{test}, {port}"), &Lines::of(&rows))
                    .map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
    }
    Ok(())
}

/// A line's name and its points.
type Line = (String, Vec<(f64, f64)>);

/// What one plot shows. The first line is the method's.
pub(crate) struct Lines {
    lines: Vec<Line>,
    x: X,
    unit: &'static str,
}

/// What lies along the bottom.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum X {
    Bytes,
    Peers,
    /// Percent of loss; [`LOSSLESS`] stands for none, which a logarithm does not have.
    Loss,
}

impl Lines {
    /// Points with positive coordinates: both axes are logarithmic.
    pub(crate) fn new(lines: Vec<Line>, x: X, unit: &'static str) -> Self {
        Self { lines, x, unit }
    }

    fn of(rows: &[&Row]) -> Self {
        // Against loss one size is drawn, the first there is.
        let size = rows.first().map_or(0, |row| row.size);
        let drawn = |row: &&&Row| row.loss_percent.is_none() || row.size == size;
        let mut lines = vec![("method".to_owned(), Vec::new())];
        for row in rows.iter().filter(drawn) {
            let x = row
                .loss_percent
                .map_or(row.size as f64, |percent| percent.max(LOSSLESS));
            // Beside each of several references the method was measured again.
            let method = &mut lines[0].1;
            if !method.iter().any(|(known, _)| *known == x) {
                method.push((x, row.value));
            }
            if let Some((name, value)) = &row.reference {
                match lines.iter_mut().find(|(known, _)| known == name) {
                    Some((_, points)) => points.push((x, *value)),
                    None => lines.push((name.clone(), vec![(x, *value)])),
                }
            }
        }
        Self {
            lines,
            x: match rows.iter().any(|row| row.loss_percent.is_some()) {
                true => X::Loss,
                false => X::Bytes,
            },
            unit: match rows.iter().any(|row| row.unit == "median_us") {
                true => "one way, us",
                false => "MB/s",
            },
        }
    }

    /// The smallest and the largest of something.
    fn range(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values = || self.lines.iter().flat_map(|(_, points)| points).map(&of);
        (
            values().fold(f64::MAX, f64::min),
            values().fold(0.0, f64::max),
        )
    }
}

/// Draws it into a file.
pub(crate) fn draw(
    file: &Path,
    title: &str,
    what: &Lines,
) -> Result<(), Box<dyn std::error::Error>> {
    let (first, last) = what.range(|(x, _)| *x);
    let (low, high) = what.range(|(_, y)| *y);
    let area = SVGBackend::new(file, (800, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(
            (first..last * 1.01).log_scale(),
            (low * 0.7..high * 1.4).log_scale(),
        )?;
    let percent = |x: &f64| match *x {
        x if x <= LOSSLESS => "0".into(),
        x => x.to_string(),
    };
    let plain = |x: &f64| x.to_string();
    let mut mesh = chart.configure_mesh();
    mesh.y_desc(what.unit);
    match what.x {
        X::Bytes => mesh.x_desc("message size, bytes").x_label_formatter(&plain),
        X::Peers => mesh.x_desc("connected peers").x_label_formatter(&plain),
        X::Loss => mesh
            .x_desc("loss, percent (leftmost: none)")
            .x_label_formatter(&percent),
    };
    mesh.draw()?;
    for ((label, points), colour) in what.lines.iter().zip(COLOURS.iter().cycle()) {
        let points = points.iter().copied();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(plotters::prelude::BLACK)
        .background_style(WHITE)
        .draw()?;
    area.present()?;
    Ok(())
}

/// Of the lines, in their order.
const COLOURS: [RGBColor; 5] = [BLUE, RED, GREEN, MAGENTA, CYAN];
/// Where no loss is drawn: left of the smallest that is measured.
const LOSSLESS: f64 = 0.05;

#[cfg(test)]
mod unit {
    use super::*;
    use crate::bursts::Bursts;

    fn row(size: usize, value: f64, reference: &str, loss_percent: Option<f64>) -> Row {
        Row {
            test: "bandwidth",
            port: "dgram",
            size,
            unit: "mb_s",
            value,
            p99_us: None,
            reference: Some((reference.into(), 2.0 * value)),
            ratio: None,
            loss_percent,
            bursts: Bursts::default(),
        }
    }

    #[test]
    fn every_reference_has_a_line_and_the_method_has_one() {
        let rows = [
            row(8, 1.0, "a", None),
            row(8, 1.5, "b", None),
            row(16, 3.0, "a", None),
        ];
        let lines = Lines::of(&rows.iter().collect::<Vec<_>>()).lines;
        let wanted = [
            ("method", vec![(8.0, 1.0), (16.0, 3.0)]),
            ("a", vec![(8.0, 2.0), (16.0, 6.0)]),
            ("b", vec![(8.0, 3.0)]),
        ];
        assert_eq!(
            lines,
            wanted.map(|(name, points)| (name.to_owned(), points))
        );
    }

    #[test]
    fn no_loss_has_a_place_on_a_logarithmic_axis() {
        let rows = [row(8, 1.0, "a", Some(0.0)), row(8, 0.5, "a", Some(1.0))];
        let lines = Lines::of(&rows.iter().collect::<Vec<_>>());
        assert!(lines.x == X::Loss);
        assert_eq!(lines.lines[0].1, [(LOSSLESS, 1.0), (1.0, 0.5)]);
    }
}
