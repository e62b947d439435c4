//! The end of the process, before which observers get the last records.

use std::panic::catch_unwind;
use std::sync::Once;
use std::time::Duration;

use crate::exit::at_exit;
use crate::runtime::activity::hub::HUB;

pub(super) fn flush_at_exit() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| at_exit(flush));
}

extern "C" fn flush() {
    // A panic must not leave a function that C calls, and nothing can report it any more.
    let _ = catch_unwind(|| HUB.current().flush(Duration::from_secs(5)));
}
