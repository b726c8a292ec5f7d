//! One picture as SVG: curves over two logarithmic axes, and beside them what each is.
//!
//! ```text
//!    200 |          .-- largest of the repeats
//!    100 |      .--o--- median, in a band       -o-  method
//!     50 |   --o--'                             -o-  bare TCP        a dash of its own each
//!     20 |--o      ===                          ===  goal: <= 1.1 x bare TCP
//!         8 B    1 KiB   1 MiB
//! ```
//!
//! Both axes begin and end with a labelled tick. Black is left to the page: what is black on a light
//! one is white on a dark one.
//!
//! Owns: ticks, labels, colours.

use crate::figures::Spread;
use plotters::coord::combinators::{BindKeyPoints, LogCoord, WithKeyPoints};
use plotters::element::DashedPathElement;
use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color, IntoDrawingArea, IntoLogRange, PathElement, Polygon,
    RGBColor, SVGBackend, Text,
};
use std::error::Error;

/// The contents of one picture.
pub(crate) struct Plot {
    /// Of the file, without its ending.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
    pub(crate) goals: Vec<Goal>,
}

/// One thing that was measured. Coordinates are positive: both axes are logarithmic.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, Spread)>,
}

/// Limits of the method, in the colour of the curve that they are derived from.
pub(crate) struct Goal {
    pub(crate) name: String,
    pub(crate) curve: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A direction: the words beside it, and how its numbers are written.
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    pub(crate) numbers: Numbers,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbers {
    /// Powers of two, in B, KiB, MiB ...
    Bytes,
    /// 1, 2, 3 ... 10, 20 ...
    Plain,
    /// The same in percent; [`NONE`] stands for 0, which a logarithm does not have.
    Percent,
}

/// Where a loss of 0 % is drawn: left of the smallest that is measured.
pub(crate) const NONE: f64 = 0.05;

impl Plot {
    /// Draws it.
    pub(crate) fn svg(&self) -> Result<String, Box<dyn Error>> {
        let (x, y) = self.ticks();
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let (left, right) = area.split_horizontally(WIDTH - LEGEND);
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, (FONT, 20))
            .margin(MARGIN)
            .x_label_area_size(50)
            .y_label_area_size(Y_LABELS)
            .build_cartesian_2d(x.axis(), y.axis())?;
        chart
            .configure_mesh()
            .label_style((FONT, FONT_SIZE))
            .x_desc(self.x.title)
            .y_desc(self.y.title)
            .x_label_formatter(&|x| self.x.numbers.label(*x))
            .y_label_formatter(&|y| self.y.numbers.label(*y))
            .draw()?;
        // A line's name, and where a piece of the line is to be drawn beside it.
        let legend = |row: usize, name: &str| {
            let y = MARGIN + 40 + 24 * row as i32;
            let text = Text::new(name.to_owned(), (48, y - 7), (FONT, FONT_SIZE));
            right.draw(&text).map(|()| [(4, y), (42, y)])
        };
        // The first curve is the method's, and lies on top.
        for (n, curve) in self.curves.iter().enumerate().rev() {
            let (colour, dash, gap) = style(n);
            let (thin, line) = (colour.stroke_width(1), colour.stroke_width(2));
            let points = || curve.points.iter().map(|(x, y)| (*x, *y));
            let upper = points().map(|(x, y)| (x, y.max));
            let lower = points().map(|(x, y)| (x, y.min));
            let band = upper.chain(lower.rev()).collect::<Vec<_>>();
            chart.draw_series([Polygon::new(band, colour.mix(0.18))])?;
            let medians = points().map(|(x, y)| (x, y.median));
            chart.draw_series([DashedPathElement::new(medians.clone(), dash, gap, line)])?;
            chart.draw_series(
                points().map(|(x, y)| PathElement::new([(x, y.min), (x, y.max)], thin)),
            )?;
            chart.draw_series(medians.map(|at| Circle::new(at, 4, colour.filled())))?;
            let sample = legend(n, &curve.name)?;
            right.draw(&DashedPathElement::new(sample, dash, gap, line))?;
            right.draw(&Circle::new((23, sample[0].1), 4, colour.filled()))?;
        }
        let goals = self.goals.iter().filter(|goal| !goal.points.is_empty());
        for (n, goal) in goals.enumerate() {
            let line = style(goal.curve).0.stroke_width(4);
            let sample = legend(self.curves.len() + n, &goal.name)?;
            right.draw(&DashedPathElement::new(sample, 3, 3, line))?;
            // A line through all of them, unless something was measured between two without a limit.
            let (first, last) = (goal.points[0].0, goal.points[goal.points.len() - 1].0);
            let measured = self.curves[goal.curve].points.iter();
            let measured = measured.filter(|(x, _)| (first..=last).contains(x)).count();
            if first < last && measured == goal.points.len() {
                let points = goal.points.iter().copied();
                chart.draw_series([DashedPathElement::new(points, 3, 3, line)])?;
                continue;
            }
            for &(at, limit) in &goal.points {
                let ends = x.around(at, GOAL).map(|x| (x, limit));
                chart.draw_series([DashedPathElement::new(ends, 3, 3, line)])?;
            }
        }
        area.present()?;
        drop((chart, left, right, area));
        // Light or dark is the reader's choice; what knows no such words shows black on nothing.
        let colours = "<svg role=\"img\" style=\"color-scheme: light dark; background: Canvas; color: CanvasText\"";
        Ok(svg
            .replacen("<svg", colours, 1)
            .replace("\"#000000\"", "\"currentColor\""))
    }

