//! The section `[web]`: whether users of this host can open the web page, and at which address.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use serde::Deserialize;

use crate::api::listen;
use crate::config::{InvalidConfig, out_of_range};

/// The web page.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    /// Whether `qfabric web` works.
    pub enabled: bool,
    /// Loopback address and port of the page. `None`: a free port of 127.0.0.1, taken when a user first asks for the
    /// page; until then the daemon listens nowhere.
    pub listen: Option<SocketAddr>,
}

impl Default for WebConfig {
    fn default() -> Self {
        WebConfig { enabled: true, listen: None }
    }
}

impl WebConfig {
    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        match self.listen {
            Some(address) if !address.ip().is_loopback() => {
                let expected = "a loopback address such as 127.0.0.1:9465; from another machine use \
                                ssh -L 9465:127.0.0.1:9465 HOST";
                Err(out_of_range("web.listen", address, expected))
            }
            _ => Ok(()),
        }
    }

    /// Listens at the address. The error is a sentence with the next step.
    pub(super) fn bind(&self) -> Result<TcpListener, String> {
        listen("web.listen", self.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(listen: &str) -> WebConfig {
        WebConfig { listen: Some(listen.parse().unwrap()), ..WebConfig::default() }
    }

    #[test]
    fn an_address_beyond_loopback_is_refused_and_ssh_is_named() {
        for address in ["127.0.0.1:9465", "[::1]:9465", "127.0.0.1:0"] {
            at(address).check().unwrap();
        }
        for address in ["0.0.0.0:9465", "192.0.2.7:9465", "[::]:9465"] {
            let refusal = at(address).check().unwrap_err().to_string();
            assert!(refusal.contains(address) && refusal.contains("ssh -L"), "{refusal}");
        }
    }
}
