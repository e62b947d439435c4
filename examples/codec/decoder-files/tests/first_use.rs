//! A decoder in a file, for a backend without a linked decoder. One test, in its own process: it looks
//! at what is mapped.

#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(missing_docs)]

mod host_decoder;

use codec::{decode, decoders};
use device_registry::registry::State;
use device_registry::{Device, device};

// Leaves codec-openreg out.
device_registry::autoload!(only device_openreg);

const SAMPLE: &[u8] = include_bytes!("../../sample.png");

fn is_mapped() -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains("libhost_decoder.so")
}

#[test]
fn a_file_is_opened_by_the_first_picture_and_gives_the_same_pixels_and_errors_as_a_linked_decoder() {
    let file = host_decoder::file();
    // SAFETY: it is the decoder of this repository.
    unsafe { decoder_files::install("openreg", &file) }.unwrap();
    let entry = decoders().get("openreg").unwrap();
    assert!(matches!(entry.state(), State::Installed) && entry.is_usable());
    let table = decoders().report().to_string();
    assert!(table.contains(&format!("installed; file: {}", file.display())), "{table}");
    let on_cpu = decode(SAMPLE, Device::cpu()).unwrap().to_vec::<u8>().unwrap();
    assert!(!is_mapped());

    for name in ["openreg:0", "openreg:1"] {
        let tensor = decode(SAMPLE, device(name).unwrap()).unwrap();
        assert_eq!((tensor.device().to_string().as_str(), tensor.shape()), (name, &[3, 4, 6][..]));
        assert_eq!(tensor.to_vec::<u8>().unwrap(), on_cpu);
    }
    assert!(is_mapped() && matches!(entry.state(), State::Loaded { .. }));

    let cut_off = &SAMPLE[..SAMPLE.len() - 1];
    let message = |device: Device| format!("{:?}", decode(cut_off, device).unwrap_err());
    assert_eq!(message(device("openreg").unwrap()), message(Device::cpu()));
}