    fn ticks(&self) -> (Ticks, Ticks) {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let measured = points().map(|(x, _)| *x).collect::<Vec<_>>();
        let figures = points().flat_map(|(_, y)| [y.min, y.max]);
        let limits = self.goals.iter().flat_map(|goal| &goal.points);
        let figures = figures.chain(limits.map(|(_, limit)| *limit));
        let width = f64::from(WIDTH - LEGEND - Y_LABELS) - 2.0 * f64::from(MARGIN);
        (
            Ticks::of(self.x.numbers, &measured, &measured, 54.0 / width),
            Ticks::of(
                self.y.numbers,
                &figures.collect::<Vec<_>>(),
                &[],
                30.0 / 340.0,
            ),
        )
    }
}

/// Where an axis has lines across, and which of them have labels.
struct Ticks {
    lines: Vec<f64>,
    labelled: Vec<f64>,
}

impl Ticks {
    /// From a round number to another, with `values` between them. The ends have labels, then
    /// those of `first`, then what has room: a part `gap` of the axis from the next label.
    fn of(numbers: Numbers, values: &[f64], first: &[f64], gap: f64) -> Self {
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let all = numbers.round();
        let mut from = all.partition_point(|n| *n <= least).saturating_sub(1);
        let mut to = all.partition_point(|n| *n < most).min(all.len() - 1);
        if from >= to {
            (from, to) = (to.saturating_sub(1), (from + 1).min(all.len() - 1));
        }
        let lines = all[from..=to].to_vec();
        let (low, high) = (all[from], all[to]);
        let gap = gap * (high / low).ln();
        let wanted = lines.iter().filter(|n| first.contains(n));
        let mut others = lines.iter().collect::<Vec<_>>();
        others.sort_by_key(|n| numbers.rank(**n));
        let mut labelled = Vec::<f64>::new();
        for n in [&low, &high].into_iter().chain(wanted).chain(others) {
            if labelled.iter().all(|other| (n / other).ln().abs() >= gap) {
                labelled.push(*n);
            }
        }
        labelled.sort_by(f64::total_cmp);
        Self { lines, labelled }
    }

    fn ends(&self) -> (f64, f64) {
        let end = |n: Option<&f64>| n.copied().unwrap_or(1.0);
        (end(self.lines.first()), end(self.lines.last()))
    }

    fn axis(&self) -> WithKeyPoints<LogCoord<f64>> {
        let (low, high) = self.ends();
        (low..high)
            .log_scale()
            .with_key_points(self.labelled.clone())
            .with_light_points(self.lines.clone())
    }

    /// Half of `part` of the axis to each side; at the axis's ends all of it to one.
    fn around(&self, n: f64, part: f64) -> [f64; 2] {
        let (low, high) = self.ends();
        let half = (high / low).powf(part / 2.0);
        let middle = n.clamp(low * half, high / half);
        [middle / half, middle * half]
    }
}

impl Numbers {
    /// The round ones, ascending.
    fn round(self) -> Vec<f64> {
        match self {
            Self::Bytes => (0..63).map(|n| 2f64.powi(n)).collect(),
            // A quotient is the float nearest to 0.02, a product is not.
            Self::Plain | Self::Percent => (-9..=12)
                .flat_map(|e| {
                    (1..10).map(f64::from).map(move |n| match e {
                        ..0 => n / 10f64.powi(-e),
                        _ => n * 10f64.powi(e),
                    })
                })
                .collect(),
        }
    }

    /// The lower, the sooner it has a label: decades, then twos and fives.
    fn rank(self, n: f64) -> u8 {
        let digit = n / 10f64.powf(n.log10().floor());
        match (self, digit.round() as u8) {
            (Self::Bytes, _) | (_, 1) => 0,
            (_, 2 | 5) => 1,
            _ => 2,
        }
    }

