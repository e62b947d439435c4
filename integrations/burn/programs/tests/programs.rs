//! The programs compute on devices what they compute on Flex.

use programs::args::{Command, help, parse};
use programs::cases::{CASES, Case, Size, Unit};
use programs::rounds::{Difference, FLEX, Place, agree, measure};

device_registry::autoload!();

fn agrees_everywhere(case: &'static Case) {
    let places = [FLEX, "cpu", "openreg:1", "mycpu"].map(|name| Place::open(name).unwrap());
    let measured = measure(case, Size::Tiny, &places, 1).unwrap();
    let native: Vec<_> =
        measured.iter().map(|it| it.counts.as_ref().map(|it| it.native() + it.on_host() > 0)).collect();
    assert_eq!(native, [None, Some(true), Some(true), Some(false)], "{}: where there are kernels", case.name);
}

// One test: devices count the operations of all threads.
#[test]
fn every_case_agrees_with_flex_on_every_device() {
    for case in &CASES {
        agrees_everywhere(case);
    }
}

#[test]
fn an_epoch_learns_and_begins_anew_each_time() {
    let flex = Place::open(FLEX).unwrap();
    for case in CASES.iter().filter(|case| case.unit == Unit::Epoch) {
        let results = flex.run(case, Size::Tiny).unwrap().results;
        assert!(results.windows(2).any(|pair| pair[0] != pair[1]), "{}: {results:?}", case.name);
        assert_eq!(flex.run(case, Size::Tiny).unwrap().results, results, "{}", case.name);
    }
}

#[test]
fn a_small_difference_is_none_and_a_larger_one_is_found() {
    assert_eq!(agree(&[1.0, -200.0], &[1.000_05, -200.01]), Ok(()));
    let value = |number, result: f32, expected: f32| Err(Difference::Value { number, result, expected });
    assert_eq!(agree(&[1.0, 2.0], &[1.0, 2.001]), value(1, 2.0, 2.001));
    assert!(agree(&[f32::NAN], &[1.0]).is_err());
    assert!(agree(&[1.0], &[f32::NAN]).is_err());
    assert_eq!(agree(&[1.0], &[]), Err(Difference::Count { results: 1, expected: 0 }));
}

#[test]
fn the_command_line_chooses_cases_and_devices() {
    let parse = |text: &str| parse(text.split_whitespace().map(Into::into));
    let Ok(Command::Measure(options)) =
        parse("--programs wgan,add-1 --devices openreg:0 --rounds 3 --loaded")
    else {
        panic!("a command line that the help describes")
    };
    let names: Vec<_> = options.cases.iter().map(|case| case.name).collect();
    assert_eq!((names, options.devices), (vec!["wgan", "add-1"], vec!["openreg:0".to_owned()]));
    assert_eq!((options.rounds.get(), options.loaded, options.size), (3, true, Size::Full));

    let error = parse("--programs gan").unwrap_err().to_string();
    assert!(error.starts_with("there is no case `gan`: it is one of regression, lstm,"), "{error}");
    assert!(parse("--rounds 0").is_err());
    assert!(CASES.iter().all(|case| help().contains(case.name)));
}
