//! The command line.

use std::path::Path;

use digits::args::{Command, parse};
use digits::training::Strategy;

fn error(args: &[&str]) -> String {
    parse(args.iter().map(Into::into)).unwrap_err().to_string()
}

#[test]
fn without_arguments_the_device_is_the_cpu() {
    let Command::Train { devices, plugins, trace, options, .. } = parse([]).unwrap() else {
        panic!("expected a training")
    };
    assert_eq!((plugins, trace), (None, None));
    assert_eq!((&devices[..], options.resume), (&["cpu".to_owned()][..], false));
}

#[test]
fn every_option_has_its_place() {
    let args = [
        "--device",
        "openreg:1",
        "--epochs=3",
        "--seed",
        "9",
        "--output",
        "out",
        "--trace",
        "t.json",
        "--resume",
    ];
    let Command::Train { devices, trace, options, .. } = parse(args.map(Into::into)).unwrap() else {
        panic!("expected a training")
    };
    assert_eq!((&*devices[0], devices.len(), options.epochs.get(), options.seed), ("openreg:1", 1, 3, 9));
    assert_eq!((&*options.output, options.resume), (Path::new("out"), true));
    assert_eq!(trace.as_deref(), Some(Path::new("t.json")));
}

#[test]
fn several_devices_are_a_list() {
    let args = ["--devices", "openreg:0, ws://127.0.0.1:3000", "--strategy=ddp", "--token-file", "token"];
    let Command::Train { devices, token_file, options, .. } = parse(args.map(Into::into)).unwrap() else {
        panic!("expected a training")
    };
    assert_eq!(devices, ["openreg:0", "ws://127.0.0.1:3000"]);
    assert_eq!((options.strategy, token_file.as_deref()), (Strategy::Ddp, Some(Path::new("token"))));
}

#[test]
fn wrong_arguments_are_errors_that_name_them() {
    assert!(error(&["--epochs", "0"]).contains('0'));
    assert!(error(&["--epochs", "many"]).contains("many"));
    assert!(error(&["--dropout", "1"]).contains("0 to below 1"));
    assert!(error(&["--strategy", "all"]).contains("`main`, `sharded` or `ddp`"));
    assert!(error(&["--devices", "openreg:1,openreg:0, openreg:1"]).contains("`openreg:1` is listed twice"));
    assert!(error(&["--devices", "openreg:0,cpu:0,cpu"]).contains("`cpu` is listed twice"));
    assert!(error(&["--devices", "ws://a:1,ws://a:1"]).contains("`ws://a:1` is listed twice"));
    assert!(error(&["--device"]).contains("--device"));
    assert!(error(&["--gpu"]).contains("--gpu"));
    assert!(error(&["mnist"]).contains("mnist"));
}
