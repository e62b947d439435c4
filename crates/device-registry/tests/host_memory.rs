//! Memory of the host that other code owns or reads, without a copy: as a buffer of `cpu`, and as the source
//! of queued writes. Whose it is, and when it is released.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use device_registry::backend::HostMemory;
use device_registry::{Buffer, Device, HostBuffer, device};

/// Bytes of another library, which count how often they were released.
struct Foreign {
    bytes: Vec<u8>,
    released: Arc<AtomicUsize>,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.released.fetch_add(1, Ordering::SeqCst);
        self.bytes.fill(0xDB);
    }
}

/// Memory of the bytes from `start` on, and how often it was released.
fn foreign(mut bytes: Vec<u8>, start: usize) -> (HostMemory, Arc<AtomicUsize>) {
    let released = Arc::new(AtomicUsize::new(0));
    let (len, pointer) = (bytes.len() - start, NonNull::from(&mut bytes[start..]).cast());
    let owner = Foreign { bytes, released: Arc::clone(&released) };
    // SAFETY: the vector has `len` initialised bytes there, which stay in place, and the owner uses them only
    // in its drop.
    (unsafe { HostMemory::from_raw_parts(pointer, len, owner) }, released)
}

fn content(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

/// The address of the first byte of a buffer whose memory is the host's.
fn address(buffer: &Buffer) -> usize {
    let span = buffer.span().unwrap();
    let (memory, range) = span.on_host().unwrap();
    memory.as_ptr().addr().get() + range.start
}

fn count(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}

#[test]
fn ranges_outside_of_imported_memory_are_errors() {
    let (memory, _) = foreign(vec![1, 2, 3, 4], 1);
    let buffer = Buffer::from_host_memory(memory).unwrap();
    assert_eq!((buffer.len(), buffer.device()), (3, Device::cpu()));
    assert!(buffer.read(0, &mut [0; 4]).is_err());
    assert!(buffer.write(3, &[0]).is_err());
    assert!(buffer.slice(1..4).is_err());
    assert_eq!(content(&buffer), [2, 3, 4]);
}

#[test]
fn memory_without_bytes_is_released_at_once() {
    let (memory, released) = foreign(vec![1], 1);
    let buffer = Buffer::from_host_memory(memory).unwrap();
    assert_eq!((buffer.len(), count(&released)), (0, 1));
    assert!(buffer.span().is_none());
    buffer.write(0, &[]).unwrap();
    assert!(buffer.write(0, &[1]).is_err());
}

#[test]
fn a_panic_of_the_owner_ends_in_the_drop() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as a test wants");
        }
    }
    static BYTE: AtomicUsize = AtomicUsize::new(0);
    for len in [0, 1] {
        let start = NonNull::new(BYTE.as_ptr().cast()).unwrap();
        // SAFETY: a static of several initialised bytes, which may be changed, and which nothing else uses.
        let memory = unsafe { HostMemory::from_raw_parts(start, len, Panics) };
        drop(Buffer::from_host_memory(memory).unwrap());
    }
}

#[test]
fn nothing_is_copied_on_the_way_in_and_out() {
    let bytes = vec![1, 2, 3, 4];
    let first = bytes.as_ptr().addr();
    let buffer = Buffer::from_host_memory(HostBuffer::from(bytes).into()).unwrap();
    assert_eq!(address(&buffer), first);
    assert_eq!(address(&buffer.slice(2..).unwrap()), first + 2);
    let zeroed = HostBuffer::zeroed(3).unwrap();
    let first = zeroed.as_ptr().addr();
    assert_eq!(address(&Buffer::from_host_memory(zeroed.into()).unwrap()), first);
}

