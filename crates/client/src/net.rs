//! The calls to a daemon about packet scheduling.

use std::os::fd::AsFd;

use qfabric_types::api::contracts::JointId;
use qfabric_types::api::net::{
    AttachRequest, InterfaceInfo, LinkRequest, StreamChange, StreamId, StreamInfo, StreamSpec,
};
use rustix::net::{AddressFamily, sockopt};

use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Puts a network interface under packet scheduling. Fails with [`ClientError::Value`] for an invalid interface
    /// name, as do all calls that take one.
    pub fn attach(&self, interface: &str, request: &AttachRequest) -> Result<InterfaceInfo, ClientError> {
        self.call("PUT", &path(interface)?, Some(request))
    }

    /// Restores the queueing that the interface had before [`Client::attach`].
    pub fn detach(&self, interface: &str) -> Result<(), ClientError> {
        self.exchange("DELETE", &path(interface)?, None).map(drop)
    }

    /// The interfaces under packet scheduling, with their streams.
    pub fn interfaces(&self) -> Result<Vec<InterfaceInfo>, ClientError> {
        self.get("/v1/net")
    }

    /// One interface under packet scheduling, with its streams.
    pub fn interface(&self, interface: &str) -> Result<InterfaceInfo, ClientError> {
        self.get(&path(interface)?)
    }

    /// Opens the link of an interface to all users, or replaces its limits. Attaches the interface if necessary.
    pub fn open_link(&self, interface: &str, request: &LinkRequest) -> Result<InterfaceInfo, ClientError> {
        self.call("PUT", &format!("{}/link", path(interface)?), Some(request))
    }

    /// Closes a link: the streams of users who may not change interfaces end.
    pub fn close_link(&self, interface: &str) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("{}/link", path(interface)?), None).map(drop)
    }

    /// Begins a stream on an interface. With [`StreamSpec::terms`] the stream may be granted in part, and ends with its
    /// holder or lease.
    pub fn begin_stream(&self, interface: &str, spec: &StreamSpec) -> Result<StreamInfo, ClientError> {
        self.call("POST", &format!("{}/streams", path(interface)?), Some(spec))
    }

    /// Begins a stream that draws from the rate of a joint contract, on any host of the contract; it ends with the
    /// contract. It may also draw from the rate of a loan that this host keeps: `contract` is then the loan's claim.
    pub fn begin_stream_of_contract(
        &self,
        contract: &JointId,
        interface: &str,
        spec: &StreamSpec,
    ) -> Result<StreamInfo, ClientError> {
        // Checks the name.
        path(interface)?;
        self.call("POST", &format!("/v1/contracts/{contract}/streams/{interface}"), Some(spec))
    }

    /// Changes a stream while packets flow.
    pub fn change_stream(
        &self,
        interface: &str,
        id: StreamId,
        change: &StreamChange,
    ) -> Result<StreamInfo, ClientError> {
        self.call("PATCH", &format!("{}/streams/{id}", path(interface)?), Some(change))
    }

    /// Ends a stream of an interface.
    pub fn end_stream(&self, interface: &str, id: StreamId) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("{}/streams/{id}", path(interface)?), None).map(drop)
    }
}

/// Sets the code point (DSCP, RFC 2474) that routers and access points see in all packets of an own socket, for IPv4 and
/// IPv6. Needs no privilege. Queues on this host find a stream by its selector, not by this value. For the packets of
/// another program, state [`StreamSpec::dscp`].
///
/// # Errors
/// [`ClientError::Value`] above 63, and for a socket that is not of IP.
pub fn set_dscp(socket: impl AsFd, dscp: u8) -> Result<(), ClientError> {
    let failed =
        |error| ClientError::invalid(format!("the socket takes no code point ({error})"), "use a TCP or UDP socket");
    // The two lower bits of the field belong to explicit congestion notification.
    let field = code_point(dscp.into())? << 2;
    if sockopt::socket_domain(&socket).map_err(failed)? == AddressFamily::INET6 {
        sockopt::set_ipv6_tclass(&socket, u32::from(field)).map_err(failed)?;
    }
    // A socket of IPv6 may send packets of IPv4, too.
    sockopt::set_ip_tos(&socket, field).map_err(failed)
}

/// A code point that a program states as a number.
///
/// # Errors
/// [`ClientError::Value`] above 63.
pub fn code_point(dscp: u32) -> Result<u8, ClientError> {
    let known = u8::try_from(dscp).ok().filter(|dscp| *dscp <= StreamSpec::MOST_DSCP);
    let next = "use 0 to 63, such as 46 for expedited forwarding";
    known.ok_or_else(|| ClientError::invalid(format!("the code point is {dscp}"), next))
}

/// Path of an interface in the API. Valid interface names need no escaping in a path.
fn path(interface: &str) -> Result<String, ClientError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@:".contains(c);
    match !interface.is_empty() && interface.len() < 16 && interface.chars().all(fits) {
        true => Ok(format!("/v1/net/{interface}")),
        false => Err(ClientError::invalid(
            format!("{interface:?} is not the name of a network interface"),
            "list them with `ip link`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_point_is_set_on_sockets_of_both_versions_and_only_on_sockets_of_ip() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let socket = std::net::UdpSocket::bind(address).unwrap();
            set_dscp(&socket, 46).unwrap();
            assert_eq!(sockopt::ip_tos(&socket).unwrap(), 46 << 2);
            if address.starts_with('[') {
                assert_eq!(sockopt::ipv6_tclass(&socket).unwrap(), 46 << 2);
            }
        }
        let (pair, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(set_dscp(&pair, 46).unwrap_err().to_string().contains("TCP or UDP"));
        assert!(set_dscp(&pair, 64).unwrap_err().to_string().contains("0 to 63"));
        assert!(code_point(300).unwrap_err().to_string().contains("is 300; use 0 to 63"));
    }

    #[test]
    fn a_name_that_is_none_is_refused_before_it_is_asked_for() {
        assert_eq!(path("eth0.7").unwrap(), "/v1/net/eth0.7");
        for name in ["", "eth0/..", "a name", "much-too-long-for-one"] {
            assert!(path(name).is_err(), "{name}");
        }
    }
}
