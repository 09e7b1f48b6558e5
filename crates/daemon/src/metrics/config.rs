//! The section `[metrics]`: an address for a Prometheus that cannot read a Unix socket.

use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use qfabric_types::api::Problem;
use serde::Deserialize;

use crate::api::{MetricsPlace, MetricsSocket};
use crate::config::{InvalidConfig, out_of_range, plain_path};
use crate::startup::DaemonError;

/// Length of a token, in bytes.
const TOKEN: (usize, usize) = (16, 512);

/// Metrics on TCP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Address and port at which `GET /metrics` is answered, besides the Unix socket; `None`: at no address.
    pub listen: Option<SocketAddr>,
    /// File with the token that a request must have as `Authorization: Bearer …`. Needed for an address beyond
    /// loopback.
    pub token_file: Option<PathBuf>,
}

impl MetricsConfig {
    pub(crate) fn check(&self) -> Result<(), InvalidConfig> {
        if let Some(path) = &self.token_file {
            plain_path("metrics.token_file", path)?;
        }
        match self.listen {
            Some(address) if !address.ip().is_loopback() && self.token_file.is_none() => {
                let expected = "a loopback address such as 127.0.0.1:9464, or set metrics.token_file";
                Err(out_of_range("metrics.listen", address, expected))
            }
            _ => Ok(()),
        }
    }

    /// What serves the metrics, if there is an address. A token that cannot be used is an error of the configuration; an
    /// address that is in use is not, because every user of this host can take a port.
    pub(crate) fn open(&self) -> Result<Option<MetricsSocket>, DaemonError> {
        Ok(self.place()?.map(|(address, token)| MetricsSocket::open(address, token)))
    }

    /// The address, if there is one, and the token.
    pub(crate) fn place(&self) -> Result<Option<MetricsPlace>, DaemonError> {
        let Some(address) = self.listen else { return Ok(None) };
        let token = self.token_file.as_deref().map(read_token).transpose().map_err(DaemonError::Part)?;
        Ok(Some((address, token)))
    }
}

/// A token that other users could read would protect nothing.
fn read_token(path: &Path) -> Result<String, Problem> {
    let unusable = |why: &str, next_step: &str| {
        Problem::new("metrics", format!("metrics.token_file {}: {why}", path.display()), next_step)
    };
    let failed = |error: io::Error| unusable(&error.to_string(), "name another metrics.token_file");
    let file = fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o007 != 0 {
        return Err(unusable("every user may use the file", "set its mode to 0600 or 0640"));
    }
    let mut text = String::new();
    file.take(TOKEN.1 as u64 + 2).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    let is_token = (TOKEN.0..=TOKEN.1).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    match is_token {
        true => Ok(token.to_owned()),
        false => {
            let why = "a token has 16 to 512 printable ASCII characters without spaces";
            Err(unusable(why, "make one: openssl rand -hex 32"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beyond_loopback_needs_a_token() {
        let config = |listen: &str, token: Option<&str>| MetricsConfig {
            listen: Some(listen.parse().unwrap()),
            token_file: token.map(PathBuf::from),
        };
        for address in ["127.0.0.1:9464", "[::1]:9464"] {
            config(address, None).check().unwrap();
        }
        for address in ["0.0.0.0:9464", "192.0.2.7:9464", "[::]:9464"] {
            let refusal = config(address, None).check().unwrap_err().to_string();
            assert!(refusal.contains(address) && refusal.contains("metrics.token_file"), "{refusal}");
            config(address, Some("/etc/qfabric/token")).check().unwrap();
        }
        assert!(config("127.0.0.1:1", Some("/etc/../token")).check().is_err());
    }

    #[test]
    fn a_token_that_is_weak_or_public_is_refused_with_the_remedy() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let with = |text: &str, mode| {
            fs::write(file.path(), text).unwrap();
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            read_token(file.path()).map_err(|error| error.to_string())
        };
        assert_eq!(with("0123456789abcdef\n", 0o600).as_deref(), Ok("0123456789abcdef"));
        for text in ["short", "", "0123456789 abcdef", &"x".repeat(600)] {
            assert!(with(text, 0o600).unwrap_err().contains("openssl rand"), "{text}");
        }
        assert!(with("0123456789abcdef", 0o644).unwrap_err().contains("0600"));
    }

    #[test]
    fn no_address_serves_no_metrics() {
        assert!(MetricsConfig::default().open().unwrap().is_none());
    }
}
