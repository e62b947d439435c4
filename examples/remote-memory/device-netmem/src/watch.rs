//! The thread of an open device that finds out when the server is gone.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use device_registry::backend::{BackendError, FaultCounter, LossReporter};

use crate::connection::Connection;
use crate::driver::Link;

/// How often the thread asks whether the server still answers.
const INTERVAL: Duration = Duration::from_secs(1);

/// Waits until the connection ends, whoever ends it, and reports the device as lost. A report after a close does nothing.
pub(crate) fn watch(link: Arc<Link>, faults: &FaultCounter, reporter: &LossReporter) {
    let error = loop {
        // A process that ends closes its connections. A machine without power does not: it no longer answers.
        if let Err(error) = wait_until_closed(&link.watched).and_then(|()| link.watched.info().map(drop)) {
            break error;
        }
    };
    let why = error.message().to_owned();
    reporter.report(error);
    // The core has woken the threads that wait in it. Those that wait in the driver are the driver's to wake.
    link.end();
    faults.lose(why);
}

/// Waits for the interval, or returns an error as soon as the connection ends.
fn wait_until_closed(connection: &Connection) -> Result<(), BackendError> {
    let wait = || {
        connection.stream.set_read_timeout(Some(INTERVAL))?;
        // The server sends nothing unasked, so there is nothing to read but the end.
        let ended = match connection.stream.peek(&mut [0]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::from(ErrorKind::UnexpectedEof)),
        };
        connection.stream.set_read_timeout(Some(connection.patience))?;
        ended
    };
    wait().map_err(|error| connection.lost(error))
}
