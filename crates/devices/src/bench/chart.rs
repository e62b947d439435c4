//! The bandwidths as a chart.

use std::collections::BTreeMap;
use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, Circle, Color, Cross, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, PathElement,
    RGBColor, SVGBackend, TRANSPARENT, Text, TriangleMarker, WHITE,
};

use crate::bench::record::{Measured, Record};
use crate::output::{bytes, shortened};

/// The width, and the least height.
const SIZE: (u32, u32) = (1000, 600);

/// Where the lines end and their names begin.
const LINES: u32 = 690;

/// Colours that people with any eyesight tell apart: those of Okabe and Ito, without the yellow.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// The longest name beside the lines, in characters.
const NAME: usize = 44;

const TEXT: (&str, i32) = ("sans-serif", 14);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The chart as SVG: the size from left to right, the bandwidth from the bottom to the top, both in powers.
pub(crate) fn svg(record: &Record) -> Result<String, String> {
    let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for measurement in &record.measurements {
        if let (Some(size), Some(rate)) = (measurement.bytes, measurement.bandwidth()) {
            let name = format!("{}: {}", measurement.device, measurement.what());
            series.entry(name).or_default().push((size as f64, rate / 1e9));
        }
    }
    if series.is_empty() {
        return Err("there is no bandwidth to draw".to_owned());
    }
    // What the driver says is a line across the sizes. A copy within the device reads and writes each byte,
    // and so has half of it at most.
    let sizes: Vec<f64> = series.values().flatten().map(|point| point.0).collect();
    for Measured { device, memory_bandwidth, .. } in &record.devices {
        if let Some(rate) = memory_bandwidth {
            let points = sizes.iter().map(|size| (*size, *rate as f64 / 1e9)).collect::<Vec<_>>();
            series.insert(format!("{device}: bandwidth of its memory"), points);
        }
    }
    let mut text = String::new();
    let lines = series.len() + record.devices.len() + 1;
    let size = (SIZE.0, SIZE.1.max(80 + 20 * lines as u32));
    draw(&SVGBackend::with_string(&mut text, size).into_drawing_area(), record, &series)
        .map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(
    area: &Area<'_>,
    record: &Record,
    series: &BTreeMap<String, Vec<(f64, f64)>>,
) -> Result<(), Box<dyn Error>> {
    let failed = |error: &dyn Error| error.to_string();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    // Beside the lines, so that it hides none.
    let (lines, legend) = area.split_horizontally(LINES);
    let mut chart = ChartBuilder::on(&lines)
        .caption("Bandwidth by size", ("sans-serif", 22))
        .margin(15)
        .x_label_area_size(45)
        .y_label_area_size(70)
        .build_cartesian_2d(
            range(series, |point| point.0).log_scale().base(4.0),
            range(series, |point| point.1).log_scale().base(2.0),
        )
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .x_desc("size")
        .y_desc("bandwidth in GB/s")
        .axis_desc_style(("sans-serif", 15))
        .y_labels(20)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|size| bytes(*size as u64))
        .y_label_formatter(&|rate| rounded(*rate))
        .draw()
        .map_err(|error| failed(&error))?;
    for (number, (name, points)) in series.iter().enumerate() {
        let style = COLOURS[number % COLOURS.len()].stroke_width(2);
        let line = LineSeries::new(points.iter().copied(), style);
        chart.draw_series(line).map_err(|error| failed(&error))?;
        let (points, filled) = (points.iter().copied(), style.filled());
        // Where colours come again, the marks are others.
        match number / COLOURS.len() {
            0 => chart.draw_series(points.map(|point| Circle::new(point, 3, filled))).map(drop),
            1 => chart.draw_series(points.map(|point| TriangleMarker::new(point, 5, filled))).map(drop),
            2 => chart.draw_series(points.map(|point| Cross::new(point, 4, style))).map(drop),
            _ => chart.draw_series(points.map(|point| Circle::new(point, 5, style))).map(drop),
        }
        .map_err(|error| failed(&error))?;
        let y = 45 + 20 * number as i32;
        legend.draw(&PathElement::new([(0, y), (22, y)], style)).map_err(|error| failed(&error))?;
        match number / COLOURS.len() {
            0 => legend.draw(&Circle::new((11, y), 3, filled)),
            1 => legend.draw(&TriangleMarker::new((11, y), 5, filled)),
            2 => legend.draw(&Cross::new((11, y), 4, style)),
            _ => legend.draw(&Circle::new((11, y), 5, style)),
        }
        .map_err(|error| failed(&error))?;
        legend.draw(&Text::new(shortened(name, NAME), (30, y - 7), TEXT)).map_err(|error| failed(&error))?;
    }
    // What was measured, and when.
    let devices = record.devices.iter().map(|Measured { device, name, driver, .. }| {
        let driver = driver.as_ref().map(|driver| format!(", {driver}")).unwrap_or_default();
        format!("{device}: {name}{driver}")
    });
    for (number, line) in devices.chain([record.date.clone()]).enumerate() {
        let y = 60 + 20 * (series.len() + number) as i32;
        legend.draw(&Text::new(shortened(&line, NAME), (0, y), TEXT)).map_err(|error| failed(&error))?;
    }
    area.present().map_err(|error| failed(&error))?;
    Ok(())
}
fn range(series: &BTreeMap<String, Vec<(f64, f64)>>, of: fn(&(f64, f64)) -> f64) -> std::ops::Range<f64> {
    let values = series.values().flatten().map(of);
    let (least, most) = values
        .fold((f64::MAX, f64::MIN), |(least, most): (f64, f64), value| (least.min(value), most.max(value)));
    (least / 1.3)..(most * 1.3)
}

/// A power of two as people write it: `0.25`, `16`.
fn rounded(rate: f64) -> String {
    if rate >= 0.125 { format!("{rate}") } else { format!("{rate:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::Measurement;

    #[test]
    fn the_bandwidth_that_a_driver_tells_is_a_line() {
        let measured = |device: &str, memory_bandwidth| Measured {
            device: device.to_owned(),
            name: String::new(),
            driver: None,
            memory_bandwidth,
        };
        let measurements = [1 << 12, 1 << 20].map(|size| Measurement {
            device: "acme:0".to_owned(),
            operation: "copy within".to_owned(),
            to: None,
            bytes: Some(size),
            operations: None,
            seconds: 1e-3,
            quartiles: None,
        });
        let devices = vec![measured("acme:0", Some(64_000_000_000)), measured("acme:1", None)];
        let record = Record { devices, measurements: measurements.to_vec(), ..Record::new() };
        let svg = svg(&record).expect("there is something to draw");
        assert!(svg.contains("acme:0: copy within") && svg.contains("acme:0: bandwidth of its memory"));
        assert!(!svg.contains("acme:1: bandwidth"));
        let nothing = Record { measurements: Vec::new(), ..record };
        assert!(super::svg(&nothing).is_err());
    }
}
