//! Draws latency and bandwidth by message size, as SVG, from the table of `make bench` in `bench/RESULTS.md`.
//!
//! ```text
//!   bench/RESULTS.md --> rows between the markers --> points of each line --> two charts with log axes --> SVG
//! ```
//!
//! The drawing depends on the table alone, so that a test can compare the committed file with it.

use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

/// Markers around the part of the page that `make bench` writes.
const PART: (&str, &str) = ("<!-- make bench -->", "<!-- end of make bench -->");

/// Size of the drawing, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 450.0;

/// Size of a chart without its labels, in pixels, and the distance of its top from the drawing's.
const CHART: (f64, f64) = (390.0, 290.0);
const TOP: f64 = 50.0;

/// A line of both charts.
struct Subject {
    /// Label in the legend.
    label: &'static str,
    port: &'static str,
    /// Reference whose figure is drawn; None draws the library's own.
    reference: Option<&'static str>,
    colour: &'static str,
    /// Value of `stroke-dasharray`.
    dashes: &'static str,
}

const SUBJECTS: [Subject; 6] = [
    Subject {
        label: "libbmi_mx, local",
        port: "local",
        reference: None,
        colour: "#0b6e4f",
        dashes: "none",
    },
    Subject {
        label: "bare shared-memory ring",
        port: "local",
        reference: Some("bare ring"),
        colour: "#0b6e4f",
        dashes: "7 4",
    },
    Subject {
        label: "UCX, posix",
        port: "local",
        reference: Some("UCX"),
        colour: "#0b6e4f",
        dashes: "2 4",
    },
    Subject {
        label: "libbmi_mx, tcp",
        port: "tcp",
        reference: None,
        colour: "#b3541e",
        dashes: "none",
    },
    Subject {
        label: "bare TCP socket",
        port: "tcp",
        reference: Some("bare TCP"),
        colour: "#b3541e",
        dashes: "7 4",
    },
    Subject {
        label: "UCX, tcp",
        port: "tcp",
        reference: Some("UCX"),
        colour: "#b3541e",
        dashes: "2 4",
    },
];

/// Chart of one test: its axes and its position in the drawing.
struct Chart {
    title: &'static str,
    /// Name of the test in the table, and the unit of its figures there.
    test: &'static str,
    unit: &'static str,
    /// Smallest and largest message size, in bytes.
    sizes: (f64, f64),
    /// Smallest and largest figure, in `unit`.
    figures: (f64, f64),
    /// Left edge, in pixels.
    left: f64,
}

const CHARTS: [Chart; 2] = [
    Chart {
        title: "Latency, one way, by message size (lower is better)",
        test: "latency",
        unit: "us",
        sizes: (8.0, 4_194_304.0),
        figures: (0.01, 1000.0),
        left: 70.0,
    },
    Chart {
        title: "Bandwidth by message size (higher is better)",
        test: "bandwidth",
        unit: "MB/s",
        sizes: (1024.0, 4_194_304.0),
        figures: (100.0, 100_000.0),
        left: 555.0,
    },
];

/// A row of the table, as far as it is drawn.
struct Row<'a> {
    test: &'a str,
    port: &'a str,
    size: f64,
    /// Figure of the library and of the reference, with their units.
    figure: &'a str,
    reference: &'a str,
    beside: &'a str,
}

/// Reads the rows of the table that `bench/src/report.rs` prints in columns of fixed width.
///
/// Returns an error where the page has no table. Lines of other tests, which may be wider, are left out.
fn rows(page: &str) -> Result<Vec<Row<'_>>, String> {
    let missing = || format!("the page has no {}", PART.0);
    let (_, part) = page.split_once(PART.0).ok_or_else(missing)?;
    let (part, _) = part.split_once(PART.1).ok_or_else(missing)?;
    let row = |line| -> Option<Row<'_>> {
        let column = |from: usize, to: usize| -> Option<&str> {
            let line: &str = line;
            Some(line.get(from..to.min(line.len()))?.trim())
        };
        Some(Row {
            test: column(0, 10)?,
            port: column(11, 17)?,
            size: column(18, 27)?.parse().ok()?,
            figure: column(28, 42)?,
            reference: column(54, 76)?,
            beside: column(77, 89)?,
        })
    };
    Ok(part.lines().filter_map(row).collect())
}

/// Returns the points of a line of a chart: size in bytes, figure in the chart's unit.
fn points(rows: &[Row<'_>], chart: &Chart, subject: &Subject) -> Result<Vec<(f64, f64)>, String> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for row in rows {
        let beside = subject
            .reference
            .is_none_or(|name| row.reference.starts_with(name));
        if row.test != chart.test || row.port != subject.port || !beside || row.size == 0.0 {
            continue;
        }
        let text = if subject.reference.is_some() {
            row.beside
        } else {
            row.figure
        };
        let figure = text
            .strip_suffix(chart.unit)
            .and_then(|number| number.trim().parse::<f64>().ok())
            .ok_or_else(|| format!("{} {} {}: {text}", row.test, row.port, row.size))?;
        // The library is measured once beside each reference; the first of these rows is drawn.
        if points.last().is_none_or(|(size, _)| *size != row.size) {
            points.push((row.size, figure));
        }
    }
    Ok(points)
}