#[test]
fn all_operations_work_at_any_address() {
    let cpu = device("cpu").unwrap();
    for start in 0..9 {
        let (memory, _) = foreign(vec![7; 33], start);
        let buffer = Buffer::from_host_memory(memory).unwrap();
        buffer.fill(0..16, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        buffer.slice(20..24).unwrap().copy_from(&buffer.slice(..4).unwrap()).unwrap();
        let stream = cpu.create_stream().unwrap();
        stream.write(&buffer, 16, b"abcd").unwrap();
        let read = stream.read(&buffer, 14..24).unwrap();
        assert_eq!(*read.wait().unwrap(), *b"\x07\x08abcd\x01\x02\x03\x04");
        let other = cpu.allocate(buffer.len()).unwrap();
        other.copy_from(&buffer).unwrap();
        assert_eq!(content(&other), content(&buffer));
    }
}

#[test]
fn the_owner_is_released_once_with_the_last_of_its_users() {
    let (memory, released) = foreign(vec![1; 8], 0);
    let buffer = Buffer::from_host_memory(memory).unwrap();
    let (slice, span) = (buffer.slice(2..4).unwrap(), buffer.span());
    drop(buffer);
    assert_eq!(content(&slice), [1, 1]);
    let stream = Device::cpu().create_stream().unwrap();
    let (hold, held) = channel::<()>();
    stream.host_call(move || held.recv().unwrap_or_default()).unwrap();
    stream.write(&slice, 0, [2, 3]).unwrap();
    let read = stream.read(&slice, 0..2).unwrap();
    drop((slice, span));
    assert_eq!(count(&released), 0, "queued work uses it");
    drop(hold);
    assert_eq!(*read.wait().unwrap(), [2, 3]);
    stream.synchronize().unwrap();
    assert_eq!(count(&released), 1);
}

#[test]
fn imported_memory_is_not_given_out_again() {
    // A length that the cache of `cpu` keeps. Miri takes a thousand times as long.
    const LEN: usize = if cfg!(miri) { 32 << 10 } else { 1 << 20 };
    let cpu = Device::cpu();
    for _ in 0..4 {
        let (memory, released) = foreign(vec![1; LEN], 0);
        let buffer = Buffer::from_host_memory(memory).unwrap();
        let imported = address(&buffer);
        drop(buffer);
        assert_eq!(count(&released), 1, "it is not kept");
        // The allocator may give out the address, but then with zeros.
        let next = cpu.allocate(LEN).unwrap();
        assert!(address(&next) != imported || content(&next).iter().all(|&byte| byte == 0));
    }
}

#[test]
fn other_code_sees_what_streams_have_written() {
    let (memory, _) = foreign(vec![0; 4], 0);
    let start = memory.as_ptr();
    let buffer = Buffer::from_host_memory(memory).unwrap();
    let stream = Device::cpu().create_stream().unwrap();
    stream.write(&buffer, 0, b"abcd").unwrap();
    stream.synchronize().unwrap();
    // SAFETY: the buffer lives, and no work uses it.
    unsafe {
        assert_eq!(start.cast::<[u8; 4]>().read(), *b"abcd");
        start.cast::<[u8; 4]>().write(*b"efgh");
    }
    assert_eq!(content(&buffer), *b"efgh");
}

/// Bytes that other code reads, and how often they were released.
fn shared(bytes: Vec<u8>) -> (HostBuffer, Arc<AtomicUsize>) {
    let released = Arc::new(AtomicUsize::new(0));
    let (start, len) = (NonNull::from(&bytes[..]).cast(), bytes.len());
    let owner = Foreign { bytes, released: Arc::clone(&released) };
    // SAFETY: the vector has `len` initialised bytes there, which the owner changes only in its drop.
    (unsafe { HostBuffer::from_shared_parts(start, len, owner) }, released)
}

#[test]
fn a_queued_write_has_shared_bytes_until_it_is_done() {
    let cpu = Device::cpu();
    let (buffer, stream) = (cpu.allocate(4).unwrap(), cpu.create_stream().unwrap());
    let (hold, held) = channel::<()>();
    stream.host_call(move || held.recv().unwrap_or_default()).unwrap();
    let (source, released) = shared(b"abcd".to_vec());
    stream.write(&buffer, 0, source).unwrap();
    assert_eq!(count(&released), 0, "no copy takes its place");
    drop(hold);
    stream.synchronize().unwrap();
    assert_eq!((content(&buffer), count(&released)), (b"abcd".to_vec(), 1));
}

#[test]
fn shared_bytes_are_copied_before_they_change() {
    let bytes = vec![1, 2, 3];
    let first = bytes.as_ptr();
    let (mut buffer, released) = shared(bytes);
    assert_eq!((buffer.as_ptr(), buffer.is_pinned()), (first, false));
    buffer[0] = 7;
    assert_eq!((&*buffer, count(&released)), (&[7, 2, 3][..], 1));
    let (buffer, released) = shared(vec![1, 2, 3]);
    let imported = Buffer::from_host_memory(buffer.into()).unwrap();
    assert_eq!((content(&imported), count(&released)), (vec![1, 2, 3], 1));
    let (buffer, released) = shared(vec![1, 2, 3]);
    assert_eq!((buffer.into_vec(), count(&released)), (vec![1, 2, 3], 1));
}

// The layer is chosen for a process.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no other process")]
fn the_same_under_the_validating_layer() {
    if std::env::var_os("DEVICE_VALIDATE").is_some() {
        return assert!(device_registry::take_validation_reports().is_empty());
    }
    let tests =
        std::process::Command::new(std::env::current_exe().unwrap()).env("DEVICE_VALIDATE", "1").output();
    let tests = tests.unwrap();
    let output = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success() && !output.contains(" 0 passed"), "{output}");
}
