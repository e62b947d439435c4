//! Recording an event and waiting for it, beside as many empty operations and waiting for their streams.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use device_registry::{Stream, device};
use device_registry_benches::{Cores, beside};

device_registry::autoload!();

fn events(criterion: &mut Criterion) {
    for name in ["cpu", "openreg"] {
        let device = device(name).expect("it is linked");
        let mut group = criterion.benchmark_group(format!("record and wait/{name}"));
        for (cores, place) in Cores::BOTH {
            let [stream, other] = [(); 2].map(|()| {
                let stream = device.create_stream().expect("there is always another one");
                cores.keep(|keep| stream.host_call(keep).expect("it is accepted"));
                stream
            });
            let record = || stream.record().expect("it is accepted");
            beside(
                &mut group,
                format!("on the host, {place}"),
                || record().synchronize().expect("nothing fails"),
                || {
                    call(&stream);
                    synchronize(&stream);
                },
            );
            for (name, waiting) in [("on the same stream", &stream), ("on another stream", &other)] {
                for count in [1, 100] {
                    let events = || {
                        (0..count).for_each(|_| waiting.wait_event(&record()).expect("it is accepted"));
                        synchronize(waiting);
                    };
                    let calls = || {
                        (0..count).for_each(|_| [&stream, waiting].into_iter().for_each(call));
                        [&stream, waiting].into_iter().for_each(synchronize);
                    };
                    beside(&mut group, format!("{count} {name}, {place}"), events, calls);
                }
            }
        }
    }
}

/// An empty operation.
fn call(stream: &Stream) {
    stream.host_call(black_box(|| {})).expect("it is accepted");
}

fn synchronize(stream: &Stream) {
    stream.synchronize().expect("nothing fails");
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = events
}
criterion_main!(benches);