/// Returns the position of a value on a logarithmic axis, from 0 to 1.
fn position(value: f64, (smallest, largest): (f64, f64)) -> f64 {
    (value / smallest).ln() / (largest / smallest).ln()
}

/// Formats a size in bytes with a binary prefix: 8 B, 64K, 4M.
fn size_label(bytes: f64) -> String {
    match bytes {
        b if b >= 1_048_576.0 => format!("{}M", b / 1_048_576.0),
        b if b >= 1024.0 => format!("{}K", b / 1024.0),
        b => format!("{b} B"),
    }
}

fn draw_chart(svg: &mut String, chart: &Chart, rows: &[Row<'_>]) -> Result<(), String> {
    let (width, height) = CHART;
    let bottom = TOP + height;
    let x = |size: f64| chart.left + width * position(size, chart.sizes);
    let y = |figure: f64| bottom - height * position(figure, chart.figures);
    let (left, right) = (chart.left, chart.left + width);
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        r#"<text x="{left}" y="{}" font-weight="bold">{}</text>"#,
        TOP - 18.0,
        chart.title
    ));
    let mut figure = chart.figures.0;
    while figure <= chart.figures.1 * 1.001 {
        let at = y(figure);
        line(format!(
            r##"<path d="M{left} {at:.1}H{right}" stroke="#ddd"/>"##
        ));
        line(format!(
            r#"<text x="{}" y="{:.1}" text-anchor="end">{figure} {}</text>"#,
            left - 6.0,
            at + 4.0,
            chart.unit.replace("us", "µs")
        ));
        figure *= 10.0;
    }
    let mut size = chart.sizes.0;
    while size <= chart.sizes.1 {
        line(format!(
            r#"<text x="{:.1}" y="{}" text-anchor="middle">{}</text>"#,
            x(size),
            bottom + 18.0,
            size_label(size)
        ));
        size *= 8.0;
    }
    line(format!(
        r##"<path d="M{left} {TOP}V{bottom}H{right}" stroke="#444" fill="none"/>"##
    ));
    for subject in &SUBJECTS {
        let points = points(rows, chart, subject)?;
        let Subject { colour, dashes, .. } = subject;
        let place = |(size, figure): &(f64, f64)| format!("{:.1},{:.1}", x(*size), y(*figure));
        let places: Vec<String> = points.iter().map(place).collect();
        line(format!(
            r#"<polyline points="{}" stroke="{colour}" stroke-dasharray="{dashes}" stroke-width="2" fill="none"/>"#,
            places.join(" ")
        ));
    }
    Ok(())
}

/// Draws both charts of a page with the table of `make bench`.
///
/// Returns an error where the page has no table or a figure cannot be read.
fn picture(page: &str) -> Result<String, String> {
    let rows = rows(page)?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <!-- drawn by make bench-picture from bench/RESULTS.md -->\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    for chart in &CHARTS {
        draw_chart(&mut svg, chart, &rows)?;
    }
    for (n, subject) in SUBJECTS.iter().enumerate() {
        let x = CHARTS[0].left + 300.0 * (n % 3) as f64;
        let y = TOP + CHART.1 + 55.0 + 24.0 * (n / 3) as f64;
        let Subject { colour, dashes, .. } = subject;
        let _ = write!(
            svg,
            "<path d=\"M{x} {y}h40\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\">{}</text>\n",
            x + 50.0,
            y + 4.0,
            subject.label
        );
    }
    Ok(svg + "</svg>\n")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [page, drawing] = &arguments[..] else {
        eprintln!("usage: picture PAGE DRAWING");
        return ExitCode::FAILURE;
    };
    let drawn = fs::read_to_string(page)
        .map_err(|error| error.to_string())
        .and_then(|text| picture(&text))
        .and_then(|svg| fs::write(drawing, svg).map_err(|error| error.to_string()));
    match drawn {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("picture: {page}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    const PAGE: &str = include_str!("../RESULTS.md");

    #[test]
    fn committed_picture_matches_the_table() {
        assert!(
            picture(PAGE).unwrap() == include_str!("../results.svg"),
            "bench/results.svg is not what the table gives: make bench-picture"
        );
    }

    #[test]
    fn every_line_has_points_inside_its_chart() {
        let rows = rows(PAGE).unwrap();
        for chart in &CHARTS {
            for subject in &SUBJECTS {
                let points = points(&rows, chart, subject).unwrap();
                assert!(points.len() >= 2, "{} {}", chart.test, subject.label);
                for (size, figure) in points {
                    let inside = |at: f64| (0.0..=1.0).contains(&at);
                    assert!(inside(position(size, chart.sizes)), "{size}");
                    assert!(inside(position(figure, chart.figures)), "{figure}");
                }
            }
        }
    }

    #[test]
    fn page_without_a_table_and_unreadable_figures_are_errors() {
        assert!(picture("").is_err());
        let broken = PAGE.replacen(" us ", " ns ", 40);
        assert!(picture(&broken).is_err());
    }
}
