//! The text format that Prometheus had before OpenMetrics, for clients that do not ask for OpenMetrics (`curl`,
//! `promtool check metrics`). The samples are the same; only the lines that describe them differ.

/// The content type of this format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a client with this Accept header reads OpenMetrics.
pub(crate) fn wants_open_metrics(accept: Option<&str>) -> bool {
    accept.is_some_and(|accept| accept.contains("application/openmetrics-text"))
}

/// Converts OpenMetrics text. There a counter is described by its name without `_total`; here by the name of its
/// sample. The lines `# UNIT` and `# EOF` do not exist here.
pub(crate) fn from_open_metrics(text: &str) -> String {
    let counters: std::collections::BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        match line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')) {
            None if line == "# EOF" => continue,
            Some(("UNIT", _)) => continue,
            Some((kind @ ("HELP" | "TYPE"), rest)) => {
                let (name, about) = rest.split_once(' ').unwrap_or((rest, ""));
                let total = if counters.contains(name) { "_total" } else { "" };
                out += &format!("# {kind} {name}{total} {about}\n");
            }
            _ => {
                out += line;
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_the_name_of_their_sample() {
        let open = "# HELP q_jobs jobs that ended.\n# TYPE q_jobs counter\nq_jobs_total{app=\"# EOF\"} 3\n\
                    # HELP q_cpus capacity.\n# TYPE q_cpus gauge\nq_cpus 1.5\n\
                    # HELP q_s_seconds time.\n# TYPE q_s_seconds histogram\n# UNIT q_s_seconds seconds\nq_s_seconds_sum 0.1\n# EOF\n";
        let classic = "# HELP q_jobs_total jobs that ended.\n# TYPE q_jobs_total counter\nq_jobs_total{app=\"# EOF\"} 3\n\
                       # HELP q_cpus capacity.\n# TYPE q_cpus gauge\nq_cpus 1.5\n\
                       # HELP q_s_seconds time.\n# TYPE q_s_seconds histogram\nq_s_seconds_sum 0.1\n";
        assert_eq!(from_open_metrics(open), classic);
    }

    #[test]
    fn only_a_client_that_asks_for_open_metrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert!(wants_open_metrics(Some(prometheus)));
        assert!(!wants_open_metrics(Some("*/*")) && !wants_open_metrics(None));
    }
}
