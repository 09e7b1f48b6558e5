//! The web page of the daemon (`POST /v1/web`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The address of the web page for one user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebPage {
    /// Address of the page on this host. Its fragment has the user's token, so the address is as secret as a password.
    pub url: String,
}

/// Without the token: a log must not have it.
impl fmt::Debug for WebPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let public = self.url.split('#').next().unwrap_or_default();
        f.debug_struct("WebPage").field("url", &public).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_not_printed_for_debugging() {
        let page = WebPage { url: "http://127.0.0.1:9465/#token=abc".to_owned() };
        assert_eq!(format!("{page:?}"), "WebPage { url: \"http://127.0.0.1:9465/\" }");
    }
}
