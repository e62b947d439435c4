//! The memory of devices: out of the host's reach, found by its address, and as much of it as there is.

use device_conformance::process;
use device_openreg::{OpenRegMemory, locate};
use device_registry::backend::BackendErrorKind;
use device_registry::{Buffer, Device, device};
use parking_lot::{Mutex, MutexGuard};

use crate::child::CHILD;

mod child;

device_registry::autoload!();

/// The tests look at the memory of the whole device, so that one at a time has it.
fn alone(name: &str) -> (MutexGuard<'static, ()>, Device) {
    static ALONE: Mutex<()> = Mutex::new(());
    (ALONE.lock(), device(name).unwrap())
}

/// Looks at the memory behind a buffer.
fn with<T>(buffer: &Buffer, look: impl FnOnce(&OpenRegMemory) -> T) -> T {
    look(buffer.span().unwrap().memory_as().unwrap())
}

fn address(buffer: &Buffer) -> *mut u8 {
    with(buffer, OpenRegMemory::address)
}

fn free(device: Device) -> u64 {
    device.memory_info().unwrap().free.unwrap()
}

/// Dies by SIGSEGV, or returns.
fn follow(what: impl FnOnce(*mut u8)) {
    let buffer = device("openreg").unwrap().allocate(4096).unwrap();
    buffer.write(0, &[7; 4096]).unwrap();
    with(&buffer, |memory| {
        memory.bytes().unwrap().write(8..9).unwrap().fill(9);
        assert_eq!(*memory.bytes().unwrap().read(7..10).unwrap(), [7, 9, 7], "windows are fine");
    });
    what(address(&buffer).wrapping_add(8));
}

#[cfg(unix)]
fn dies_by_a_fault(test: &str) {
    use std::os::unix::process::ExitStatusExt;
    let output = CHILD.again(test, &[]);
    assert!(matches!(output.status.signal(), Some(SIGSEGV | SIGBUS)), "{output:?}");
}

#[cfg(unix)]
const SIGSEGV: i32 = 11;
/// The signal on macOS.
#[cfg(unix)]
const SIGBUS: i32 = 10;

#[test]
#[cfg(unix)]
fn the_host_dies_of_reading_at_an_address_of_a_device() {
    if !process::is_child() {
        return dies_by_a_fault("the_host_dies_of_reading_at_an_address_of_a_device");
    }
    // SAFETY: the access is invalid on purpose; the kernel ends the process at it.
    follow(|address| println!("it is read: {}", unsafe { address.read_volatile() }));
}

#[test]
#[cfg(unix)]
fn the_host_dies_of_writing_at_an_address_of_a_device() {
    if !process::is_child() {
        return dies_by_a_fault("the_host_dies_of_writing_at_an_address_of_a_device");
    }
    // SAFETY: the access is invalid on purpose; the kernel ends the process at it.
    follow(|address| unsafe { address.write_volatile(1) });
}

#[test]
fn an_address_leads_back_to_its_device_and_allocation() {
    let _alone = alone("openreg:1");
    let buffers = ["openreg:0", "openreg:1"].map(|name| device(name).unwrap().allocate(1000).unwrap());
    for (ordinal, buffer) in buffers.iter().enumerate() {
        let start = address(buffer);
        assert_eq!(with(buffer, OpenRegMemory::ordinal), ordinal);
        assert!(start.addr().is_multiple_of(256));
        for offset in [0, 1, 999] {
            let found = locate(start.wrapping_add(offset)).unwrap();
            assert_eq!((found.ordinal, found.offset, found.len), (ordinal, offset, 1000));
        }
        assert_eq!(locate(start.wrapping_add(1000)), None);
    }
    assert_ne!(address(&buffers[0]), address(&buffers[1]));
}

#[test]
fn addresses_of_the_host_and_of_freed_memory_have_no_location() {
    let (_alone, device) = alone("openreg:1");
    for address in
        [std::ptr::null(), std::ptr::without_provenance(usize::MAX), [0_u8].as_ptr(), vec![1_u8].as_ptr()]
    {
        assert_eq!(locate(address), None);
    }
    let buffer = device.allocate(10).unwrap();
    let (address, clone) = (address(&buffer), buffer.clone());
    drop(buffer);
    assert!(locate(address).is_some(), "a clone is alive");
    drop(clone);
    assert_eq!(locate(address), None);
}

