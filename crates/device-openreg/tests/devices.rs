//! Devices: how many there are, which one is current, and the error for one that is not there.

use std::panic::catch_unwind;
use std::thread;

use device_registry::{
    Device, DeviceError, DeviceGuard, default_device, device, device_count, devices, set_current_device,
    set_default_device,
};

device_registry::autoload!();

fn openreg(index: u16) -> Device {
    device(&format!("openreg:{index}")).unwrap()
}

/// The device that `openreg` means on this thread.
fn current() -> Device {
    device("openreg").unwrap().resolve()
}

#[test]
fn there_are_two_devices_at_every_count() {
    for _ in 0..3 {
        assert_eq!(device_count("openreg").unwrap(), 2);
        let (_, found) = devices().find(|(backend, _)| backend.name() == "openreg").unwrap();
        assert_eq!(found.unwrap(), [openreg(0), openreg(1)]);
    }
}

#[test]
fn the_first_device_is_current_until_another_is_set_and_then_stays_so() {
    thread::spawn(|| {
        assert_eq!(current(), openreg(0));
        set_current_device(openreg(1)).unwrap();
        for _ in 0..3 {
            let buffer = device("openreg").unwrap().allocate(3).unwrap();
            buffer.write(0, b"abc").unwrap();
            assert_eq!(buffer.device(), openreg(1));
        }
        // Work on the other does not change it.
        openreg(0).allocate(1).unwrap().write(0, b"x").unwrap();
        assert_eq!(current(), openreg(1));
        set_current_device(openreg(0)).unwrap();
        assert_eq!(current(), openreg(0));
    })
    .join()
    .unwrap();
}

#[test]
fn guards_nest_and_restore_after_a_panic_too() {
    thread::spawn(|| {
        let outer = DeviceGuard::new(openreg(1)).unwrap();
        {
            let _inner = DeviceGuard::new(openreg(0)).unwrap();
            assert_eq!(current(), openreg(0));
        }
        assert_eq!(current(), openreg(1));
        let panics = || {
            let _inner = DeviceGuard::new(openreg(0)).unwrap();
            panic!("on purpose");
        };
        assert!(catch_unwind(panics).is_err());
        assert_eq!(current(), openreg(1));
        drop(outer);
        assert_eq!(current(), openreg(0));
    })
    .join()
    .unwrap();
}

#[test]
fn a_device_that_is_not_there_is_an_error_and_changes_nothing() {
    let before = current();
    for index in [2, 3, 65535] {
        for error in [
            set_current_device(openreg(index)).unwrap_err(),
            DeviceGuard::new(openreg(index)).err().unwrap(),
            openreg(index).allocate(1).unwrap_err(),
            openreg(index).properties().unwrap_err(),
        ] {
            assert!(matches!(error, DeviceError::NoSuchDevice { .. }), "{error}");
            let message = error.to_string();
            assert!(message.contains("has 2 devices (`openreg:0` to `openreg:1`)"), "{message}");
        }
    }
    assert!(device("openreg:-1").is_err());
    assert_eq!(current(), before);
    assert!(current().allocate(1).is_ok());
}

#[test]
fn each_thread_has_a_current_device_of_its_own() {
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                for round in 0..50 {
                    let mine = openreg((number + round) % 2);
                    set_current_device(mine).unwrap();
                    thread::yield_now();
                    let buffer = device("openreg").unwrap().allocate(16).unwrap();
                    buffer.write(0, &[round as u8; 16]).unwrap();
                    let mut bytes = [0; 16];
                    buffer.read(0, &mut bytes).unwrap();
                    assert_eq!((buffer.device(), current(), bytes), (mine, mine, [round as u8; 16]));
                }
            });
        }
    });
}

#[test]
fn a_device_can_be_the_default_of_a_thread() {
    let set = || {
        set_default_device(openreg(1));
        default_device()
    };
    assert_eq!(thread::spawn(set).join().unwrap(), openreg(1));
    assert_eq!(default_device(), Device::cpu());
}

#[test]
fn a_device_says_what_it_is_and_what_drives_it() {
    for index in [0, 1] {
        let properties = openreg(index).properties().unwrap();
        assert_eq!(properties.name, "OpenReg");
        assert!(properties.driver.unwrap().starts_with("device-openreg "));
    }
}

#[test]
fn a_device_is_chosen_by_the_uuid_and_the_pci_address_that_it_shows() {
    let texts = |index| {
        let properties = openreg(index).properties().unwrap();
        (properties.uuid.unwrap().to_string(), properties.pci.unwrap().to_string())
    };
    assert_eq!(texts(1), ("00016f70-656e-8072-8065-670000000000".into(), "ffffffff:00:00.1".into()));
    for index in [0, 1] {
        let (uuid, pci) = texts(index);
        for selector in [format!("uuid={uuid}"), format!("uuid=000{index}"), format!("pci={pci}")] {
            assert_eq!(device(&format!("openreg@{selector}")).unwrap(), openreg(index), "{selector}");
        }
    }
    let error = device("openreg@uuid=000").unwrap_err().to_string();
    assert!(error.contains("openreg:0") && error.contains("openreg:1"), "{error}");
}

#[test]
fn an_ordinal_beyond_the_count_is_an_error_of_the_backend() {
    let backend = openreg(0).backend().load().unwrap();
    let count = backend.device_count().unwrap();
    for ordinal in [count, usize::MAX] {
        let expected = format!("no device has the ordinal {ordinal}: there are {count} devices");
        assert_eq!(backend.open(ordinal).unwrap_err().message(), expected);
        assert_eq!(backend.properties(ordinal).unwrap_err().message(), expected);
    }
}
