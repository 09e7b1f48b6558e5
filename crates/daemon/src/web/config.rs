//! The section `[web]`: whether users of this host can open the web page, and at which address.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use qfabric_types::api::Problem;
use serde::Deserialize;

use super::tls::{self, Acceptor};
use crate::api::listen;
use crate::config::{InvalidConfig, out_of_range, plain_path};

/// The web page.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    /// Whether `qfabric web` works.
    pub enabled: bool,
    /// Address and port of the page; beyond loopback only with `certificate` and `key`. `None`: a free port of
    /// 127.0.0.1, taken when a user first asks for the page; until then the daemon listens nowhere.
    pub listen: Option<SocketAddr>,
    /// File in PEM for TLS: the certificate of this host, and those between it and its authority.
    pub certificate: Option<PathBuf>,
    /// File in PEM with the key of the certificate; not every user may use it.
    pub key: Option<PathBuf>,
    /// The name of this host in the certificate, by which browsers open the page. `None`: the address.
    pub name: Option<String>,
}

impl Default for WebConfig {
    fn default() -> Self {
        WebConfig { enabled: true, listen: None, certificate: None, key: None, name: None }
    }
}

impl WebConfig {
    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        let files = [("web.certificate", &self.certificate), ("web.key", &self.key)];
        for (key, path) in files {
            path.as_deref().map_or(Ok(()), |path| plain_path(key, path))?;
        }
        let is_secured = self.certificate.is_some();
        if is_secured != self.key.is_some() {
            return Err(out_of_range("web.key", "not set together with web.certificate", "both keys or none"));
        }
        match (&self.name, self.listen) {
            (Some(name), _) if !is_secured || !is_host_name(name) => {
                let expected = "a name of this host, such as media.example, together with web.certificate and web.key";
                Err(out_of_range("web.name", format!("{name:?}"), expected))
            }
            (None, Some(address)) if is_secured && address.ip().is_unspecified() => {
                let expected =
                    "one address of this host, or set web.name, too: users need an address that they can open";
                Err(out_of_range("web.listen", address, expected))
            }
            (_, Some(address)) if !is_secured && !address.ip().is_loopback() => {
                let expected = "a loopback address such as 127.0.0.1:9465 (from another machine use \
                                ssh -L 9465:127.0.0.1:9465 HOST), or set web.certificate and web.key";
                Err(out_of_range("web.listen", address, expected))
            }
            _ => Ok(()),
        }
    }

    /// What accepts TLS connections, if the page has a certificate. One that cannot be used is an error of the
    /// configuration.
    pub(super) fn acceptor(&self) -> Result<Option<Acceptor>, Problem> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => tls::acceptor(certificate, key).map(Some),
            _ => Ok(None),
        }
    }

    /// The address of the page that is served at `address`, without the token.
    pub(super) fn url(&self, address: SocketAddr) -> String {
        match (&self.certificate, &self.name) {
            (None, _) => format!("http://{address}/"),
            (Some(_), None) => format!("https://{address}/"),
            (Some(_), Some(name)) => format!("https://{name}:{}/", address.port()),
        }
    }

    /// Listens at the address. The error is a sentence with the next step.
    pub(super) fn bind(&self) -> Result<TcpListener, String> {
        listen("web.listen", self.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
    }
}

/// Letters, digits, hyphens and dots: nothing else can be in the address of a page.
fn is_host_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&name.len()) && name.bytes().all(is_plain)
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

    #[test]
    fn a_certificate_allows_other_addresses_and_names_the_host() {
        let secured = |listen: &str, name: Option<&str>| WebConfig {
            certificate: Some("/etc/qfabric/web.pem".into()),
            key: Some("/etc/qfabric/web.key".into()),
            name: name.map(str::to_owned),
            ..at(listen)
        };
        let url = |config: WebConfig| config.url(config.listen.unwrap());
        for (listen, name, shown) in [
            ("192.0.2.7:9465", None, "https://192.0.2.7:9465/"),
            ("0.0.0.0:9465", Some("media.example"), "https://media.example:9465/"),
        ] {
            secured(listen, name).check().unwrap();
            assert_eq!(url(secured(listen, name)), shown);
        }
        assert_eq!(url(at("127.0.0.1:9465")), "http://127.0.0.1:9465/");
        let refused = |config: WebConfig, part: &str| {
            let refusal = config.check().unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        };
        refused(secured("0.0.0.0:9465", None), "web.name");
        refused(secured("0.0.0.0:9465", Some("a/b")), "web.name");
        refused(WebConfig { key: None, ..secured("192.0.2.7:1", None) }, "web.key");
        refused(WebConfig { certificate: None, key: None, ..secured("127.0.0.1:1", Some("a")) }, "web.name");
        refused(WebConfig { key: Some("/etc/../key".into()), ..secured("192.0.2.7:1", None) }, "web.key");
    }
}
