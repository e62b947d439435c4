//! A linked decoder has no effect until the program uses its device. One test, in a process of its
//! own: it looks at what has been loaded.

#![allow(missing_docs)]

use codec::{decode, decoders};
use device_registry::registry::State;
use device_registry::{Device, backends, device, set_default_device};

device_registry::autoload!();

const SAMPLE: &[u8] = include_bytes!("../../sample.png");

#[test]
fn a_linked_decoder_is_used_once_its_device_is_the_default() {
    let decoder = decoders().get("openreg").expect("it is linked");
    let backend = backends().get("openreg").expect("it is linked");

    let tensor = decode(SAMPLE, None).unwrap();
    assert_eq!(tensor.device(), Device::cpu());
    assert!(matches!((decoder.state(), backend.state()), (State::Linked, State::Linked)));

    set_default_device(device("openreg:1").unwrap());
    let other = decode(SAMPLE, None).unwrap();
    assert_eq!(other.device(), device("openreg:1").unwrap());
    assert_eq!(other.to_vec::<u8>().unwrap(), tensor.to_vec::<u8>().unwrap());
    assert!(matches!((decoder.state(), backend.state()), (State::Loaded { .. }, State::Loaded { .. })));

    // A device that is named counts for more than the default.
    assert_eq!(decode(SAMPLE, Device::cpu()).unwrap().device(), Device::cpu());
}
