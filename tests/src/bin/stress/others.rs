//! Steps on shared objects: racing streams, whole devices, the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device_registry::DeviceError;
use device_registry::backend::{BackendError, Fault};

use crate::failure::{Identity, is_gone};
use crate::journal::{Cause, Failing, Interval, Reporter};
use crate::plan::{Kind, Step, Weather};
use crate::scene::{Discarded, Racer, found};
use crate::worker::{Done, Stop, Worker, chosen};

const RACERS: usize = 8;
const EVENTS: usize = 16;

impl Worker<'_> {
    pub(crate) fn attempt_with_others(&mut self, step: Step) -> Done {
        match step.kind {
            Kind::RacingNew => self.new_racer(step),
            Kind::RacingDrop => self.drop_racer(step),
            Kind::RacingTransfer => self.transfer(step),
            Kind::RacingCall => Ok(self.racer(step)?.stream.host_call(|| ())?),
            Kind::RacingFailure => self.fail_racer(step),
            Kind::RacingEvent => self.record_or_wait(step),
            Kind::RacingQuery | Kind::RacingSynchronize => self.poll_racer(step),
            Kind::EmptyBin => self.empty_bin(),
            Kind::Statistics => {
                let (_, device) = self.device(step);
                device.memory_statistics()?;
                device.memory_info()?;
                Ok(())
            }
            Kind::SynchronizeDevice => {
                let (place, _) = self.device(step);
                self.synchronize_device(place)
            }
            Kind::Close => self.close(step),
            Kind::Lose => self.lose(step),
            Kind::Fault => self.fault(step),
            Kind::Fork => self.fork(),
            other => unreachable!("{other:?} is a step with what is the thread's own"),
        }
    }

    fn new_racer(&mut self, step: Step) -> Done {
        let (place, device) = self.device(step);
        let is_default = step.value.is_multiple_of(8);
        let stream = if is_default { device.default_stream()? } else { device.create_stream()? };
        let buffers = [device.allocate(4096)?, device.allocate(4096)?];
        let racer = Racer { key: self.new_key(), device: place, stream, buffers, may_fail: !is_default };
        let mut racers = self.scene.racers.lock();
        let old = match racers.len() {
            RACERS.. => Some(std::mem::replace(&mut racers[step.pick[1] % RACERS], racer)),
            _ => {
                racers.push(racer);
                None
            }
        };
        drop(racers);
        self.journal_drop(old);
        Ok(())
    }

    fn drop_racer(&mut self, step: Step) -> Done {
        let mut racers = self.scene.racers.lock();
        let at = chosen(step.pick[1], racers.len())?;
        let old = racers.swap_remove(at);
        drop(racers);
        self.journal_drop(Some(old));
        Ok(())
    }

    /// Other threads may have handles of it for a moment.
    fn journal_drop(&mut self, racer: Option<Racer>) {
        if let Some(racer) = racer {
            self.journal.dropped(racer.key);
        }
    }

    fn racer(&self, step: Step) -> Result<Racer, Stop> {
        let racers = self.scene.racers.lock();
        Ok(racers[chosen(step.pick[1], racers.len())?].clone())
    }

    fn transfer(&mut self, step: Step) -> Done {
        let Racer { stream, buffers: [first, second], .. } = self.racer(step)?;
        match step.value % 6 {
            0 => stream.fill(&first, .., &step.value.to_le_bytes())?,
            1 => stream.write(&second, 16, vec![7; 160])?,
            2 => stream.copy(&first.slice(..1024)?, &second.slice(2048..3072)?)?,
            3 => {
                let other = self.racer(Step { pick: [step.pick[2]; 3], ..step })?;
                // A failure of a default stream would be that of any blocking call.
                stream.copy(&other.buffers[0], &second)?;
            }
            4 => drop(stream.read(&first, ..)?),
            _ => match stream.read(&second, 0..64)?.wait() {
                Err(error) if Identity::of(&error).is_none() => return Err(error.into()),
                _ => {}
            },
        }
        Ok(())
    }

    fn fail_racer(&mut self, step: Step) -> Done {
        let racer = self.racer(step)?;
        if !racer.may_fail {
            return Err(Stop::Nothing);
        }
        let identity = self.identity();
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let (enqueued, outcome) = Interval::of(|| match step.value % 3 {
            0 => racer.stream.launch(&[&racer.buffers[0]], move |_| {
                runs.store(true, Ordering::SeqCst);
                Err(BackendError::other(identity))
            }),
            _ => racer.stream.host_call(move || {
                runs.store(true, Ordering::SeqCst);
                panic!("{identity}");
            }),
        });
        match outcome {
            Ok(()) => {
                let cause = Cause::Work { identity, ran };
                self.journal.failing(Failing { stream: racer.key, device: racer.device, enqueued, cause });
                Ok(())
            }
            // The kernel was called at once.
            Err(error) if Identity::of(&error) == Some(identity) => {
                self.journal.refused();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn record_or_wait(&mut self, step: Step) -> Done {
        let racer = self.racer(step)?;
        if step.value.is_multiple_of(2) {
            if racer.may_fail && !self.scene.weather.spreads_errors() {
                return Err(Stop::Nothing);
            }
            let event = racer.stream.record()?;
            let mut events = self.scene.racing_events.lock();
            let old = match events.len() {
                EVENTS.. => Some(std::mem::replace(&mut events[step.pick[2] % EVENTS], event)),
                _ => {
                    events.push(event);
                    None
                }
            };
            drop(events);
            drop(old);
            return Ok(());
        }
        let events = self.scene.racing_events.lock();
        let event = events[chosen(step.pick[2], events.len())?].clone();
        drop(events);
        if racer.may_fail {
            let (enqueued, outcome) = Interval::of(|| racer.stream.wait_event(&event));
            outcome?;
            let cause = Cause::Wait(event);
            self.journal.failing(Failing { stream: racer.key, device: racer.device, enqueued, cause });
        }
        Ok(())
    }

    fn poll_racer(&mut self, step: Step) -> Done {
        let racer = self.racer(step)?;
        let queries = step.kind == Kind::RacingQuery && !self.scene.no_query;
        let (when, outcome) = Interval::of(|| {
            if queries { racer.stream.query() } else { racer.stream.synchronize().map(|()| true) }
        });
        self.report(Reporter::Stream(racer.key), when, outcome)
    }

    /// A stream or a device has returned the state of its work.
    fn report(&mut self, by: Reporter, when: Interval, outcome: Result<bool, DeviceError>) -> Done {
        match outcome {
            Ok(true) => self.journal.clear(by, when),
            Ok(false) => {}
            Err(error) => match Identity::of(&error) {
                Some(identity) if !is_gone(&error) => self.journal.report(identity, by, when),
                _ => return Err(error.into()),
            },
        }
        Ok(())
    }

    fn empty_bin(&mut self) -> Done {
        let discarded = self.scene.bin.lock().pop();
        match discarded {
            Some(Discarded::Read(read, expected)) => self.finished(read.wait(), &expected),
            other => {
                drop(other);
                Ok(())
            }
        }
    }

    pub(crate) fn synchronize_device(&mut self, place: usize) -> Done {
        let (when, outcome) = Interval::of(|| self.scene.devices[place].synchronize());
        match outcome {
            // Of a device that was opened anew, streams of the old one say nothing.
            Ok(()) if self.scene.weather.takes_devices() => Ok(()),
            outcome => self.report(Reporter::Device(place), when, outcome.map(|()| true)),
        }
    }

    fn close(&mut self, step: Step) -> Done {
        let place = match self.scene.weather {
            Weather::Close { device } => device,
            _ => self.device(step).0,
        };
        let (when, outcome) = Interval::of(|| self.scene.devices[place].close());
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => self.report(Reporter::Device(place), when, Err(error)),
        }
    }

    /// Has a device lost in a few operations. Whichever thread notices it resets the device.
    fn lose(&mut self, step: Step) -> Done {
        let fault = Fault::LoseDevice { nth: 1 + step.value % 40 };
        self.inject(step, fault)
    }

    fn fault(&mut self, step: Step) -> Done {
        let fault = match step.value % 4 {
            0 => Fault::Slow { by: Duration::ZERO },
            1 => Fault::Slow { by: Duration::from_micros(step.value % 200) },
            _ => Fault::FailAllocation { nth: 1 + step.value % 5 },
        };
        self.inject(step, fault)
    }

    /// Most devices cannot.
    fn inject(&mut self, step: Step, fault: Fault) -> Done {
        let able: Vec<_> = (0..self.scene.devices.len())
            .filter(|&place| self.scene.devices[place].name() == "openreg")
            .collect();
        let place = able[chosen(step.pick[0], able.len())?];
        Ok(self.scene.devices[place].faults().and_then(|faults| faults.inject(fault))?)
    }

    #[cfg(unix)]
    fn fork(&mut self) -> Done {
        let place = self.place();
        self.forks += 1;
        crate::forks::fork(self).unwrap_or_else(|wrong| found(format_args!("{place}: {wrong}")));
        Ok(())
    }

    #[cfg(not(unix))]
    fn fork(&mut self) -> Done {
        Err(Stop::Nothing)
    }
}