    pub(crate) fn label(self, n: f64) -> String {
        match self {
            Self::Bytes => {
                let unit = ((n.log2() / 10.0) as usize).min(UNITS.len() - 1);
                format!("{} {}", n / 1024f64.powi(unit as i32), UNITS[unit])
            }
            Self::Plain if n >= 1e5 => format!("{} M", n / 1e6),
            Self::Plain => n.to_string(),
            Self::Percent if n <= NONE => "none".into(),
            Self::Percent => format!("{n} %"),
        }
    }
}

/// Colour, dash and gap of a curve.
fn style(curve: usize) -> (RGBColor, u32, u32) {
    STYLES[curve % STYLES.len()]
}

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
/// Okabe's and Ito's colours, which the colour-blind tell apart, but for yellow, which cannot be seen
/// on white; the dashes tell them apart without colours. The first has none.
const STYLES: [(RGBColor, u32, u32); 7] = [
    (BLACK, 10_000, 0),
    (RGBColor(0xd5, 0x5e, 0x00), 10, 5),
    (RGBColor(0x00, 0x72, 0xb2), 3, 4),
    (RGBColor(0x00, 0x9e, 0x73), 18, 4),
    (RGBColor(0xe6, 0x9f, 0x00), 7, 7),
    (RGBColor(0xcc, 0x79, 0xa7), 2, 8),
    (RGBColor(0x56, 0xb4, 0xe9), 14, 10),
];
const FONT: &str = "sans-serif";
const FONT_SIZE: u32 = 16;
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 460;
/// Right of the curves.
const LEGEND: u32 = 310;
/// Half a label must fit right of the last tick.
const MARGIN: i32 = 30;
const Y_LABELS: u32 = 90;
/// A goal's line, as a part of the axis.
const GOAL: f64 = 0.07;

#[cfg(test)]
pub(crate) mod unit {
    use super::*;

    /// The contents of a picture: every text with its place, and every point with its colour.
    pub(crate) struct Seen {
        pub(crate) texts: Vec<Text>,
        pub(crate) points: Vec<(String, f64, f64)>,
    }

    #[derive(Debug)]
    pub(crate) struct Text {
        pub(crate) words: String,
        x: f64,
        y: f64,
        anchor: String,
        upright: bool,
    }

    impl Seen {
        pub(crate) fn of(plot: &Plot) -> Self {
            let svg = plot.svg().unwrap();
            let tags = |name: &str| -> Vec<String> {
                svg.split(&format!("<{name} "))
                    .skip(1)
                    .map(str::to_owned)
                    .collect()
            };
            let attribute = |tag: &str, name: &str| -> String {
                let after = tag.split(&format!("{name}=\"")).nth(1).unwrap();
                after.split('"').next().unwrap().to_owned()
            };
            let number = |tag: &str, name: &str| attribute(tag, name).parse::<f64>().unwrap();
            let texts = tags("text").into_iter().map(|tag| {
                let (head, rest) = tag.split_once('>').unwrap();
                let words = rest.split("</text>").next().unwrap().trim();
                Text {
                    words: words.replace("&lt;", "<").replace("&gt;", ">"),
                    x: number(head, "x"),
                    y: number(head, " y"),
                    anchor: attribute(head, "text-anchor"),
                    upright: !head.contains("rotate"),
                }
            });
            let points = tags("circle").into_iter().map(|tag| {
                let place = (number(&tag, "cx"), number(&tag, "cy"));
                (attribute(&tag, "fill"), place.0, place.1)
            });
            Self {
                texts: texts.collect(),
                points: points.collect(),
            }
        }

        /// Labels of the axis along the bottom and of the one at the left, in their order.
        fn labels(&self) -> (Vec<&Text>, Vec<&Text>) {
            // The title of the axis stands below its labels.
            let bottom = self
                .texts
                .iter()
                .filter(|text| text.anchor == "middle" && text.upright);
            let mut x = bottom.filter(|text| text.y > 300.0).collect::<Vec<_>>();
            let row = x.iter().map(|text| text.y).fold(f64::MAX, f64::min);
            x.retain(|text| text.y == row);
            let mut y = self
                .texts
                .iter()
                .filter(|text| text.anchor == "end")
                .collect::<Vec<_>>();
            x.sort_by(|a, b| a.x.total_cmp(&b.x));
            y.sort_by(|a, b| a.y.total_cmp(&b.y));
            (x, y)
        }
    }

    impl Text {
        /// From left to right, with letters as broad as they are in common fonts.
        fn reach(&self) -> (f64, f64) {
            let width = self.words.len() as f64 * 0.6 * f64::from(FONT_SIZE) / 1.24;
            match self.anchor.as_str() {
                "start" => (self.x, self.x + width),
                "middle" => (self.x - width / 2.0, self.x + width / 2.0),
                _ => (self.x - width, self.x),
            }
        }
    }

