//! The loss curve as an SVG picture.
//!
//! The text in the picture is SVG text: the viewer brings the fonts, and this program needs none.

use std::path::Path;

use plotters::prelude::*;

const SIZE: (u32, u32) = (800, 480);
/// How many steps the smooth curve averages.
const WINDOW: usize = 20;
const STEP_COLOR: RGBColor = RGBColor(158, 202, 225);
const MEAN_COLOR: RGBColor = RGBColor(8, 81, 156);

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the loss curve: {0}")]
pub struct CurveError(String);

/// Writes the picture to the file `path`: the loss of each training step, and its running average.
pub fn write(path: &Path, losses: &[f64]) -> Result<(), CurveError> {
    let svg = svg(losses)?;
    std::fs::write(path, svg).map_err(|error| CurveError(format!("{}: {error}", path.display())))
}

/// The picture as text. A loss that is not finite has no point.
pub fn svg(losses: &[f64]) -> Result<String, CurveError> {
    let mut svg = String::new();
    draw(SVGBackend::with_string(&mut svg, SIZE), losses).map_err(|error| CurveError(error.to_string()))?;
    Ok(svg)
}

fn draw<B>(backend: B, losses: &[f64]) -> Result<(), DrawingAreaErrorKind<B::ErrorType>>
where
    B: DrawingBackend,
{
    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;

    let top = points(losses).map(|(_, loss)| loss).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.05 } else { 1.0 };
    let mut chart = ChartBuilder::on(&area)
        .caption("Training loss", ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0..losses.len().max(1), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc("cross-entropy")
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .light_line_style(WHITE)
        .draw()?;
    chart.draw_series(LineSeries::new(points(losses), &STEP_COLOR))?;
    let averages = averages(losses);
    chart.draw_series(LineSeries::new(points(&averages), MEAN_COLOR.stroke_width(2)))?;
    area.present()
}

/// Steps count from 1.
fn points(losses: &[f64]) -> impl Iterator<Item = (usize, f64)> {
    losses.iter().enumerate().map(|(index, loss)| (index + 1, *loss)).filter(|(_, loss)| loss.is_finite())
}

/// For each step, the average of the last [`WINDOW`] steps.
fn averages(losses: &[f64]) -> Vec<f64> {
    let last = |end| &losses[usize::saturating_sub(end, WINDOW)..end];
    (1..=losses.len()).map(|end| last(end).iter().sum::<f64>() / last(end).len() as f64).collect()
}
