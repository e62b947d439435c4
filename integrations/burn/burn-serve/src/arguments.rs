//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// Serves devices to burn programs on other machines, or lists the devices there are.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Arguments {
    /// The devices, such as `cpu` or `NAME:INDEX`: repeated, or a list with commas. A client names them 0, 1,
    /// … in this order
    // Text, and not a `Device`, so that the registry's own message is printed.
    #[arg(long = "device", value_name = "DEVICE", value_delimiter = ',', required_unless_present = "list")]
    pub(crate) devices: Vec<String>,
    /// The IP address and port to listen on; with port 0, the system chooses one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// The file with the token that clients must present; only its owner may read it
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    pub(crate) token_file: Option<PathBuf>,
    /// Accepts an address that other machines can reach. The connection is not encrypted: see README.md
    #[arg(long)]
    pub(crate) allow_network: bool,
    /// Lists the backends that are linked, and loads none
    #[arg(long, conflicts_with_all = ["devices", "token_file", "allow_network"])]
    list: bool,
    /// With --list: loads each backend and adds its devices
    #[arg(long, requires = "list")]
    pub(crate) probe: bool,
}

/// An address to listen on. Names such as `localhost` are not looked up, as they may have several addresses.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, such as 127.0.0.1:3000 or [::1]:3000".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn devices_are_repeated_or_a_list() {
        let line =
            ["burn-serve", "--token-file", "token", "--device", "openreg:1,cpu", "--device", "openreg:0"];
        assert_eq!(Arguments::try_parse_from(line).unwrap().devices, ["openreg:1", "cpu", "openreg:0"]);
    }

    #[test]
    fn an_address_is_an_ip_address_and_a_port() {
        assert_eq!(address("[::1]:3000").unwrap(), "[::1]:3000".parse().unwrap());
        for text in ["", "3000", "localhost:3000", "127.0.0.1", "::1:3000:", "127.0.0.1:65536"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