    fn plot(numbers: Numbers, points: &[(f64, f64)]) -> Plot {
        let points = points
            .iter()
            .map(|(x, y)| (*x, Spread::of(&[0.9 * y, *y, 1.2 * y])));
        Plot {
            name: "test".into(),
            title: "a test".into(),
            x: Axis {
                title: "below",
                numbers,
            },
            y: Axis {
                title: "beside",
                numbers: Numbers::Plain,
            },
            curves: vec![Curve {
                name: "method".into(),
                points: points.collect(),
            }],
            goals: vec![],
        }
    }

    fn plots() -> Vec<Plot> {
        let bytes = |sizes: &[u32]| {
            let points = sizes
                .iter()
                .map(|n| (f64::from(*n), 0.1 + f64::from(*n) / 3e3));
            plot(Numbers::Bytes, &points.collect::<Vec<_>>())
        };
        let loss = [NONE, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0].map(|n| (n, 515.0 / (1.0 + n)));
        let peers = [1.0, 10.0, 100.0, 1000.0, 2000.0, 10_000.0].map(|n| (n, 2e6 * n));
        vec![
            bytes(&[8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]),
            bytes(&[1 << 10, 1 << 30]),
            bytes(&[1, 2, 4, 8, 16, 32]),
            bytes(&[1000, 3_000_000]),
            bytes(&[8]),
            plot(Numbers::Percent, &loss),
            plot(Numbers::Plain, &peers),
            plot(Numbers::Plain, &[(1.0, 7.0), (10.0, 7.0)]),
        ]
    }

    #[test]
    fn every_point_lies_between_labelled_ticks() {
        for plot in plots() {
            let seen = Seen::of(&plot);
            let (x, y) = seen.labels();
            // The last one is the legend's.
            let points = &seen.points[..seen.points.len() - 1];
            assert_eq!(points.len(), plot.curves[0].points.len());
            for (_, cx, cy) in points {
                assert!((x[0].x..=x[x.len() - 1].x).contains(cx), "{cx} {x:?}");
                assert!((y[0].y..=y[y.len() - 1].y).contains(cy), "{cy} {y:?}");
            }
            // No half of an axis is without, unless there are hardly any round numbers.
            for places in [
                x.iter().map(|text| text.x).collect::<Vec<_>>(),
                y.iter().map(|text| text.y).collect(),
            ] {
                let (first, last) = (places[0], places[places.len() - 1]);
                let widest = places
                    .windows(2)
                    .map(|pair| pair[1] - pair[0])
                    .fold(0.0, f64::max);
                let half = 0.55 * (last - first);
                assert!(places.len() <= 3 || widest <= half, "{places:?}");
            }
        }
    }

    #[test]
    fn labels_do_not_overlap_and_are_inside_the_picture() {
        for plot in plots() {
            let seen = Seen::of(&plot);
            let (x, y) = seen.labels();
            for pair in x.windows(2) {
                assert!(pair[0].reach().1 < pair[1].reach().0, "{pair:?}");
            }
            for pair in y.windows(2) {
                assert!(pair[1].y - pair[0].y > f64::from(FONT_SIZE), "{pair:?}");
            }
            for text in seen.texts.iter().filter(|text| text.upright) {
                let (left, right) = text.reach();
                assert!(left >= 0.0 && right <= f64::from(WIDTH), "{text:?}");
                assert!(
                    text.y > 10.0 && text.y < f64::from(HEIGHT) - 10.0,
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn sizes_are_powers_of_two_with_units() {
        let words = |plot: &Plot| -> Vec<String> {
            let seen = Seen::of(plot);
            seen.labels()
                .0
                .iter()
                .map(|text| text.words.clone())
                .collect()
        };
        let plots = plots();
        // Those that were measured come first, then what has room.
        let wanted = [
            "8 B", "32 B", "128 B", "1 KiB", "8 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB",
        ];
        assert_eq!(words(&plots[0]), wanted);
        let odd = words(&plots[3]);
        assert_eq!(
            (odd[0].as_str(), odd[odd.len() - 1].as_str()),
            ("512 B", "4 MiB")
        );
        for label in odd {
            let (number, unit) = label.split_once(' ').unwrap();
            assert!(number.parse::<u32>().unwrap().is_power_of_two(), "{label}");
            assert!(UNITS.contains(&unit), "{label}");
        }
        assert_eq!(words(&plots[5])[..2], ["none", "0.1 %"]);
    }

    #[test]
    fn what_is_black_is_the_page_s_colour() {
        let svg = plots()[0].svg().unwrap();
        assert!(svg.contains("currentColor") && !svg.contains("#000000"));
    }
}
