//! The thread of an open device that notices the end of its server.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use device_registry::backend::testing::FaultCounter;
use device_registry::backend::{BackendError, LossReporter};

use crate::connection::Connection;
use crate::driver::Link;

/// How often the thread checks that the server still replies.
const INTERVAL: Duration = Duration::from_secs(1);

/// Waits until either side ends the connection, and reports the device as lost. A report after a close does
/// nothing.
pub(crate) fn watch(link: Arc<Link>, faults: &FaultCounter, reporter: &LossReporter) {
    let error = loop {
        // A process that ends closes its connections. A machine without power does not close them: it stops
        // replying.
        if let Err(error) = wait_until_closed(&link.watched).and_then(|()| link.watched.info().map(drop)) {
            break error;
        }
    };
    let why = error.message().to_owned();
    reporter.report(error);
    // The core has woken the threads that wait in it. The driver wakes those that wait in it.
    link.end();
    faults.lose(why);
}

/// Waits for the interval, or returns an error as soon as the connection ends.
fn wait_until_closed(connection: &Connection) -> Result<(), BackendError> {
    let wait = || {
        connection.stream.set_read_timeout(Some(INTERVAL))?;
        // The server sends replies only, so the only thing to read here is the end.
        let ended = match connection.stream.peek(&mut [0]) {
            Ok(_) => Err(io::Error::from(ErrorKind::UnexpectedEof)),
            Err(error) => match error.kind() {
                // A signal interrupts a wait with a time limit.
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            },
        };
        connection.stream.set_read_timeout(Some(connection.patience))?;
        ended
    };
    wait().map_err(|error| connection.lost(error))
}
