//! The overload controller of Figure 7 for this server. The server stores the number of open connections in shared
//! memory; E-code in the kernel drops requests for new connections while both criteria of overload hold.

use std::net::SocketAddr;

use qfabric_client::ClientError;
use qfabric_client::ecalls::{Ecalls, SubscriptionBuilder};
use qfabric_types::Nanos;

use crate::server::OnConnections;

/// The E-code of the controller; `qfabric guard` runs the same for servers that do not support it themselves.
pub const OVERLOAD: &str = include_str!("../../../crates/cli/handlers/overload.ec");

/// Starts the controller for the listening socket, for clients that connect through `interface`. The caller calls
/// the returned function with the number of open connections and the number of connections accepted so far. Each
/// call is two stores into memory that the handler reads (fast user-ECalls). Dropping the function removes the
/// controller.
pub fn start(ecalls: &Ecalls, listen: SocketAddr, interface: &str, wait: Nanos) -> Result<OnConnections, ClientError> {
    let wanted = SubscriptionBuilder::to("tcp.accept")
        .option("interface", interface)
        .option("listen", listen)
        .option("drop", "yes")
        .attribute("patience_ns", i64::try_from(wait.get()).unwrap_or(i64::MAX))
        .code(OVERLOAD);
    let subscription = ecalls.subscribe(&wanted)?;
    let (numconnects, completed) = (ecalls.attribute("numconnects")?, ecalls.attribute("completed")?);
    Ok(Box::new(move |open, accepted| {
        let _while_this_lives = &subscription;
        numconnects.set(open as i64);
        completed.set(accepted as i64 - open as i64);
    }))
}
