//! The bandwidths as a chart.

use std::collections::BTreeMap;

use plotters::prelude::{
    ChartBuilder, Color, IntoDrawingArea, IntoLogRange, LineSeries, Palette, Palette99, PathElement,
    SVGBackend, Text, WHITE,
};

use crate::bench::record::{Measured, Record};
use crate::output::bytes;

const SIZE: (u32, u32) = (1000, 600);

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
    let points = || series.values().flatten();
    let range = |of: fn(&(f64, f64)) -> f64| {
        let (least, most) = points()
            .map(of)
            .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        (least / 1.3)..(most * 1.3)
    };
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let draw = || -> Result<(), Box<dyn std::error::Error + '_>> {
            area.fill(&WHITE).map_err(|error| error.to_string())?;
            // Beside the lines, so that it hides none.
            let (lines, legend) = area.split_horizontally(720);
            let mut chart = ChartBuilder::on(&lines)
                .caption("Bandwidth by size", ("sans-serif", 22))
                .margin(15)
                .x_label_area_size(45)
                .y_label_area_size(70)
                .build_cartesian_2d(
                    range(|point| point.0).log_scale().base(4.0),
                    range(|point| point.1).log_scale(),
                )
                .map_err(|error| error.to_string())?;
            chart
                .configure_mesh()
                .x_desc("bytes")
                .y_desc("GB/s")
                .x_label_formatter(&|size| bytes(*size as u64))
                .y_label_formatter(&|rate| format!("{rate}"))
                .draw()
                .map_err(|error| error.to_string())?;
            for (number, (name, points)) in series.iter().enumerate() {
                let style = Palette99::pick(number).stroke_width(2);
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), style))
                    .map_err(|error| error.to_string())?;
                let y = 45 + 22 * number as i32;
                let line = PathElement::new([(0, y), (22, y)], style);
                legend.draw(&line).map_err(|error| error.to_string())?;
                let text = Text::new(name.as_str(), (30, y - 7), ("sans-serif", 15));
                legend.draw(&text).map_err(|error| error.to_string())?;
            }
            area.present().map_err(|error| error.to_string())?;
            Ok(())
        };
        draw().map_err(|error| error.to_string())?;
    }
    Ok(text)
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
        });
        let devices = vec![measured("acme:0", Some(64_000_000_000)), measured("acme:1", None)];
        let record = Record { devices, measurements: measurements.to_vec(), ..Record::new() };
        let svg = svg(&record).expect("there is something to draw");
        assert!(svg.contains("acme:0: copy within") && svg.contains("acme:0: bandwidth of its memory"));
        assert!(!svg.contains("acme:1"));
        let nothing = Record { measurements: Vec::new(), ..record };
        assert!(super::svg(&nothing).is_err());
    }
}
