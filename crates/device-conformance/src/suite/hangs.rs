//! Which check of a backend is to blame for a hang, where later ones may only wait behind it.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::hung::Hung;

/// The checks of one backend that run, and those that hang.
#[derive(Default)]
pub(super) struct Hangs {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: Vec<String>,
    /// The checks that count as failed because they hung.
    blamed: Vec<(String, Hung)>,
}

impl Hangs {
    /// Notes that a check runs, until the returned value is dropped. `name` is the name of its test and its
    /// thread.
    pub(super) fn begin(&self, name: String) -> Running<'_> {
        self.state.lock().running.push(name.clone());
        Running { of: self, name }
    }
}

/// A check that runs.
pub(super) struct Running<'a> {
    of: &'a Hangs,
    name: String,
}

impl Running<'_> {
    /// The message of a check that hung. If it may only have waited behind another hang, returns the name of
    /// the check that is to blame, which fails the run.
    ///
    /// It is an earlier check that was blamed and whose thread still runs, or a check whose call into the
    /// driver is older than all of this check's calls, if it exceeds its time limit too: this function waits
    /// until it ends, but no longer than `patience`.
    pub(super) fn judge(self, hung: Hung, patience: Duration) -> Result<String, String> {
        let deadline = Instant::now() + patience;
        let mut state = self.of.state.lock();
        let suspect =
            hung.callers().iter().find(|&caller| state.running.iter().any(|name| **name == **caller));
        let suspect = suspect.filter(|&caller| **caller != *self.name).cloned();
        loop {
            if let Some((name, _)) = state.blamed.iter().find(|(_, hung)| hung.is_running()) {
                return Err(name.clone());
            }
            let runs =
                suspect.as_ref().is_some_and(|caller| state.running.iter().any(|name| **name == **caller));
            if !runs || self.of.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        let message = hung.to_string();
        state.blamed.push((self.name.clone(), hung));
        Ok(message)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.of.state.lock().running.retain(|name| *name != self.name);
        self.of.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::hung::tests::hung;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_hang_behind_one_that_lasts_is_not_blamed() {
        let hangs = Hangs::default();
        let (first, end) = hung(&[], &[]);
        assert!(hangs.begin("first".to_owned()).judge(first, LONG).is_ok());
        let judge = |name: &str| hangs.begin(name.to_owned()).judge(hung(&[], &[]).0, LONG);
        assert_eq!(judge("second"), Err("first".to_owned()));
        assert_eq!(judge("third"), Err("first".to_owned()));
        drop(end);
        while hangs.state.lock().blamed[0].1.is_running() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(judge("fourth").is_ok());
    }

    /// The second check exceeds its limit while the first one, whose call is older, still runs.
    fn second_before_first(end_of_first: impl FnOnce(Running<'_>)) -> Result<String, String> {
        let hangs = Hangs::default();
        let first = hangs.begin("first".to_owned());
        let second = hangs.begin("second".to_owned());
        let (hung, _end) = hung(&["a stream", "first", "second"], &[]);
        thread::scope(|scope| {
            let (sender, judged) = mpsc::channel();
            scope.spawn(move || sender.send(second.judge(hung, LONG)).unwrap());
            assert!(judged.recv_timeout(Duration::from_millis(20)).is_err(), "it has to wait for the first");
            end_of_first(first);
            judged.recv().unwrap()
        })
    }

    #[test]
    fn of_two_hangs_the_one_with_the_oldest_call_is_blamed() {
        let mut end = None;
        let judged = second_before_first(|first| {
            let (hung, sender) = hung(&["first", "second"], &[]);
            end = Some(sender);
            assert!(first.judge(hung, LONG).is_ok());
        });
        assert_eq!(judged, Err("first".to_owned()));
    }

    #[test]
    fn a_hang_is_blamed_if_the_check_with_the_oldest_call_passes() {
        assert!(second_before_first(|first| drop(first)).is_ok());
    }

    #[test]
    fn a_hang_with_the_oldest_call_is_blamed_at_once() {
        let hangs = Hangs::default();
        let _other = hangs.begin("other".to_owned());
        let (hung, _end) = hung(&["own", "other"], &[]);
        assert!(hangs.begin("own".to_owned()).judge(hung, LONG).is_ok());
    }
}
