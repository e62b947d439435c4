//! Serves clients until a signal.

use std::io;
use std::net::TcpListener;

use burn_remote::server::{BackendServer, TokenAuthorizer};
use device_burn_backend::abandon_collectives;
use device_registry::Device;

use crate::served::{self, Served};

/// Serves the devices to clients with the token, until Ctrl-C or SIGTERM.
pub(crate) fn run(listener: TcpListener, devices: &[Device], token: &[u8]) -> io::Result<()> {
    let tokens = TokenAuthorizer::new(token).map_err(io::Error::other)?;
    let server = BackendServer::<Served>::new(served::devices(devices).map_err(io::Error::other)?);
    let counted = devices.to_vec();
    let serving =
        burn_gate::serve(listener, server, tokens, served::report, abandon_collectives, move || {
            served::counts(&counted)
        });
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            served = serving => served,
            stopped = stop_signal() => stopped,
        }
    });
    // Does not wait for sessions that compute.
    runtime.shutdown_background();
    outcome
}

/// Returns at Ctrl-C or, on Unix, SIGTERM.
async fn stop_signal() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
