//! The picture of the loss curve.

use digits::curve::{svg, write};

fn polylines(svg: &str) -> Vec<&str> {
    svg.split("<polyline").skip(1).collect()
}

#[test]
fn the_picture_has_a_line_for_the_steps_one_for_their_average_and_its_titles() {
    let losses = (1..=60).map(|step| 2.3 / f64::from(step)).collect::<Vec<_>>();
    let svg = svg(&losses).unwrap();
    assert!(svg.starts_with("<svg"));

    let lines = polylines(&svg);
    let with_points = lines.iter().filter(|line| {
        let points = line.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        points.split_whitespace().count() == losses.len()
    });
    assert_eq!(with_points.count(), 2);
    for text in ["Training loss", "step", "cross-entropy"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn no_losses_and_losses_that_are_not_finite_still_give_a_picture() {
    for losses in [&[][..], &[0.0], &[f64::NAN, f64::INFINITY], &[2.3, f64::NAN, 1.0]] {
        let svg = svg(losses).unwrap();
        assert!(svg.ends_with("</svg>\n") || svg.ends_with("</svg>"), "{losses:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{losses:?}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_with_its_path() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("no such folder").join("loss.svg");
    let error = write(&path, &[1.0]).unwrap_err().to_string();
    assert!(error.contains("no such folder"), "{error}");
}