#[test]
fn all_of_the_memory_can_be_allocated_and_no_byte_more() {
    let (_alone, device) = alone("openreg:1");
    let all = free(device);
    assert_eq!(Some(all), device.memory_info().unwrap().total);
    let buffer = device.allocate(all as usize).unwrap();
    assert_eq!(free(device), 0);
    buffer.write(all as usize - 3, b"end").unwrap();
    let error = device.allocate(1).unwrap_err().to_string();
    let expected =
        "allocate: out of memory: 1 bytes asked for, 0 bytes free; this process has 1 GiB allocated of 1 GiB";
    assert!(error.ends_with(expected), "{error}");
    drop(buffer);
    assert_eq!(free(device), all);
    assert!(device.allocate(all as usize + 1).is_err());
}

#[test]
fn two_hundred_thousand_allocations_live_at_once_and_each_has_bytes_of_its_own() {
    const MANY: usize = 200_000;
    let (_alone, device) = alone("openreg:1");
    let before = free(device);
    let mut buffers: Vec<Buffer> = Vec::with_capacity(MANY);
    for number in 0..MANY {
        let buffer = device.allocate(8 + number % 300).unwrap();
        buffer.write(0, &number.to_le_bytes()).unwrap();
        buffers.push(buffer);
    }
    for (number, buffer) in buffers.iter().enumerate() {
        let mut bytes = [0; size_of::<usize>()];
        buffer.read(0, &mut bytes).unwrap();
        assert_eq!(usize::from_le_bytes(bytes), number);
    }
    // Every other one first, so that the rest has to be joined from both sides.
    let mut kept = true;
    buffers.retain(|_| {
        kept = !kept;
        kept
    });
    drop(buffers);
    assert_eq!(free(device), before);
    assert!(device.allocate(before as usize).is_ok(), "what was freed is in one piece again");
}

#[test]
fn memory_is_mapped_and_yet_not_the_hosts() {
    let device = device("openreg:0").unwrap();
    let buffer = device.allocate(8).unwrap();
    buffer.write(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let part = buffer.slice(2..6).unwrap().span().unwrap();
    part.on_host().unwrap_err();
    let (memory, range) = part.mapped().unwrap().unwrap();
    memory.write(range).unwrap().copy_from_slice(&[9; 4]);
    let mut bytes = [0; 8];
    buffer.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 9, 9, 9, 9, 7, 8]);
}

#[test]
fn windows_are_counted_and_nest() {
    let buffer = device("openreg:0").unwrap().allocate(8).unwrap();
    with(&buffer, |memory| {
        let bytes = memory.bytes().unwrap();
        assert_eq!(bytes.window_count(), 0);
        let window = bytes.read(0..4).unwrap();
        assert_eq!(bytes.window_count(), 1);
        let nested = (bytes.read(0..8).unwrap(), bytes.read(2..3).unwrap());
        assert_eq!(bytes.window_count(), 3);
        let error = bytes.write(4..8).unwrap_err();
        assert!(error.to_string().contains("a window on bytes 0..8 of the same memory is open"), "{error}");
        drop(nested);
        assert_eq!(bytes.window_count(), 1);
        bytes.write(4..8).unwrap().fill(1);
        drop(window);
        assert_eq!(bytes.window_count(), 0);
    });
}

/// The memory of this process that is in use, in bytes.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn untouched_memory_takes_no_room_and_what_is_freed_goes_back() {
    const LARGE: usize = 256 << 20;
    const SOME: usize = 48 << 20;
    if !process::is_child() {
        // Other tests would be measured as well.
        return CHILD.passes("untouched_memory_takes_no_room_and_what_is_freed_goes_back", &[]);
    }
    let device = device("openreg").unwrap();
    let before = resident();
    let buffer = device.allocate(LARGE).unwrap();
    assert!(resident() < before + SOME);
    for start in (0..LARGE).step_by(1 << 20) {
        buffer.write(start, &[1; 1 << 20]).unwrap();
    }
    assert!(resident() > before + LARGE / 2);
    drop(buffer);
    assert!(resident() < before + SOME);
    // A neighbour that is in use keeps its bytes.
    let (first, neighbour, last) =
        (device.allocate(LARGE).unwrap(), device.allocate(100).unwrap(), device.allocate(LARGE).unwrap());
    neighbour.write(0, &[5; 100]).unwrap();
    drop((first, last));
    let mut bytes = [0; 100];
    neighbour.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 100]);
}

