//! Host calls and kernels in a thread's own streams, some of which fail on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::backend::{BackendError, HostMemory};

use crate::failure::Identity;
use crate::journal::{Cause, Failing, Interval};
use crate::plan::{Kind, Step, Weather};
use crate::scene::found;
use crate::worker::{Done, Worker};

impl Worker<'_> {
    pub(crate) fn call(&mut self, step: Step) -> Done {
        let (at, place, identity) = (self.lane(step)?, self.place(), self.identity());
        let fails = step.kind == Kind::FailingCall;
        let private = self.scene.weather.is_private();
        let lane = &mut self.lanes[at];
        let skipped = private && !lane.failed.is_empty();
        let (order, number, behind) = (Arc::clone(&lane.order), lane.calls + 1, lane.behind.clone());
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let call = move || {
            runs.store(true, Ordering::SeqCst);
            if skipped {
                found(format_args!("{place}: a call that is to be skipped was run"));
            }
            order.pass(number).unwrap_or_else(|wrong| found(format_args!("{place}: {wrong}")));
            for (other, number) in behind {
                if !other.has_passed(number) {
                    found(format_args!(
                        "{place}: a call ran before call {number} of another stream, which it waits for"
                    ));
                }
            }
            if fails {
                panic!("{identity}");
            }
        };
        let (enqueued, outcome) = Interval::of(|| lane.stream.host_call(call));
        outcome?;
        lane.calls = number;
        if lane.failed.is_empty() && !fails && self.scene.weather != Weather::Storm {
            lane.sure_call = number;
        }
        if fails {
            self.fails(at, enqueued, ran);
        }
        Ok(())
    }

    pub(crate) fn fails(&mut self, at: usize, enqueued: Interval, ran: Arc<AtomicBool>) {
        let identity = self.identity();
        let lane = &mut self.lanes[at];
        lane.fails_with(&[identity]);
        let cause = Cause::Work { identity, ran };
        self.journal.failing(Failing { stream: lane.key, device: lane.device, enqueued, cause });
    }

    /// A kernel: on the cpu it adds one to each byte, elsewhere it has no work.
    pub(crate) fn kernel(&mut self, step: Step) -> Done {
        let (at, buffer) = self.lane_and_buffer(step)?;
        self.use_in(at, buffer)?;
        self.usable(&[buffer])?;
        let (place, identity) = (self.place(), self.identity());
        let fails = step.kind == Kind::FailingKernel;
        let adds = self.scene.devices[self.lanes[at].device].is_cpu() && !fails;
        let lane = &mut self.lanes[at];
        let (order, number) = (Arc::clone(&lane.order), lane.calls + 1);
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let kept = self.scene.bin.lock().pop();
        let (enqueued, outcome) = Interval::of(|| {
            lane.stream.launch(&[&self.buffers[buffer].buffer], move |launch| {
                runs.store(true, Ordering::SeqCst);
                launch.keep(kept);
                order.pass(number).unwrap_or_else(|wrong| found(format_args!("{place}: {wrong}")));
                if fails {
                    return Err(BackendError::other(identity));
                }
                if let (true, Some(span)) = (adds, &launch.spans()[0]) {
                    let mut bytes = span.memory_as::<HostMemory>()?.write(span.range())?;
                    bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                }
                Ok(())
            })
        });
        lane.calls = number;
        match outcome {
            // It was run at once.
            Err(error) if Identity::of(&error) == Some(identity) => self.journal.refused(),
            Err(error) => return Err(error.into()),
            Ok(()) if fails => self.fails(at, enqueued, ran),
            Ok(()) if adds => self.change(at, buffer, |known| {
                known.iter_mut().flatten().for_each(|byte| *byte = byte.wrapping_add(1));
            }),
            Ok(()) => {}
        }
        Ok(())
    }
}
