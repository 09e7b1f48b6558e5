//! Media over METP: opens connections, and registers services that wait for clients.

use std::ffi::c_char;
use std::path::Path;
use std::time::Duration;

use qfabric_carrier::{ClientConnection, Engine, Error, Options, ServerConnection, Target, Tls, resolve};
use qfabric_client::code_point;
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes};

use crate::ecalls::{give, optional, take_back};
use crate::metp::{Role, mode, qf_metp};
use crate::status::{Failure, borrow, put, qf_bool, qf_status, settle, text};

/// A service that waits for clients. Any thread may use it.
pub struct qf_metp_server(ServerConnection);

/// Options of one end of a connection. Zero means the default, except for `tls`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_metp_options {
    /// Folder with ca.pem, HOST.pem, HOST.key and access.toml, as `qfabric channel issue` writes it.
    pub tls: *const c_char,
    /// Name of this host in its certificate; null: the host name of the machine.
    pub host: *const c_char,
    /// Name of the service; null: "metp".
    pub service: *const c_char,
    /// Rate at which this side wants to send, in bits per second with all headers; 0: 10 Mbit/s.
    pub rate_bps: u64,
    /// Size of the largest message in either direction; 0: 1 MiB.
    pub largest_message: u64,
    /// Deadline of messages that state none, in partially reliable mode; 0: none.
    pub send_time_ns: u64,
    /// Longest time from the first part of a message to its delivery, in partially reliable mode; 0: no limit.
    pub receive_time_ns: u64,
    /// Whether deadlines come first (partially reliable mode); otherwise every byte arrives.
    pub partially_reliable: qf_bool,
    /// Whether each message has a QUIC stream of its own, instead of METP. For clients; a server follows its client.
    pub streams: qf_bool,
    /// Code point (DSCP, 0 to 63) of all packets of a client, for routers and access points; 0: the system's default.
    pub dscp: u32,
}

/// The identity, the service and the options.
///
/// # Safety
/// `options` is null or live, with strings that are null or zero-terminated.
unsafe fn read(options: *const qf_metp_options) -> Result<(Tls, Name, Options), Failure> {
    // SAFETY: the caller guarantees it.
    let (options, folder, host, service) = unsafe {
        let options = borrow(options)?;
        let host = optional("host", options.host)?;
        (options, text("tls", options.tls)?, host, optional("service", options.service)?)
    };
    let name = |text: &str| text.parse::<Name>().map_err(|error| Failure::invalid(format!("{text:?}: {error}")));
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = name(&host.unwrap_or_else(own))?;
    let service = service.map_or_else(|| Ok(qfabric_carrier::default_service()), |service| name(&service))?;
    let base = Options::default();
    let time = |ns: u64| (ns > 0).then(|| Duration::from_nanos(ns));
    let options = Options {
        engine: if options.streams.is_true() { Engine::Streams } else { Engine::Metp },
        mode: mode(options.partially_reliable.is_true()),
        rate: if options.rate_bps == 0 { base.rate } else { BitRate::new(options.rate_bps) },
        largest_message: match options.largest_message {
            0 => base.largest_message,
            bytes => Bytes::new(bytes),
        },
        send_time: time(options.send_time_ns),
        receive_time: time(options.receive_time_ns),
        dscp: (options.dscp > 0).then(|| code_point(options.dscp)).transpose()?,
        ..base
    };
    let folder = Path::new(folder);
    let tls = Tls::from_folder(folder, &host, &folder.join("access.toml")).map_err(Error::from)?;
    Ok((tls, service, options))
}

/// Opens a connection to a service at "HOST:PORT". Both hosts prove their identity. Free `*metp` with qf_metp_free.
///
/// # Safety
/// `address` is a zero-terminated string, `options` points to options, `metp` to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_open(
    address: *const c_char,
    options: *const qf_metp_options,
    metp: *mut *mut qf_metp,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let open = || unsafe {
        let (tls, service, options) = read(options)?;
        let target = Target::new(text("address", address)?, service)?;
        give(metp, qf_metp(Role::Client(ClientConnection::open(target, tls, options)?)))
    };
    settle(open())
}

/// Registers a service that listens on "ADDRESS:PORT" (port 0: any free port). Free `*server` with qf_metp_server_free.
///
/// # Safety
/// `address` is a zero-terminated string, `options` points to options, `server` to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_register(
    address: *const c_char,
    options: *const qf_metp_options,
    server: *mut *mut qf_metp_server,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let register = || unsafe {
        let (tls, service, options) = read(options)?;
        let local = resolve(text("address", address)?)?;
        give(server, qf_metp_server(ServerConnection::register(service, local, tls, options)?))
    };
    settle(register())
}

/// The port on which a service listens; 0 for a null pointer.
///
/// # Safety
/// `server` is null or a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_server_port(server: *const qf_metp_server) -> u16 {
    // SAFETY: the caller guarantees it.
    unsafe { borrow(server) }.map_or(0, |server| server.0.address().port())
}

/// Waits for the next client; `*metp` is null if none came. Free it with qf_metp_free.
///
/// # Safety
/// `server` is a live handle, `metp` points to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_accept(
    server: *const qf_metp_server,
    within_ns: u64,
    metp: *mut *mut qf_metp,
) -> qf_status {
    // SAFETY: the caller guarantees that the pointers are null or live.
    let accept = || unsafe {
        match borrow(server)?.0.accept(Duration::from_nanos(within_ns)) {
            Ok(connection) => give(metp, qf_metp(Role::Server(connection))),
            Err(Error::TimeOut { .. }) => put("the pointer for the handle", metp, std::ptr::null_mut()),
            Err(error) => Err(error.into()),
        }
    };
    settle(accept())
}

/// Ends a service. Connections that were accepted stay. Null is allowed.
///
/// # Safety
/// `server` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_metp_server_free(server: *mut qf_metp_server) {
    // SAFETY: the caller guarantees it.
    drop(unsafe { take_back(server) });
}