#[test]
fn copies_lead_from_any_place_to_any_other() {
    let _alone = alone("openreg:1");
    let devices = ["openreg:0", "openreg:1", "cpu"].map(|name| device(name).unwrap());
    for from in devices {
        for to in devices {
            let (source, destination) = (from.allocate(10 << 20).unwrap(), to.allocate(10 << 20).unwrap());
            source.write(5 << 20, b"abcdef").unwrap();
            let part = source.slice((5 << 20) + 1..(5 << 20) + 5).unwrap();
            destination.slice(1..5).unwrap().copy_from(&part).unwrap();
            let mut bytes = [0; 4];
            destination.read(1, &mut bytes).unwrap();
            assert_eq!(&bytes, b"bcde", "{from} to {to}");
        }
    }
}

#[test]
fn the_native_handle_is_the_address_and_of_no_other_kind() {
    let (_alone, device) = alone("openreg");
    let buffer = device.allocate(100).unwrap();
    let part = buffer.slice(30..40).unwrap();
    let span = part.span().unwrap();
    let handle = span.native_handle("openreg.address").unwrap();
    assert_eq!(handle, address(&buffer).addr() as u64, "it is the handle of the whole memory");
    let found = locate(std::ptr::with_exposed_provenance(handle as usize + span.offset())).unwrap();
    assert_eq!((found.ordinal, found.offset, found.len), (0, 30, 100));
    for kind in ["openreg.addres", "openreg.address ", "cuda.CUdeviceptr", ""] {
        let error = span.native_handle(kind).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(&format!("of the kind `{kind}`")), "{error}");
    }
    // Its streams are the core's, and the device has no handle.
    assert!(device.native_handle("openreg.address").is_err());
}

#[test]
fn allocations_of_two_devices_share_no_byte_and_no_address() {
    let _alone = alone("openreg:1");
    let devices = ["openreg:0", "openreg:1"].map(|name| device(name).unwrap());
    // In turns, as a program that switches between devices does.
    let buffers: Vec<Buffer> = (0..64).map(|round| devices[round % 2].allocate(1000).unwrap()).collect();
    let numbered = || (0..).zip(&buffers);
    numbered().for_each(|(number, buffer)| buffer.write(0, &[number; 1000]).unwrap());
    let mut addresses = std::collections::BTreeSet::new();
    for (number, buffer) in numbered() {
        let mut bytes = [0; 1000];
        buffer.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [number; 1000]);
        addresses.insert(address(buffer).addr() / 1000);
    }
    assert!(addresses.len() >= 64, "they are a thousand bytes apart");
}

#[test]
fn many_threads_allocate_copy_and_free_on_both_devices() {
    let _alone = alone("openreg:1");
    let devices = ["openreg:0", "openreg:1"].map(|name| device(name).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            scope.spawn(move || {
                for round in 0..200 {
                    let (here, there) = (devices[thread % 2], devices[round % 2]);
                    let len = 1 + (thread * 131 + round * 977) % 70_000;
                    let (first, second) = (here.allocate(len).unwrap(), there.allocate(len).unwrap());
                    let bytes = vec![(thread * 31 + round) as u8; len];
                    first.write(0, &bytes).unwrap();
                    second.copy_from(&first).unwrap();
                    let mut back = vec![0; len];
                    second.read(0, &mut back).unwrap();
                    assert!(back == bytes);
                }
            });
        }
    });
}

#[test]
fn a_buffer_that_threads_share_holds_what_one_of_them_wrote() {
    const LEN: usize = 1 << 16;
    let (_alone, device) = alone("openreg:1");
    let buffer = device.allocate(LEN).unwrap();
    buffer.write(0, &[0; LEN]).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let buffer = buffer.clone();
            scope.spawn(move || {
                let mut bytes = vec![0; LEN];
                for _ in 0..50 {
                    buffer.write(0, &[number; LEN]).unwrap();
                    buffer.read(0, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|&byte| byte == bytes[0] && byte < 4), "two of them at once");
                }
            });
        }
    });
}
