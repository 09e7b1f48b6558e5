//! The metrics of the web page.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::Value::Counter;
use super::{Metric, of, one};
use crate::web::WebReport;

pub(super) const TOTALS: [Metric<WebReport>; 7] = [
    of("web_requests", "requests to the web page", |r| Counter(r.requests)),
    of("web_refused_tokens", "requests to the web page refused because they had no valid token", |r| Counter(r.tokens)),
    of("web_refused_origins", "requests to the web page refused because a page of another site sent them", |r| {
        Counter(r.origins)
    }),
    of("web_refused_limits", "requests and connections to the web page refused because there were too many", |r| {
        Counter(r.limits)
    }),
    of("web_refused_paths", "requests to the web page refused because of their path", |r| Counter(r.paths)),
    of("web_refused_methods", "requests to the web page refused because they were no GET", |r| Counter(r.methods)),
    of("listen_failures", "failed attempts to listen at web.listen or metrics.listen", |r| Counter(r.not_listening)),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, report: &WebReport) -> fmt::Result {
    TOTALS.iter().try_for_each(|metric| one(encoder, metric, report))
}
