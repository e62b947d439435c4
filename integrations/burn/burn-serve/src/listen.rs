//! The listening socket: on this machine only, unless the user allows the network.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Why the server does not listen on an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// The address is not a loopback address, and `--allow-network` is missing.
    #[error(
        "other machines can reach {address}, and the connection is not encrypted; \
         listen on a loopback address such as 127.0.0.1:{port} and use an SSH tunnel, \
         or add --allow-network in a network where you trust every machine",
        port = .address.port()
    )]
    Network {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// The system refused the address, for example because another program listens on it.
    #[error("cannot listen on {address}; --listen selects another address or port")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

/// Listens on an address. Prints a warning if other machines can reach it.
///
/// # Errors
///
/// [`ListenError::Network`] if other machines can reach the address and `allow_network` is false,
/// [`ListenError::Bind`] if the system refuses the address.
pub(crate) fn bind(address: SocketAddr, allow_network: bool) -> Result<TcpListener, ListenError> {
    if !is_local(address.ip()) {
        if !allow_network {
            return Err(ListenError::Network { address });
        }
        eprintln!(
            "warning: other machines can reach {address}; the connection is not encrypted, so anyone on the way can \
             read the token and all tensors"
        );
    }
    TcpListener::bind(address).map_err(|source| ListenError::Bind { address, source })
}

/// Whether only this machine can reach the address.
fn is_local(address: IpAddr) -> bool {
    // `::ffff:127.0.0.1` is 127.0.0.1, and `::ffff:192.0.2.1` is not a loopback address.
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_local() {
        for (text, local) in [
            ("127.0.0.1", true),
            ("127.1.2.3", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_local(text.parse().unwrap()), local, "{text}");
        }
    }

    #[test]
    fn a_network_address_is_refused_before_the_socket_exists() {
        let error = bind("0.0.0.0:0".parse().unwrap(), false).unwrap_err();
        assert!(error.to_string().contains("--allow-network"), "{error}");
    }

    #[test]
    fn a_port_in_use_is_an_error_that_names_the_address() {
        let first = bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = first.local_addr().unwrap();
        let error = bind(address, false).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
