//! SVG plots of what depends on the message size.

use crate::args::Port;
use crate::report::Row;
use plotters::prelude::{
    BLUE, ChartBuilder, Color, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RED,
    SVGBackend, SeriesLabelPosition, WHITE,
};
use std::path::Path;

/// Writes `TEST-PORT.svg` for latency and bandwidth.
pub(crate) fn write(directory: &Path, rows: &[Row]) -> Result<(), String> {
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    for test in ["latency", "bandwidth"] {
        for port in Port::ALL.map(Port::name) {
            let rows: Vec<_> = rows
                .iter()
                .filter(|row| row.test == test && row.port == port && row.size > 0)
                .collect();
            if rows.len() > 1 {
                let file = directory.join(format!("{test}-{port}.svg"));
                draw(&file, &format!("{test}, {port}"), &rows)
                    .map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
    }
    Ok(())
}

fn draw(file: &Path, title: &str, rows: &[&Row]) -> Result<(), Box<dyn std::error::Error>> {
    let method: Vec<_> = rows
        .iter()
        .map(|row| (row.size as f64, row.value))
        .collect();
    let reference: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.size as f64, row.reference.as_ref()?.1)))
        .collect();
    let values = || method.iter().chain(&reference).map(|(_, value)| *value);
    let (low, high) = (
        values().fold(f64::MAX, f64::min),
        values().fold(0.0, f64::max),
    );
    let sizes = || method.iter().map(|(size, _)| *size);
    let (first, last) = (
        sizes().fold(f64::MAX, f64::min),
        sizes().fold(0.0, f64::max),
    );
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
    let unit = if title.starts_with("latency") {
        "one way, us"
    } else {
        "MB/s"
    };
    chart
        .configure_mesh()
        .x_desc("message size, bytes")
        .y_desc(unit)
        .draw()?;
    let name = rows
        .iter()
        .find_map(|row| row.reference.as_ref())
        .map_or("", |(name, _)| name.as_str());
    for (label, points, colour) in [("method", method, &BLUE), (name, reference, &RED)] {
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
