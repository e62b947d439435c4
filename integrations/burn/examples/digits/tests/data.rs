//! The digits in this repository, and files that are not digits.

use digits::data::{DataError, Digits, HELD_OUT, LineProblem, MAX_PIXEL};

fn line(values: &[u8]) -> String {
    values.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

/// A valid line, a line with `values`, a valid line.
fn second_line(values: &str) -> LineProblem {
    let valid = line(&[0; 65]);
    match Digits::parse(&format!("{valid}\n{values}\n{valid}\n")) {
        Err(DataError::Line { line: 2, problem }) => problem,
        other => panic!("expected a problem of line 2, found {other:?}"),
    }
}

#[test]
fn the_file_has_1797_digits_of_64_pixels() {
    let digits = Digits::load().unwrap();
    assert_eq!(digits.as_slice().len(), 1797);
    let pixels = digits.as_slice().iter().flat_map(|digit| digit.pixels);
    assert_eq!(pixels.clone().count(), 1797 * 64);
    assert_eq!((pixels.clone().min(), pixels.max()), (Some(0), Some(MAX_PIXEL)));
}

#[test]
fn each_label_has_its_published_count() {
    let mut counts = [0; 10];
    for digit in Digits::load().unwrap().as_slice() {
        counts[usize::from(digit.label)] += 1;
    }
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
}

#[test]
fn the_split_keeps_every_digit_once_and_holds_out_every_fifth() {
    let all = Digits::load().unwrap();
    let (training, held_out) = all.clone().split();
    assert_eq!((training.as_slice().len(), held_out.as_slice().len()), (1438, 359));
    let fifths: Vec<_> = all.as_slice().iter().skip(HELD_OUT - 1).step_by(HELD_OUT).collect();
    assert!(held_out.as_slice().iter().eq(fifths));
    let others = all.as_slice().iter().enumerate().filter(|(place, _)| place % HELD_OUT != HELD_OUT - 1);
    assert!(training.as_slice().iter().eq(others.map(|(_, digit)| digit)));
}

#[test]
fn a_line_becomes_its_pixels_and_its_label() {
    let mut values = [16; 65];
    values[0] = 3;
    values[64] = 9;
    let digits = Digits::parse(&line(&values)).unwrap();
    let [digit] = digits.as_slice() else { panic!("expected one digit, found {digits:?}") };
    assert_eq!((digit.pixels[0], digit.pixels[63], digit.label), (3, 16, 9));
}

#[test]
fn a_short_a_long_and_an_empty_line_are_errors_with_the_line_number() {
    assert_eq!(second_line(&line(&[0; 64])), LineProblem::Count { found: 64 });
    assert_eq!(second_line(&line(&[0; 66])), LineProblem::Count { found: 66 });
    assert_eq!(second_line(""), LineProblem::Count { found: 1 });
}

#[test]
fn a_value_that_is_no_number_or_out_of_range_is_an_error_with_its_column() {
    let with = |column: usize, text: &str| {
        let mut values = vec!["0"; 65];
        values[column - 1] = text;
        second_line(&values.join(","))
    };
    for found in ["17", "256", "-1", "+1", " 1", "1.0", "x", ""] {
        assert_eq!(with(64, found), LineProblem::Value { column: 64, max: 16, found: found.to_owned() });
    }
    assert_eq!(with(65, "10"), LineProblem::Value { column: 65, max: 9, found: "10".to_owned() });
}

#[test]
fn the_message_names_the_line_the_column_and_the_range() {
    let mut values = vec!["0"; 65];
    values[64] = "ten";
    let error = Digits::parse(&values.join(",")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1 of the digits: expected a number between 0 and 9 in column 65, found `ten`"
    );
}
