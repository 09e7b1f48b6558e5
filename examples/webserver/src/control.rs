//! The overload controller of Figure 7, for this server: it stores how many connections are open, and E-code in the
//! kernel drops requests for new ones while both its criteria hold.

use std::net::SocketAddr;

use qfabric_client::ClientError;
use qfabric_client::ecalls::{Ecalls, Subscribe};
use qfabric_types::Nanos;

use crate::server::OnConnections;

/// The controller's text; `qfabric guard` runs the same for servers that do not know of it.
pub const OVERLOAD: &str = include_str!("../../../crates/cli/handlers/overload.ec");

/// Puts the controller before the listening socket, for clients that come by `interface`. What it gives is to be
/// called with the number of open connections and of those accepted so far: two stores into memory that the
/// handler reads (fast user-ECalls). Dropping it takes the controller out.
pub fn start(ecalls: &Ecalls, listen: SocketAddr, interface: &str, wait: Nanos) -> Result<OnConnections, ClientError> {
    let wanted = Subscribe::to("tcp.accept")
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
